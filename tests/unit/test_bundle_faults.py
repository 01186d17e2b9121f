"""Bundles under kill -9, on a disk that is really full, and behind a proxy."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import pytest

from rackpin.bundle.model import MANIFEST, BundleError, read_manifest
from rackpin.bundle.verify import verify
from rackpin.debs.transport import apt_proxies
from rackpin.stack.wheelfile import sha256_of
from tests.unit.bundle_samples import Site, make_site

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-scanpackages"), reason="needs dpkg-dev")
DRIVER = """\
import pickle, sys
from pathlib import Path
from rackpin.bundle import store
from rackpin.bundle.build import build
from rackpin.bundle.model import BundleError
from rackpin.stack import download
download.pip_command = lambda: None
store.SPARE = 0
stack, contents, root = pickle.loads(Path(sys.argv[1]).read_bytes())
try:
    build(stack, contents, Path(sys.argv[2]), root=root, sleep=lambda seconds: None)
except BundleError as error:
    sys.exit(str(error))
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("RACKPIN_CACHE", str(tmp_path / "cache"))
    found = make_site(tmp_path / "site", big=6_000_000)
    yield found
    found.down()


def command(site: Site, out: Path) -> list[str]:
    given = site.root / "given.pickle"
    given.write_bytes(pickle.dumps((site.stack, site.contents, site.root / "st")))
    return [sys.executable, "-c", DRIVER, str(given), str(out)]


def check_nothing_half(site: Site, out: Path) -> None:
    for item in site.contents.items:
        if (out / item.path).exists():
            assert sha256_of(out / item.path) == item.sha256, item.path
    if (out / MANIFEST).exists():
        assert verify(out, read_manifest(out), site.contents.items) == []


@pytest.mark.parametrize("kills", [5, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_killed_at_any_moment_nothing_half_is_taken_for_whole(
    large: Site, tmp_path: Path, kills: int
) -> None:
    out = tmp_path / "out"
    words = command(large, out)
    chance = random.Random(7)
    kept = 0
    for number in range(kills):
        large.pause = 0.01
        asked = len(large.asked)
        process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while len(large.asked) == asked and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.4) if number % 3 else chance.uniform(0.5, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        check_nothing_half(large, out)
        kept = max(kept, sum(p.stat().st_size for p in out.rglob("*") if p.is_file()))
    large.pause = 0
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert verify(out, read_manifest(out), large.contents.items) == []
    assert not (out / ".parts").exists() and kept > 1_000_000
    assert any(wanted.startswith("bytes=") for _, wanted in large.asked)  # it went on, not anew


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small filesystem: needs root")
def test_a_disk_that_is_really_full_is_said_and_resumed(large: Site, tmp_path: Path) -> None:
    # Without sizes in the lock nothing can be said beforehand.
    items = tuple(replace(item, size=None) for item in large.contents.items)
    large.contents = replace(large.contents, items=items)
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=3m none "$1" || exit 77; shift; exec "$@"'
    words = ["unshare", "-m", "sh", "-c", script, "sh", str(disk), *command(large, disk / "out")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("no filesystem can be mounted here")
    assert done.returncode == 1
    assert done.stderr.count("no space left") == 1, done.stderr
    assert "then run again: what was fetched is kept" in done.stderr
    assert "Traceback" not in done.stderr


class Proxy(BaseHTTPRequestHandler):
    """A proxy that fetches what it is asked for and notes it."""

    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        port = urlsplit(self.path).path
        direct = build_opener(ProxyHandler({}))
        place = f"{self.server.target}{port}"  # type: ignore[attr-defined]
        with direct.open(place, timeout=10) as answer:
            content = answer.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_a_proxy_is_used_and_a_dead_one_is_said(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.test_bundle_build import make, refused

    items = tuple(
        replace(item, urls=(item.urls[0].replace(site.url, "http://vendor.invalid"),))
        for item in site.contents.items
    )
    site.contents = replace(site.contents, items=items)
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    text = refused(site, tmp_path / "out")
    assert text.count("vendor.invalid: can't be reached") == 1
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.target = site.url  # type: ignore[attr-defined]
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_port}")
        make(site, tmp_path / "out")
        proxy.shutdown()
    assert len(Proxy.asked) == 7 and all("vendor.invalid" in path for path in Proxy.asked)


def test_the_proxy_that_apt_knows_is_used_where_the_environment_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "apt-config"
    lines = {"Acquire::http::Proxy": "http://p.site:3128", "Acquire::https::Proxy": "DIRECT"}
    text = "\n".join(f'{key} "{value}";' for key, value in lines.items())
    fake.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert apt_proxies() == {"http": "http://p.site:3128"}
    monkeypatch.setenv("http_proxy", "http://other:1")
    assert apt_proxies() == {}


def test_an_interrupted_manifest_write_leaves_no_manifest(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.test_bundle_build import make

    out = tmp_path / "out"
    make(site, out)
    fewer = tuple(item for item in site.contents.items if item.kind != "file")
    site.contents = replace(site.contents, items=fewer, lock_digest="e" * 64)
    monkeypatch.setattr("rackpin.bundle.build._prune", lambda *a: (_ for _ in ()).throw(OSError(5)))
    with pytest.raises(BundleError):
        make(site, out)
    with pytest.raises(BundleError, match="isn't finished"):
        read_manifest(out)
    monkeypatch.undo()
    monkeypatch.setattr("rackpin.stack.download.pip_command", lambda: None)
    make(site, out)
    assert json.loads((out / MANIFEST).read_text())["lock_digest"] == "e" * 64
