"""The pyinfra fact about a model's files on a node."""

from __future__ import annotations

from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from rackpin.stack.placed import ModelState, parse_state, state_script


class ModelFact(FactBase[ModelState | None]):
    """What lies at a model's path: its mark, its files' sizes, and the space beside them."""

    @staticmethod
    def default() -> None:
        return None

    def command(self, path: str) -> str:
        return state_script(path)

    def process(self, output: list[str]) -> ModelState:
        try:
            return parse_state(output)
        except ValueError as error:
            raise FactProcessError(str(error)) from error
