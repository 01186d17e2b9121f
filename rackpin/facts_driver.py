"""The pyinfra fact about GPUs, driver and kernels: one command, read as a whole or not at all."""

from __future__ import annotations

from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from rackpin.driver.state import DriverState, DriverStateError, parse_state, state_script


class Gpu(FactBase[DriverState | None]):
    """The driver as it is on the node, and which kernels have it."""

    @staticmethod
    def default() -> None:
        return None

    def command(self) -> str:
        return state_script()

    def process(self, output: list[str]) -> DriverState:
        try:
            return parse_state(output)
        except DriverStateError as error:
            raise FactProcessError(f"driver: {error}") from error
