"""Images and models in a bundle: from a registry and a directory, each part proved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackpin.bundle.build import build
from rackpin.bundle.contents import contents
from rackpin.bundle.model import BundleError
from rackpin.bundle.verify import verify
from rackpin.stack.hostpins import ImagePin, ModelPin
from rackpin.stack.items import Image, ModelFile
from rackpin.stack.lock import Stack, load_stack, stack_pins
from rackpin.stack.lock_cli import model_command
from rackpin.stack.model import StackError
from rackpin.stack.models import manifest_of, read_models
from rackpin.stack.registry import resolve_image
from tests.unit import fake_registry
from tests.unit.bundle_samples import Site, make_site
from tests.unit.fake_registry import Registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    with fake_registry.registry() as state:
        yield state


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "tiny"
    (directory / "sub").mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "sub" / "weights.safetensors").write_bytes(b"w" * 1000)
    return directory


def with_both(site: Site, registry: Registry, model: Path) -> Stack:
    """The site's stack with an image of two layers and a model, and no wheels to fetch."""
    registry.image([b"layer one", b"layer two"])
    image = resolve_image(ImagePin(ref=f"{registry.address}/site/base:1"), None, update=False)
    files = [ModelFile(**row) for row in json.loads(manifest_of(model))["files"]]
    lock = site.stack.lock.but(images={"base": image}, models={"tiny": files})
    return Stack(site.stack.pins, lock)


def test_an_image_becomes_an_oci_layout_and_a_model_its_files(
    tmp_path: Path, registry: Registry, model: Path
) -> None:
    site = make_site(tmp_path / "site")
    stack = with_both(site, registry, model)
    wanted = contents(stack, models={"tiny": model})
    assert wanted.unresolved == {}
    out = tmp_path / "bundle"
    manifest = build(stack, wanted, out, **site.options())
    site.down()
    index = json.loads((out / "images/base/index.json").read_text())
    (top,) = index["manifests"]
    blobs = out / "images/base/blobs/sha256"
    inner = json.loads((blobs / top["digest"].removeprefix("sha256:")).read_text())
    layers = [(blobs / part["digest"].removeprefix("sha256:")) for part in inner["layers"]]
    assert [layer.read_bytes() for layer in layers] == [b"layer one", b"layer two"]
    assert (out / "models/tiny/sub/weights.safetensors").read_bytes() == b"w" * 1000
    assert verify(out, manifest, wanted.items) == []
    layers[0].write_bytes(b"layer 0ne")
    (problem,) = verify(out, manifest, wanted.items)
    assert problem.kind == "damaged" and layers[0].name in problem.path


def test_a_layer_that_is_not_the_locked_one_is_refused(
    tmp_path: Path, registry: Registry, model: Path
) -> None:
    site = make_site(tmp_path / "site")
    stack = with_both(site, registry, model)
    image = stack.lock.images["base"]
    assert isinstance(image, Image)
    registry.contents[image.parts[-1].digest] = b"layer tw0"
    with pytest.raises(BundleError, match="refused: expected sha256"):
        build(stack, contents(stack, models={"tiny": model}), tmp_path / "bundle", **site.options())
    site.down()
    assert not (tmp_path / "bundle/manifest.json").exists()


def test_what_has_no_place_is_unresolved(tmp_path: Path, registry: Registry, model: Path) -> None:
    site = make_site(tmp_path / "site")
    site.down()
    stack = with_both(site, registry, model)
    bare = Image(ref="debian:12", digest="sha256:" + "1" * 64)
    found = contents(Stack(stack.pins, stack.lock.but(images={"base": bare}))).unresolved
    assert "only its digest is known" in found["images.base"]
    assert "give --model tiny=DIRECTORY" in found["models.tiny"]


def test_a_model_is_pinned_by_a_manifest(tmp_path: Path, model: Path) -> None:
    said = CliRunner().invoke(model_command, [str(model), "--url", "https://hub.example/tiny/"])
    assert said.exit_code == 0
    pins = stack_pins("cpu-lab").model_copy(
        update={"models": {"tiny": ModelPin(manifest="models/tiny.json")}}
    )
    file = tmp_path / "cpu-lab/models/tiny.json"
    with pytest.raises(StackError, match="run: rackpin model DIRECTORY >"):
        read_models(pins, tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text(said.stdout)
    config, weights = read_models(pins, tmp_path)["tiny"]
    assert (config.path, weights.path) == ("config.json", "sub/weights.safetensors")
    assert weights.url == "https://hub.example/tiny/sub/weights.safetensors"
    file.write_text(said.stdout.replace("sub/weights", "../weights"))
    with pytest.raises(StackError, match="path"):
        read_models(pins, tmp_path)


def test_shipped_locks_name_parts_only_where_a_digest_is_known() -> None:
    for image in load_stack("cpu-lab").lock.images.values():
        assert not isinstance(image, Image) or image.parts
