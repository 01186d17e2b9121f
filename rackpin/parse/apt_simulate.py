"""``apt-get -s …``: what apt would install, remove or leave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_INST = re.compile(r"^Inst (\S+)(?: \[([^\]]*)\])? \((\S+)")
_REMV = re.compile(r"^(?:Remv|Purg) (\S+)(?: \[([^\]]*)\])?")


@dataclass(frozen=True)
class Step:
    """``before`` is "" for a new package, ``after`` is "" for one that goes."""

    package: str
    before: str
    after: str

    def __str__(self) -> str:
        if not self.after:
            return f"removes {self.package} {self.before}".rstrip()
        return f"moves {self.package} {self.before} → {self.after}"


def parse_simulation(text: str) -> list[Step]:
    """The ``Inst`` and ``Remv`` lines; names without this machine's architecture."""
    steps = []
    for line in text.splitlines():
        if match := _INST.match(line):
            steps.append(Step(_bare(match[1]), match[2] or "", match[3]))
        elif match := _REMV.match(line):
            steps.append(Step(_bare(match[1]), match[2] or "", ""))
    return steps


def moved(steps: Iterable[Step], pinned: Mapping[str, str]) -> list[Step]:
    """Steps that take a pinned package (version by name) away from where it is or should be."""
    return [
        step
        for step in steps
        if step.package in pinned and (step.before or step.after != pinned[step.package])
    ]


def _bare(name: str) -> str:
    return name.removesuffix(":amd64")
