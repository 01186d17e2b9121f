"""Fixtures of several unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.stack import download
from tests.unit.bundle_samples import Site, make_site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A published stack for bundles; no pip, no wheelhouse, no proxy of this machine."""
    monkeypatch.setattr(download, "pip_command", lambda: None)
    monkeypatch.setenv("RACKPIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    found = make_site(tmp_path / "site")
    yield found
    found.down()
