"""What goes into the resolver and what comes out. Nothing here asks the network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from pathlib import Path

from debian.debian_support import Version

NAME = re.compile(r"[a-z0-9][a-z0-9.+-]+")  # a package's, as Debian's policy has it
FINGERPRINT = re.compile(r"[0-9A-F]{40}([0-9A-F]{24})?")


@cache
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(translate(glob) for glob in globs) or r"(?!)")


def _matches(globs: tuple[str, ...], name: str) -> bool:
    # One expression for all: an archive has 60 000 names.
    return _pattern(globs).match(name) is not None


class DebError(Exception):
    """Debs can't be had as wanted; the message names what, what was found, and what to do."""


class Unreachable(DebError):
    """A repository did not answer: what depends on it is unresolved, not wrong."""


class Refused(DebError):
    """A repository answered with something that must not be trusted."""


@dataclass(frozen=True)
class Repository:
    """One line of sources.list and the keys that may sign it.

    ``suite`` is ``/`` (or another path ending in it) for a flat repository, which then has no
    components. ``fetch_from`` is a site's mirror of ``url``; the mirror needs no trust.
    """

    name: str
    url: str
    suite: str
    components: tuple[str, ...] = ()
    key: Path | None = None  # armored or binary
    fingerprints: tuple[str, ...] = ()  # 40 hex digits, of the key itself or its signing subkey
    architecture: str = "amd64"
    fetch_from: str | None = None
    accept_unsigned: bool = False  # a plain local one: its debs are proved by the lock alone
    accept_expired: bool = False  # a snapshot, whose Valid-Until has passed by nature

    def __post_init__(self) -> None:
        wrong = []
        if not self.accept_unsigned and not (self.key and self.fingerprints):
            wrong.append("key and fingerprints: needed, unless accept_unsigned is set")
        wrong += [
            f"fingerprints: {text!r} is no fingerprint; write its 40 hex digits in capitals"
            for text in self.fingerprints
            if not FINGERPRINT.fullmatch(text)
        ]
        if self.flat and self.components:
            wrong.append(f"components: a flat repository (suite {self.suite!r}) has none")
        if not self.flat and not self.components:
            wrong.append("components: missing (for example main)")
        if wrong:
            raise DebError(f"repository {self.name}: " + "; ".join(wrong))

    @property
    def flat(self) -> bool:
        return self.suite.endswith("/")

    @property
    def base_url(self) -> str:
        """Where Filename fields start, ending in a slash."""
        return (self.fetch_from or self.url).rstrip("/") + "/"

    @property
    def release_url(self) -> str:
        """Where InRelease lies, ending in a slash."""
        inner = self.suite.strip("/") if self.flat else f"dists/{self.suite}"
        return self.base_url + (f"{inner}/" if inner else "")

    def deb_url(self, filename: str) -> str:
        return self.base_url + filename.removeprefix("./")


@dataclass(frozen=True)
class Wanted:
    """A package asked for by name: the newest allowed, or exactly this Debian version.

    ``repositories`` says from which it may come; empty is from any.
    """

    name: str
    version: str | None = None
    repositories: tuple[str, ...] = ()

    def allows(self, repository: str) -> bool:
        return not self.repositories or repository in self.repositories

    def __str__(self) -> str:
        return f"{self.name}={self.version}" if self.version else self.name


@dataclass(frozen=True)
class Family:
    """Packages that only work together at one version, as driver and fabric manager do.

    ``members`` and ``never`` are names or globs; what matches both is a member. ``version`` is
    the upstream version (``535.129.03``) or a whole Debian version. No package of ``never`` gets
    into the closure. All members must come from one repository; ``repositories`` says from
    which, or that several may mix.
    """

    name: str
    version: str
    members: tuple[str, ...]
    never: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        return _matches(self.members, name)

    def forbids(self, name: str) -> bool:
        return _matches(self.never, name) and not self.has(name)

    def fits(self, version: str) -> bool:
        return version == self.version or Version(version).upstream_version == self.version

    def allows(self, repository: str) -> bool:
        return not self.repositories or repository in self.repositories


@dataclass(frozen=True, order=True)
class Deb:
    """One deb, exactly. ``filename`` is its path below the repository's URL."""

    name: str
    version: str
    architecture: str
    filename: str
    sha256: str
    size: int  # bytes
    repository: str


@dataclass(frozen=True)
class Closure:
    """What an offline host of this OS needs beside its base, sorted by name.

    ``released`` names packages that could not keep the version they were locked at before.
    """

    debs: tuple[Deb, ...]
    released: tuple[str, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        return {deb.name: deb.version for deb in self.debs}

    @property
    def size(self) -> int:
        """Bytes of all debs."""
        return sum(deb.size for deb in self.debs)
