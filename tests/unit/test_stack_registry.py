"""Digests of images and hashes of archives, asked of a small registry on this machine."""

import hashlib
from collections.abc import Iterator

import pytest

from rackpin.stack import archives
from rackpin.stack.hostpins import ImagePin, SourcePin
from rackpin.stack.items import Image, Source, Unresolved
from rackpin.stack.model import StackError
from rackpin.stack.registry import part_url, resolve_image, split_ref
from tests.unit import fake_registry
from tests.unit.fake_registry import DIGEST, MANIFEST, Registry

COMMIT = "a" * 40


@pytest.fixture
def registry() -> Iterator[Registry]:
    with fake_registry.registry() as state:
        yield state


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
    asked = {path for _, path in registry.asked if "/v2/" in path}
    assert asked == {f"/v2/site/base/manifests/{old.digest}"}, "not the tag, only its parts"
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


def test_an_images_parts_are_locked_manifest_first(registry: Registry) -> None:
    digest = registry.image([b"one", b"two", b"one"])
    found = resolve_image(ImagePin(ref=f"{registry.address}/site/base:1"), None, update=False)
    assert isinstance(found, Image) and found.digest == digest
    assert [registry.contents[part.digest][:3] for part in found.parts[1:]] == [
        b"{}",
        b"one",
        b"two",
    ]
    assert found.parts[0].media_type == MANIFEST
    assert part_url(found.ref, DIGEST, manifest=False).endswith(f"/v2/site/base/blobs/{DIGEST}")
    registry.asked.clear()
    assert resolve_image(ImagePin(ref=found.ref), found, update=False) is found
    assert registry.asked == []


def test_parts_that_were_not_to_be_had_are_asked_again(registry: Registry) -> None:
    digest = registry.image([b"one"])
    bare = Image(ref=f"{registry.address}/site/base:1", digest=digest)
    found = resolve_image(ImagePin(ref=bare.ref), bare, update=False)
    assert isinstance(found, Image) and len(found.parts) == 3


def test_a_registry_that_gives_something_else_is_refused(registry: Registry) -> None:
    digest = registry.image([b"one"])
    registry.contents[digest] += b" "
    with pytest.raises(StackError, match=f"asked for {digest}, got sha256:"):
        resolve_image(ImagePin(ref=f"{registry.address}/site/base:1"), None, update=False)


def test_an_image_for_other_machines_is_refused(registry: Registry) -> None:
    registry.image([b"one"], platform="arm64")
    with pytest.raises(StackError, match="nothing for linux/amd64"):
        resolve_image(ImagePin(ref=f"{registry.address}/site/base:1"), None, update=False)
