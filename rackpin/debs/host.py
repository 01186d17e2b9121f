"""A host's packages as pinned, resolved for one OS: what ``rackpin lock`` asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rackpin.debs.families import load_family
from rackpin.debs.model import Closure, Deb, Wanted
from rackpin.debs.sources import repositories

if TYPE_CHECKING:
    from rackpin.debs.base import Base
    from rackpin.debs.transport import Transport


@dataclass(frozen=True)
class Asked:
    """A package by name; ``origin`` is a key of the table of repositories (``os``, ``nvidia``)."""

    name: str
    version: str | None = None
    origin: str = "os"


@dataclass(frozen=True)
class Driver:
    """The driver's version, and whose packages: ``os`` or ``nvidia``."""

    version: str
    origin: str = "nvidia"

    def family_name(self, os_key: str) -> str:
        if self.origin == "os" and os_key.startswith("debian"):
            return "nvidia-debian"
        unnumbered = self.origin == "nvidia" and int(self.version.partition(".")[0]) >= 590
        return "nvidia-unnumbered" if unnumbered else "nvidia"


def resolve_host(
    os_key: str,
    asked: Sequence[Asked],
    driver: Driver | None = None,
    *,
    keep: Iterable[Deb] = (),
    base: Base | None = None,
    mirrors: Mapping[str, str] | None = None,
    keys: Path | None = None,
    cache: Path | None = None,
    transport: Transport | None = None,
    label: str = "",
) -> Closure:
    """The closure of a host's packages for an OS such as ``debian-12``.

    Only the origins that something is asked from are fetched. Raises :class:`Unreachable` when
    a repository does not answer, :class:`DebError` for everything else.
    """
    # late: only who locks needs them, and every run over a fleet loads this module
    from rackpin.debs.closure import resolve
    from rackpin.debs.indices import fetch_indices

    wanted_origins = {item.origin for item in asked} | {"os"}
    if driver:
        wanted_origins.add(driver.origin)
    by_origin = {
        origin: repositories(os_key, (origin,), None, keys) for origin in sorted(wanted_origins)
    }
    names = {origin: tuple(r.name for r in found) for origin, found in by_origin.items()}
    sources = repositories(os_key, tuple(wanted_origins), mirrors, keys)
    indices = fetch_indices(sources, cache, transport)
    wanted = [Wanted(item.name, item.version, names[item.origin]) for item in asked]
    families = []
    if driver:
        families = [load_family(driver.family_name(os_key), driver.version, names[driver.origin])]
    return resolve(indices, wanted, families, base, keep, label or os_key)
