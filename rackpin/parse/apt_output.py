"""What apt, apt-get, dpkg and apt-cache print: errors, locks, unmet dependencies, candidates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_MESSAGE = re.compile(r"^(?P<kind>[EW]): ?(?P<text>[A-Z].+)$")
_DPKG = re.compile(
    r"^(?:dpkg: error.*|dpkg-deb: error.*|Errors were encountered while processing:)$"
)
_RELATIONS = "Depends|PreDepends|Pre-Depends|Recommends|Conflicts|Breaks"
_UNMET = re.compile(
    rf"^(?:(?P<package>[a-z0-9][\w.+:-]*) ?: )?(?P<relation>{_RELATIONS}): "
    r"(?P<needs>[a-z0-9][\w.+:-]*)"
    r"(?: \((?P<op>[<>=]{1,2}) ?(?P<version>[^)\s]+)\))?(?: but (?P<reason>.+?))?(?: or)?\s*$"
)
_KEY = re.compile(r"NO_PUBKEY ([0-9A-F]{8,40})")
_LOCK = re.compile(
    r"(?P<wait>Waiting for cache lock: )?Could not (?:get lock|open lock file) "
    r"(?P<path>/[^\s.]\S*?)(?:\.? It is held by process (?P<pid>\d+) \((?P<process>[^)]+)\)|[. ]|$)"
)
_MADISON = re.compile(r"^\s*(?P<package>[a-z0-9][\w.+-]+) \| (?P<version>\S+) \| (?P<place>.+)$")
_POLICY = re.compile(r"^(?P<package>[a-z0-9][\w.+:-]+):$")
_POLICY_ITEM = re.compile(r"^(?P<item>Installed|Candidate): (?P<value>\S+)$")
_TABLE = re.compile(r"^(?:\*\*\* )?(?P<version>\d\S*) -?\d+$")


@dataclass(frozen=True)
class Unmet:
    """A dependency apt couldn't meet; ``needs`` with ``op`` and ``version`` as printed."""

    package: str | None
    relation: str
    needs: str
    op: str | None
    version: str | None
    reason: str | None

    @property
    def have(self) -> str | None:
        """The version that would be installed instead, where apt names it."""
        match = re.match(r"(\S*\d\S*) is (?:to be )?installed", self.reason or "")
        return match[1] if match else None


@dataclass(frozen=True)
class Lock:
    """``waiting``: apt waits for it and hasn't failed. ``denied``: no right to it at all."""

    path: str
    pid: int | None
    process: str | None
    waiting: bool
    denied: bool


@dataclass(frozen=True)
class Candidate:
    """A package with the versions apt knows of; null where the text doesn't say."""

    package: str
    installed: str | None
    candidate: str | None
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Apt:
    """What a run of apt or apt-cache printed."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    unmet: tuple[Unmet, ...]
    missing_keys: tuple[str, ...]
    locks: tuple[Lock, ...]
    packages: tuple[Candidate, ...]


def apt_output(lines: Sequence[str]) -> Apt | None:
    """What these lines say; None when none of them is apt's."""
    errors: dict[str, None] = {}
    warnings: dict[str, None] = {}
    unmet: dict[Unmet, None] = {}
    keys: dict[str, None] = {}
    locks: dict[Lock, None] = {}
    package: str | None = None
    for line in lines:
        if match := _MESSAGE.match(line):
            (errors if match["kind"] == "E" else warnings)[match["text"].strip()] = None
        elif _DPKG.match(line):
            errors[line] = None
        if match := _UNMET.match(line):
            package = match["package"] or package
            parts = [match[part] for part in ("relation", "needs", "op", "version", "reason")]
            unmet[Unmet(package, *parts)] = None
        if match := _LOCK.search(line):
            locks[_lock(match, line)] = None
        for key in _KEY.finditer(line):
            keys[key[1]] = None
    packages = candidates(lines)
    if not (errors or warnings or unmet or keys or locks or packages):
        return None
    return Apt(
        tuple(errors), tuple(warnings), tuple(unmet), tuple(keys), tuple(locks), tuple(packages)
    )


def _lock(match: re.Match[str], line: str) -> Lock:
    pid = int(match["pid"]) if match["pid"] else None
    path = match["path"].rstrip(".,)")
    return Lock(path, pid, match["process"], bool(match["wait"]), "Permission denied" in line)


def candidates(lines: Sequence[str]) -> tuple[Candidate, ...]:
    """Packages of ``apt-cache policy`` and ``madison``, also in cut form."""
    found: dict[str, dict[str, str | None]] = {}
    versions: dict[str, dict[str, None]] = {}
    name = ""
    for line in lines:
        if match := _MADISON.match(line):
            found.setdefault(match["package"], {})
            versions.setdefault(match["package"], {})[match["version"]] = None
        elif match := _POLICY.match(line):
            name = match["package"]
        elif name and (match := _POLICY_ITEM.match(line)):
            value = None if match["value"] == "(none)" else match["value"]
            found.setdefault(name, {})[match["item"]] = value
        elif name in found and (match := _TABLE.match(line)):
            versions.setdefault(name, {})[match["version"]] = None
    return tuple(
        Candidate(name, item.get("Installed"), item.get("Candidate"), (*versions.get(name, {}),))
        for name, item in found.items()
    )
