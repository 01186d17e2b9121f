"""The pyinfra fact about apt: one command for files, policy, holds and what was proved."""

from __future__ import annotations

from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from rackpin.apt.state import AptState, StateError, parse_state, state_script


class Apt(FactBase[AptState | None]):
    """apt as it is on the node, and what it makes of the pinned packages (``names``)."""

    of_the_plan = True  # as Survey's

    @staticmethod
    def default() -> None:
        return None

    def command(self, names: tuple[str, ...]) -> str:
        return state_script(names)

    def process(self, output: list[str]) -> AptState:
        try:
            return parse_state(output)
        except StateError as error:
            raise FactProcessError(f"apt: {error}") from error
