"""An answer in parts: what a program on a host puts together again with ``cat``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NOW = "@NOW@"  # Fri Jul  3 22:22:00 2026
STAMP = "@STAMP@"  # 2026/07/03 22:22:00.000


class Answer(NamedTuple):
    """What a program printed, and its exit code."""

    stdout: str
    stderr: str
    code: int


class Hangs(TimeoutError):
    """The program would never answer: a runner with a deadline ends it, and says so."""


@dataclass(frozen=True)
class Parts:
    """``head``, one text for each card that was asked for, ``tail``. ``code``: exit code."""

    head: str = ""
    each: Sequence[str] = field(default_factory=tuple)
    tail: str = ""
    stderr: str = ""
    code: int = 0

    def text(self, chosen: Sequence[int] | None = None) -> str:
        """All of it, or only the chosen cards."""
        wanted = range(len(self.each)) if chosen is None else chosen
        return self.head + "".join(self.each[i] for i in wanted) + self.tail
