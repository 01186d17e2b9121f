"""``apt-cache policy``: versions, their priorities, and where they are from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rackpin.parse.apt_sources import same_uri

NONE = "(none)"
# Packages newer than apt 2.5 show the share of a phased update behind the priority.
_VERSION = re.compile(r"^ (?:\*\*\*|   ) (\S+) (-?\d+)(?: \(phased \d+%\))?$")
_ORIGIN = re.compile(r"^ {8} *(-?\d+) (\S+)(?: (.*))?$")


@dataclass(frozen=True)
class Offered:
    """A version that apt knows of: its priority for this package, and its places with theirs."""

    version: str
    priority: int
    places: tuple[str, ...] = ()  # addresses, normalised; /var/lib/dpkg/status for the installed


@dataclass(frozen=True)
class Policy:
    """``installed`` and ``candidate`` are "" when there is none."""

    installed: str = ""
    candidate: str = ""
    versions: tuple[Offered, ...] = field(default=())

    def priority(self, version: str) -> int | None:
        return next((v.priority for v in self.versions if v.version == version), None)


def parse_policy(text: str) -> dict[str, Policy]:
    """``apt-cache policy NAME…``, by name. A package that apt doesn't know is not in it."""
    found: dict[str, Policy] = {}
    name, installed, candidate = "", "", ""
    versions: list[Offered] = []

    def finish() -> None:
        if name:
            found[name] = Policy(installed, candidate, tuple(versions))

    for line in text.splitlines():
        if re.fullmatch(r"[a-z0-9][a-z0-9+.-]*(:[a-z0-9]+)?:", line):
            finish()
            name, installed, candidate, versions = line[:-1], "", "", []
        elif match := re.fullmatch(r"  (Installed|Candidate): (\S+)", line):
            value = "" if match[2] == NONE else match[2]
            installed, candidate = (
                (value, candidate) if match[1] == "Installed" else (installed, value)
            )
        elif match := _VERSION.match(line):
            versions.append(Offered(match[1], int(match[2])))
        elif (match := _ORIGIN.match(line)) and versions:
            place = match[2] if match[2].startswith("/") else same_uri(match[2])
            last = versions[-1]
            versions[-1] = Offered(last.version, last.priority, (*last.places, place))
    finish()
    return found
