"""The table of nccl-tests: its header, its rows, and rows that NCCL's log lines tear apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rackpin.parse.nccl_tests_model import Measure, Row
from rackpin.parse.text import number

# host:pid:tid [device] … NCCL INFO …; the host's name may be glued to the number before it.
LOG = re.compile(
    r"(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,12} +)?"
    r"[A-Za-z][\w.-]{0,80}:\d{1,10}(?::\d{1,10})? \[-?\d{1,4}\] (?:\S{1,80}:\d{1,6} )?"
    r"(?:NCCL (?:INFO|WARN|TRACE|ERROR|VERSION|ABORT)|INFO NET|WARN )"
)
_UNIT = re.compile(r"\([^)\s]{0,20}\)")  # size(B), in tables that people shortened
_START = re.compile(r"\s*(\d{1,20})\s+(\d{1,20})\s+([a-z][a-z0-9_]*)(?:\s+|$)(.*)$")
_REDOP = re.compile(r"[a-z]+")
_STAMP = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_BLANK_HALF = re.compile(r"\S {28,}\S")
_NUMBER = re.compile(
    r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|N/A|[+-]?(?:nan|inf)", re.IGNORECASE
)


@dataclass(frozen=True)
class Header:
    """``width`` numbers in each of ``halves``; ``milliseconds`` in the oldest versions (2017)."""

    redop: bool = True
    root: bool = True
    halves: int = 2
    width: int = 4
    check: str | None = None  # wrong, error
    milliseconds: bool = False

    @property
    def numbers(self) -> int:
        return self.halves * self.width + self.root


def header(line: str) -> Header | None:
    """The line with the columns' names; None for any other line."""
    names = _UNIT.sub("", line.replace("#", " ")).split()
    halves = names.count("algbw")
    if not halves or halves > 2 or not {"size", "bytes"} & set(names):
        return None
    first = next((i for i, name in enumerate(names) if name in ("time", "cputime")), None)
    if first is None:
        return None
    numbers = [name for name in names[first:] if name not in ("timestamp",)]
    check = next((word for word in ("wrong", "error", "res") if word in numbers), None)
    return Header(
        bool({"redop", "op"} & set(names)),
        "root" in names,
        halves,
        len(numbers) // halves,
        "error" if check == "res" else check,
        "bytes" in names,
    )


def without_log(line: str) -> tuple[str, str]:
    """The line without a log's message, and that message."""
    if "[" not in line or not (match := LOG.search(line)):
        return line, ""
    start = match.start()
    if line[start] == "A" and line[max(0, start - 2) : start] == "N/":
        start += 1  # the host's name is glued to N/A
    return line[:start], line[start:]


class Rows:
    """Takes the table's lines one by one; a row may come in several pieces."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.header: Header | None = None
        self.unreadable: list[str] = []
        self._begun: tuple[int, int, str, str | None] | None = None
        self._numbers: list[str] = []

    @property
    def is_open(self) -> bool:
        return self._begun is not None

    def take(self, line: str, torn: bool) -> bool:
        """Whether the line is a row or a piece of one; ``torn``: a log's message followed it."""
        line = _STAMP.sub("", line, count=1)
        start = _START.match(line)
        if not start and self._begun is None:
            return False
        words = (start[4] if start else line).split()
        if start:
            self.drop()
            redop = words.pop(0) if words and _REDOP.fullmatch(words[0]) else None
            if redop in ("nan", "inf"):
                words, redop = [redop, *words], None
            self._begun = (int(start[1]), int(start[2]), start[3], redop)
        if not all(_NUMBER.fullmatch(word) for word in words):
            if start:
                self.drop(line)
                return True
            return False
        if not words and not start:
            return False
        self._numbers += words
        expected = self.header.numbers if self.header else 9
        if len(self._numbers) >= expected or not (torn or self._torn_before(start)):
            self._finish(line)
        return True

    def drop(self, line: str = "") -> None:
        """Give up a row that has begun and isn't whole."""
        if self._begun is not None:
            size = self._begun[0]
            self.unreadable.append(line.strip() or f"the row of {size} bytes is not whole")
        self._begun, self._numbers = None, []

    def _torn_before(self, start: re.Match[str] | None) -> bool:
        """A piece without its beginning, and still too short: the rest comes later."""
        return start is None and bool(self.header) and len(self._numbers) < self._least()

    def _least(self) -> int:
        return self.header.numbers - 1 if self.header else 8

    def _finish(self, line: str) -> None:
        assert self._begun is not None
        size, count, kind, redop = self._begun
        parts = _halves(self._numbers, self.header, line)
        if parts is None:
            self.drop(line)
            return
        root, out, into = parts
        scale = 1000 if self.header and self.header.milliseconds else 1
        self.rows.append(
            Row(size, count, kind, redop, root, _measure(out, scale), _measure(into, scale))
        )
        self._begun, self._numbers = None, []


def _halves(
    words: Sequence[str], head: Header | None, line: str
) -> tuple[int | None, Sequence[str], Sequence[str]] | None:
    """The root and the two halves' numbers; None when the count of numbers fits no layout."""
    width = head.width if head else (8 if len(words) in (16, 17) else 4)
    halves, extra = divmod(len(words), width)
    if extra > 1 or halves not in (1, 2) or (head and extra and not head.root):
        return None
    if head and halves > head.halves:
        return None
    root: int | None = None
    if extra:
        if not re.fullmatch(r"-?\d{1,6}", words[0]):
            return None
        root = int(words[0])
        words = words[1:]
    first, second = words[:width], words[width:]
    if head and head.halves == 2 and halves == 1:
        if _BLANK_HALF.search(line.strip()):
            return root, (), first  # a replayed trace has no out-of-place run
        return None
    return root, first, second


def _measure(words: Sequence[str], scale: int) -> Measure | None:
    if not words:
        return None
    time, algbw, busbw = (number(word) for word in words[:3])
    wrong = number(words[3]) if len(words) > 3 else None
    if isinstance(wrong, float) and wrong.is_integer() and wrong >= 1:
        wrong = int(wrong)  # 1e+06 wrong elements
    return Measure(time * scale if time is not None else None, algbw, busbw, wrong)
