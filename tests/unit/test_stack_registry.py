"""Digests of images and hashes of archives, asked of a small registry on this machine."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rackpin.stack import archives
from rackpin.stack.hostpins import ImagePin, SourcePin
from rackpin.stack.items import Image, Source, Unresolved
from rackpin.stack.registry import resolve_image, split_ref

DIGEST = "sha256:" + "1" * 64
COMMIT = "a" * 40


@dataclass
class Registry:
    """What it answers, and what it was asked."""

    address: str = ""
    login: bool = True
    status: int = 200
    digest: str = DIGEST
    realm: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture
def registry() -> Iterator[Registry]:
    state = Registry()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            state.asked.append((self.command, self.path))

        def do_GET(self) -> None:
            body = b'{"token": "t0ken"}' if self.path.startswith("/token") else b"archive"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self) -> None:
            known = self.headers.get("Authorization") == "Bearer t0ken"
            self.send_response(401 if state.login and not known else state.status)
            realm = state.realm or f"http://{state.address}/token"
            self.send_header("WWW-Authenticate", f'Bearer realm="{realm}",scope="pull"')
            if state.digest:
                self.send_header("Docker-Content-Digest", state.digest)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.address = f"127.0.0.1:{server.server_address[1]}"
    yield state
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("ref", "parts"),
    [
        ("ubuntu:22.04", ("registry-1.docker.io", "library/ubuntu", "22.04")),
        ("debian", ("registry-1.docker.io", "library/debian", "latest")),
        ("nvidia/cuda:12.2.2-base", ("registry-1.docker.io", "nvidia/cuda", "12.2.2-base")),
        ("nvcr.io/nvidia/cuda:1", ("nvcr.io", "nvidia/cuda", "1")),
        ("localhost:5000/a/b", ("localhost:5000", "a/b", "latest")),
    ],
)
def test_references_are_read_as_docker_does(ref: str, parts: tuple[str, str, str]) -> None:
    assert split_ref(ref) == parts
    assert ImagePin(ref=ref).ref == ref


@pytest.mark.parametrize("login", [True, False])
def test_a_tag_becomes_a_digest(registry: Registry, login: bool) -> None:
    registry.login = login
    pin = ImagePin(ref=f"{registry.address}/site/base:1")
    found = resolve_image(pin, None, update=False)
    assert isinstance(found, Image) and found.digest == DIGEST
    assert found.pull == f"{registry.address}/site/base@{DIGEST}"
    assert registry.asked[0] == ("HEAD", "/v2/site/base/manifests/1")


def test_a_locked_digest_stays_until_it_may_move(registry: Registry) -> None:
    pin = ImagePin(ref=f"{registry.address}/site/base:1")
    old = Image(ref=pin.ref, digest="sha256:" + "2" * 64)
    assert resolve_image(pin, old, update=False) is old
    assert registry.asked == [], "nobody is asked for what is known"
    moved = resolve_image(pin, old, update=True)
    assert isinstance(moved, Image) and moved.digest == DIGEST
    other = ImagePin(ref=f"{registry.address}/site/base:2")
    assert resolve_image(other, old, update=False) != old


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"status": 404}, "answered 404 for site/base:1"),
        ({"digest": ""}, "gave no digest"),
        ({"digest": "sha256:short"}, "gave no digest"),
        ({"realm": "http://evil.example/token"}, "asks for a login at http://evil.example/token"),
    ],
)
def test_what_is_not_had_says_why(registry: Registry, change: dict[str, object], told: str) -> None:
    for name, value in change.items():
        setattr(registry, name, value)
    found = resolve_image(ImagePin(ref=f"{registry.address}/site/base:1"), None, update=False)
    assert isinstance(found, Unresolved) and told in found.unresolved.reason
    assert found.wanted.endswith("/site/base:1")


def test_an_unreachable_registry_is_a_reason_and_loses_nothing() -> None:
    pin = ImagePin(ref="127.0.0.1:9/site/base:1")
    found = resolve_image(pin, None, update=False)
    assert isinstance(found, Unresolved)
    assert found.unresolved.reason == (
        "registry 127.0.0.1:9 could not be reached when this was locked"
    )
    old = Image(ref=pin.ref, digest=DIGEST)
    assert resolve_image(pin, old, update=True) is old


def test_an_archive_without_a_hash_is_fetched_once(registry: Registry) -> None:
    pin = SourcePin.model_construct(
        version="1.0", commit=COMMIT, sha256=None, size=None,
        url=f"http://{registry.address}/a.tar.gz",
    )  # fmt: skip
    found = archives.resolve_source("nccl-tests", pin, None)
    assert isinstance(found, Source)
    assert (found.sha256, found.size) == (hashlib.sha256(b"archive").hexdigest(), 7)
    registry.asked.clear()
    assert archives.resolve_source("nccl-tests", pin, found) == found
    assert registry.asked == []
    nowhere = pin.model_copy(update={"url": "http://127.0.0.1:9/a.tar.gz"})
    lost = archives.resolve_source("nccl-tests", nowhere, found)
    assert isinstance(lost, Unresolved)
    assert lost.unresolved.reason == "127.0.0.1 could not be reached when this was locked"


def test_an_absurd_archive_is_not_taken(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "LARGEST", 3)
    pin = SourcePin.model_construct(
        version="1.0", commit=COMMIT, sha256=None, size=None,
        url=f"http://{registry.address}/a.tar.gz",
    )  # fmt: skip
    found = archives.resolve_source("gdrcopy", pin, None)
    assert isinstance(found, Unresolved) and "more than 3 bytes" in found.unresolved.reason
