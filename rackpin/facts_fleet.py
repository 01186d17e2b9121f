"""The pyinfra fact about what a node is made of."""

from __future__ import annotations

from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from rackpin.fleet import identity
from rackpin.fleet.identity import Identity, IdentityError


class IdentityFact(FactBase[Identity | None]):
    """Board, cards, adapters, interfaces and ssh keys, from /sys and /proc in one look."""

    @staticmethod
    def default() -> None:
        return None

    def command(self) -> str:
        return identity.script()

    def process(self, output: list[str]) -> Identity:
        try:
            return identity.parse(output)
        except IdentityError as error:
            raise FactProcessError(str(error)) from error
