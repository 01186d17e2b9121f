"""The pyinfra fact about cards, adapters and what the kernel does with them."""

from __future__ import annotations

from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from rackpin.fabric.look import LookError, parse, script
from rackpin.fabric.model import Fabric


class FabricFact(FactBase[Fabric | None]):
    """What connects this node's cards, from /sys and /proc in one look."""

    @staticmethod
    def default() -> None:
        return None

    def command(self) -> str:
        return script()

    def process(self, output: list[str]) -> Fabric:
        try:
            return parse(output)
        except LookError as error:
            raise FactProcessError(f"fabric: {error}") from error
