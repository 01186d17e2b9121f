"""apt's preferences: which pins a host has, in the order in which apt reads them.

For each version of a package the first stanza that names the package and matches the version
counts, whatever its priority: shown on apt 2.6 with files of both orders. ``/etc/apt/preferences``
is read first, then ``preferences.d`` by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rackpin.parse.stanzas import stanzas

MAIN = "/etc/apt/preferences"
PARTS = "/etc/apt/preferences.d/"
# apt's rule for parts: no dot but in this suffix, and no odd character (F013).
_PART = re.compile(r"[A-Za-z0-9_-]+(\.pref)?")


@dataclass(frozen=True)
class Pin:
    """One stanza. ``pin`` is e.g. ``version 535.*``, ``release o=NVIDIA``, ``origin ""``."""

    file: str
    line: int
    packages: tuple[str, ...]
    pin: str
    priority: int | None  # None: not a number, and apt refuses the file
    fault: str = ""  # why apt reads something else than was meant
    last: int = 0  # its last line

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def names(self, package: str) -> bool:
        """Whether it speaks of this package by name or pattern; ``*`` speaks of none."""
        return any(_matches(pattern, package) for pattern in self.packages)

    def agrees(self, version: str) -> bool:
        """Whether it wants just this version, and not against its being installed."""
        kind, _, wanted = self.pin.partition(" ")
        fits = kind == "version" and fnmatchcase(version, wanted.strip())
        return fits and wanted.strip() != "*" and (self.priority or 0) > 0


def read_by_apt(path: str) -> bool:
    """Whether apt reads a file of this name at all."""
    if path == MAIN:
        return True
    return path.startswith(PARTS) and bool(_PART.fullmatch(path.removeprefix(PARTS)))


def in_order(paths: Iterable[str]) -> list[str]:
    """The paths as apt reads them."""
    return sorted(paths, key=lambda path: (path != MAIN, path.encode()))


def pins(files: Mapping[str, str]) -> list[Pin]:
    """All stanzas of these files (text by path), in apt's order, ignored files included."""
    return [pin for path in in_order(files) for pin in parse_preferences(path, files[path])]


def parse_preferences(path: str, text: str) -> list[Pin]:
    """The stanzas of one file; one without ``Package`` is left out, as apt does."""
    found = []
    for stanza in stanzas(text):
        packages = tuple(stanza.get("package").split())
        if not packages:
            continue
        raw = stanza.get("pin-priority")
        priority = int(raw) if re.fullmatch(r"[+-]?\d+", raw) else None
        fault = ""
        if priority is None:
            fault = f"Pin-Priority {raw!r} is not a number" if raw else "it has no Pin-Priority"
        elif stanza.twice:
            fault = f"{stanza.twice[0]!r} is given twice: a blank line is missing between two pins"
        pin = stanza.get("pin")
        found.append(Pin(path, stanza.first, packages, pin, priority, fault, stanza.last))
    return found


def without(text: str, off: Iterable[Pin], why: str) -> str:
    """The file's text with these stanzas made comments; every byte of it can be read still."""
    lines = text.splitlines(keepends=True)
    for pin in sorted(off, key=lambda pin: -pin.line):
        body = [f"# {line}" for line in lines[pin.line - 1 : pin.last]]
        lines[pin.line - 1 : pin.last] = [f"# {why}\n", *body]
    return "".join(lines)


def _matches(pattern: str, package: str) -> bool:
    if pattern == "*":
        return False
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            return re.search(pattern[1:-1], package) is not None
        except re.error:
            return False  # a POSIX expression that Python can't read: the candidate will tell
    return fnmatchcase(package, pattern.removesuffix(":any").removesuffix(":amd64"))
