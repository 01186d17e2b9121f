"""dpkg's own view of packages: version, state, and whether somebody holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FORMAT = "${Package}|${Architecture}|${db:Status-Want}|${db:Status-Status}|${Version}\\n"
NATIVE = ("amd64", "all")


@dataclass(frozen=True)
class Status:
    """One package. ``state`` is dpkg's word: ``installed``, ``half-configured``, …"""

    version: str
    state: str
    held: bool

    @property
    def installed(self) -> bool:
        return self.state == "installed"


def parse_status(lines: Sequence[str]) -> dict[str, Status]:
    """``dpkg-query -W -f FORMAT``, by name; only what is there of this machine's architecture."""
    found = {}
    for line in lines:
        fields = line.strip().split("|")
        if len(fields) == 5 and fields[1] in NATIVE and fields[3] not in ("", "not-installed"):
            name, _, want, state, version = fields
            found[name] = Status(version, state, want == "hold")
    return found
