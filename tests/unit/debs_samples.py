"""Archives in memory for resolver tests: no repository, no signature, only stanzas."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from rackpin.debs import Base, Index, Repository
from rackpin.debs.index import Stanza
from rackpin.debs.release import Release
from tests.fixtures_debs_names import Package

LIBC = "Package: libc6\nVersion: 2.36-9\nArchitecture: amd64\nMulti-Arch: same"
BASE = Base(status=f"{LIBC}\nStatus: install ok installed\n")


def stanza(package: Package, repository: str = "nvidia") -> Stanza:
    digest = hashlib.sha256(f"{package}".encode()).hexdigest()
    text = f"{package.control}Filename: ./pool/{package.filename}\nSize: 1000\nSHA256: {digest}"
    return Stanza(text, repository)


def index(*packages: Package, name: str = "nvidia", **fields: str) -> Index:
    """What fetch_index would give for these packages."""
    repository = Repository(name, "http://repo.invalid", "/", accept_unsigned=True)
    release = Release("", datetime(2026, 1, 1, tzinfo=UTC), None, False, dict(fields), {})
    return Index(repository, release, "0" * 64, [stanza(p, name) for p in packages])
