"""A lie: parts of a healthy node's answers changed, and what the findings must name then."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Change = Callable[[str], str]


@dataclass(frozen=True)
class Lie:
    """``edits``: a command and what happens to its text. ``named``: words that must stand in the
    check's findings that are no pass."""

    edits: tuple[tuple[str, Change], ...]
    named: tuple[str, ...]


def lie(command: str, old: str, new: str, named: str) -> Lie:
    """The text is replaced wherever it stands."""
    return Lie(((command, lambda text: _checked(text, text.replace(old, new), old)),), (named,))


def first(command: str, old: str, new: str, named: str) -> Lie:
    return Lie(((command, lambda text: _checked(text, text.replace(old, new, 1), old)),), (named,))


def last(command: str, old: str, new: str, named: str) -> Lie:
    return Lie(
        ((command, lambda text: _checked(text, new.join(text.rsplit(old, 1)), old)),), (named,)
    )


def pattern(command: str, regex: str, new: str, named: str, count: int = 1) -> Lie:
    """The first ``count`` places that match (0: all)."""
    return Lie(
        ((command, lambda text: _checked(text, re.sub(regex, new, text, count=count), regex)),),
        (named,),
    )


def instead(command: str, text: str, named: str) -> Lie:
    """Another answer altogether."""
    return Lie(((command, lambda _: text),), (named,))


def also(named: str) -> Lie:
    """A second fault of the edit before it."""
    return Lie((), (named,))


def two(*some: Lie) -> Lie:
    """Several at once: all must be named."""
    edits = tuple(edit for one in some for edit in one.edits)
    return Lie(edits, tuple(word for one in some for word in one.named))


def _checked(before: str, after: str, what: str) -> str:
    assert before != after, f"{what!r} is not in the sample"
    return after
