"""The one error the lab raises for people."""

from __future__ import annotations


class LabError(Exception):
    """Something the person at the control machine can act on; may hold several lines."""

    exit_code = 1

    def __init__(self, message: str, *problems: str) -> None:
        self.problems = list(problems)
        super().__init__("\n  ".join([message, *problems]))


class DescriptionError(LabError):
    """The lab's description is wrong: bad input, not a failed lab."""

    exit_code = 2
