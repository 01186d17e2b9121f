"""Driver families as data: ``rackpin/data/deb-families.yaml``."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import yaml

from rackpin.debs.model import DebError, Family

FILE = Path(__file__).resolve().parents[1] / "data" / "deb-families.yaml"


@lru_cache(maxsize=8)
def _table(file: Path) -> dict[str, dict[str, list[str]]]:
    """Read once a process: each node of a fleet asks several times."""
    table: dict[str, dict[str, list[str]]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return table


def family_names(file: Path = FILE) -> list[str]:
    return sorted(_table(file))


def load_family(
    name: str, version: str, repositories: tuple[str, ...] = (), file: Path = FILE
) -> Family:
    """A family of the table at one version; ``{branch}`` is its first number (535)."""
    table = _table(file)
    if name not in table:
        known = ", ".join(sorted(table))
        raise DebError(f"{file.name}: no family {name!r}; known: {known}")
    branch = version.partition(":")[2] or version
    branch = branch.partition(".")[0]
    if not branch.isdecimal():
        raise DebError(f"family {name}: version {version!r} starts with no branch number")

    def patterns(key: str) -> tuple[str, ...]:
        return tuple(text.replace("{branch}", branch) for text in table[name].get(key, []))

    return Family(name, version, patterns("members"), patterns("never"), repositories)
