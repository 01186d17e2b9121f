"""Debian packages, locked whole: signed indices in, every deb of a stack with its sha256 out.

``fetch_index`` reads a repository and proves its signature; ``resolve`` asks apt itself, in a
root of its own, which packages belong together, and proves its answer against the indices.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackpin.debs.base import Base
    from rackpin.debs.closure import resolve
    from rackpin.debs.families import load_family
    from rackpin.debs.host import Asked, Driver, resolve_host
    from rackpin.debs.indices import fetch_indices
    from rackpin.debs.model import (
        Closure,
        Deb,
        DebError,
        Family,
        Refused,
        Repository,
        Unreachable,
        Wanted,
    )
    from rackpin.debs.repository import Index, fetch_index
    from rackpin.debs.sources import repositories

# Loaded when asked for: a run over a fleet needs the tables of families and repositories, and not
# the reader of indices with its HTTP client.
_MODULES = {
    "Asked": "host",
    "Base": "base",
    "Closure": "model",
    "Deb": "model",
    "DebError": "model",
    "Driver": "host",
    "Family": "model",
    "Index": "repository",
    "Refused": "model",
    "Repository": "model",
    "Unreachable": "model",
    "Wanted": "model",
    "fetch_index": "repository",
    "fetch_indices": "indices",
    "load_family": "families",
    "repositories": "sources",
    "resolve": "closure",
    "resolve_host": "host",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "Asked",
    "Base",
    "Closure",
    "Deb",
    "DebError",
    "Driver",
    "Family",
    "Index",
    "Refused",
    "Repository",
    "Unreachable",
    "Wanted",
    "fetch_index",
    "fetch_indices",
    "load_family",
    "repositories",
    "resolve",
    "resolve_host",
]
