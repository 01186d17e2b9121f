"""Which repositories an OS has, as data: ``rackpin/data/deb-repositories.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from rackpin.debs.model import DebError, Repository

DATA = Path(__file__).resolve().parents[1] / "data"
FILE = DATA / "deb-repositories.yaml"
KEYS = DATA / "keys"


def origins(os_key: str, file: Path = FILE) -> list[str]:
    """Origins that the table has for an OS: ``os``, ``nvidia``; :class:`DebError` if unknown."""
    return sorted(_row(os_key, file))


@lru_cache(maxsize=8)
def _table(file: Path) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Read once a process: each node of a fleet asks several times."""
    table: dict[str, dict[str, list[dict[str, Any]]]] = yaml.safe_load(
        file.read_text(encoding="utf-8")
    )
    return table


def _row(os_key: str, file: Path) -> dict[str, list[dict[str, Any]]]:
    table = _table(file)
    if os_key not in table:
        raise DebError(f"{file.name}: no repositories for {os_key}; known: {', '.join(table)}")
    return table[os_key]


def repositories(
    os_key: str,
    wanted: tuple[str, ...] = ("os",),
    mirrors: Mapping[str, str] | None = None,
    keys: Path | None = None,
    file: Path = FILE,
) -> list[Repository]:
    """The repositories of these origins for an OS (``debian-12``), the OS's own first.

    ``mirrors`` are a site's addresses by the name of a repository; its key stays the same.
    ``keys`` is a directory of key files that is looked into before rackpin's own.
    """
    row = _row(os_key, file)
    found: list[Repository] = []
    for origin in sorted(wanted, key=lambda name: (name != "os", name)):
        if origin not in row:
            known = ", ".join(sorted(row))
            raise DebError(f"{file.name}: {os_key} has no repository for {origin}; known: {known}")
        found += [_repository(entry, mirrors or {}, keys) for entry in row[origin]]
    names = {entry["name"] for entries in row.values() for entry in entries}
    for name in sorted(set(mirrors or {}) - names):
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(names))}"
        raise DebError(f"mirrors: {os_key} has no repository {name!r}; {hint}")
    return found


def _repository(entry: dict[str, Any], mirrors: Mapping[str, str], keys: Path | None) -> Repository:
    places = [directory / entry["key"] for directory in (keys, KEYS) if directory]
    return Repository(
        name=entry["name"],
        url=entry["url"],
        suite=entry["suite"],
        components=tuple(entry.get("components", ())),
        key=next((place for place in places if place.is_file()), places[-1]),
        fingerprints=tuple(entry["fingerprints"]),
        fetch_from=mirrors.get(entry["name"]),
    )
