"""Limits of processes: ``/proc/PID/limits``, ``ulimit -a`` and a lone ``ulimit -l``/``-n``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PROC = re.compile(r"^Max ([a-z -]+?)\s{2,}(unlimited|\d+)\s+(unlimited|\d+)(?:\s+([a-z]+))?$")
_ULIMIT = re.compile(r"^([a-z][a-z \-/()]*?)\s+\((?:([a-z0-9 -]+?), )?-(\w)\) (unlimited|\d+)$")
_NAMES = {"l": "locked memory", "n": "open files", "u": "processes", "s": "stack size"}


@dataclass(frozen=True)
class Limit:
    """``soft`` and ``hard`` null for unlimited; ``unit`` as printed (bytes, kbytes)."""

    name: str
    soft: int | None
    hard: int | None
    unit: str | None
    hard_known: bool


def limits(lines: Sequence[str]) -> tuple[Limit, ...]:
    """Limits in these lines; ``ulimit`` tells the soft one only."""
    found = []
    for line in lines:
        if match := _PROC.match(line):
            found.append(
                Limit(match[1].strip(), _number(match[2]), _number(match[3]), match[4], True)
            )
        elif match := _ULIMIT.match(line):
            name = _NAMES.get(match[3], match[1].strip())
            found.append(Limit(name, _number(match[4]), None, match[2], False))
    return tuple(found)


def _number(text: str) -> int | None:
    return None if text == "unlimited" else int(text)
