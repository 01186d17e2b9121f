"""The pyinfra fact about GPUs, driver and kernels: one command, read as a whole or not at all."""

from __future__ import annotations

from pyinfra.api import FactBase

from rackpin.driver.state import DriverState, DriverStateError, parse_state, state_script


class Gpu(FactBase[DriverState | str | None]):
    """The driver as it is on the node, and which kernels have it; text says why it can't be told.

    An exception would end pyinfra's run with words of its own.
    """

    @staticmethod
    def default() -> None:
        return None

    def command(self) -> str:
        return state_script()

    def process(self, output: list[str]) -> DriverState | str:
        try:
            return parse_state(output)
        except DriverStateError as error:
            return str(error)
