"""A finding, and which of several is the cause: roots first, echoes of another left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

_NAME = re.compile(r"\{(\w+)\}")
_BRACKET = re.compile(r" ?\([^()]*\{\w+\}[^()]*\)")
_KINDS = ("root", "symptom", "wrapper")


@dataclass(frozen=True)
class Finding:
    """``cause`` and ``remedy`` for people, ``evidence`` the line or lines as printed, ``line``
    their number, ``details`` the values that the message names."""

    rule: str
    cause: str
    evidence: str
    remedy: str
    confidence: str
    kind: str
    file: str
    line: int
    details: dict[str, str] = field(default_factory=dict)
    source: str = ""
    echoes: tuple[str, ...] = ()


class Blanks(dict[str, str]):
    """Values for a text; what the log doesn't name is shown as ``?``."""

    def __missing__(self, key: str) -> str:
        return "?"


def filled(text: str, details: Mapping[str, str]) -> str:
    """The text with its ``{names}`` replaced; a bracket about what the log doesn't name goes."""

    def bracket(match: re.Match[str]) -> str:
        return match[0] if set(_NAME.findall(match[0])) <= details.keys() else ""

    return _BRACKET.sub(bracket, text).format_map(Blanks(details))


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Best first. What an earlier one explains is dropped; so are all that only say that
    something failed, once there is a finding that says what."""
    order = {id(finding): at for at, finding in enumerate(findings)}
    files = {name: at for at, name in enumerate(dict.fromkeys(f.file for f in findings))}
    best = sorted(
        findings,
        key=lambda f: (
            _KINDS.index(f.kind),
            f.confidence == "low",
            files[f.file],
            f.line,
            order[id(f)],
        ),
    )
    dropped: set[int] = set()
    for finding in best:
        if id(finding) not in dropped:
            dropped |= {id(other) for other in best if _explains(finding, other)}
    kept = [finding for finding in best if id(finding) not in dropped]
    told = [finding for finding in kept if finding.kind != "wrapper"]
    return told or kept


def _explains(finding: Finding, other: Finding) -> bool:
    """Whether ``other`` is but an echo of ``finding``. A wrapper explains wrappers only."""
    if other is finding or _KINDS.index(other.kind) < _KINDS.index(finding.kind):
        return False
    return any(fnmatchcase(other.rule, name) for name in finding.echoes)
