"""Debian packages, locked whole: signed indices in, every deb of a stack with its sha256 out.

``fetch_index`` reads a repository and proves its signature; ``resolve`` asks apt itself, in a
root of its own, which packages belong together, and proves its answer against the indices.
"""

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
