"""Bundles: whole or not there, resumed after anything, and nothing wrong under a right name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from rackpin.bundle import store as bundle_store
from rackpin.bundle.build import build
from rackpin.bundle.model import MANIFEST, BundleError, Item, Manifest, read_manifest
from rackpin.bundle.store import Store
from rackpin.bundle.verify import verify
from rackpin.stack.pins import LocalWheel
from rackpin.stack.wheelfile import sha256_of
from tests.fixtures_debs import flip, shared_key
from tests.unit.bundle_samples import APT, FILE, PACKAGES, Site
from tests.unit.test_stack_wheelhouse import locked, make_stack

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("dpkg-scanpackages")), reason="needs gpg, dpkg-dev"
)
ALPHA = "wheelhouse/alpha-1.0-py3-none-any.whl"
BETA = "wheelhouse/beta-1.0-py3-none-any.whl"
DEB = f"{APT.path}/pool/{PACKAGES[0].filename}"


def make(site: Site, out: Path, **options: object) -> Manifest:
    return build(site.stack, site.contents, out, **site.options(), **options)  # type: ignore[arg-type]


def refused(site: Site, out: Path, **options: object) -> str:
    with pytest.raises(BundleError) as caught:
        make(site, out, **options)
    assert not (out / MANIFEST).exists()
    return str(caught.value)


def all_right(site: Site, out: Path) -> None:
    """Whatever lies under a final name is as locked."""
    for item in site.contents.items:
        if (out / item.path).exists():
            assert sha256_of(out / item.path) == item.sha256, item.path


def test_everything_of_the_lock_is_in_it_and_proved(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = make(site, out)
    paths = {item.path for item in site.contents.items}
    indices = {f"{APT.path}/{name}" for name in ("Packages", "Packages.gz", "Release")}
    assert set(manifest.entries) == paths | indices
    assert manifest == read_manifest(out)
    assert verify(out, manifest, site.contents.items) == []
    assert not (out / ".parts").exists()
    assert all(oct((out / path).stat().st_mode)[-3:] == "644" for path in manifest.entries)


def test_a_second_run_fetches_and_writes_nothing(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = make(site, out)
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    asked = len(site.asked)
    assert make(site, out) == first
    after = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    before.pop(out / ".lock", None)
    after.pop(out / ".lock", None)
    assert after == before and len(site.asked) == asked
    assert "nothing to do" in site.said[-1]


@pytest.mark.parametrize("path", [ALPHA, DEB, FILE])
def test_a_flipped_byte_at_the_source_is_refused_and_named(
    site: Site, tmp_path: Path, path: str
) -> None:
    out = tmp_path / "out"
    flip(site.file(path))
    text = refused(site, out)
    expected = next(item.sha256 for item in site.contents.items if item.path == path)
    for words in ("1 of 7 file(s)", path, f"expected sha256 {expected}", "found", site.url):
        assert words in text
    assert not (out / path).exists()
    all_right(site, out)
    flip(site.file(path))  # mended there
    site.asked.clear()
    make(site, out)
    assert [asked for asked, _ in site.asked] == [f"/{site.file(path).relative_to(site.root)}"]


@pytest.mark.parametrize("spoil", [lambda c: c[:-1], lambda c: c + b"x", lambda c: b""])
def test_a_file_of_another_length_is_refused(
    site: Site, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    file = site.file(BETA)
    file.write_bytes(spoil(file.read_bytes()))
    assert "beta-1.0" in refused(site, tmp_path / "out")


def test_a_file_damaged_on_disk_is_replaced_though_size_and_time_are_the_same(
    site: Site, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    make(site, out)
    flip(out / DEB)
    make(site, out)
    assert f"replacing a damaged file: {DEB}" in site.said
    assert verify(out, read_manifest(out), site.contents.items) == []


def test_a_damaged_index_is_made_anew(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(site, out)
    flip(out / APT.path / "Packages.gz")
    make(site, out)
    assert verify(out, read_manifest(out)) == []


def test_a_part_is_gone_on_from(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "out"
    item = next(item for item in site.contents.items if item.path == BETA)
    (out / ".parts").mkdir(parents=True)
    Store(out).part(item).write_bytes(site.file(BETA).read_bytes()[:1500])
    make(site, out)
    assert (f"/{site.file(BETA).relative_to(site.root)}", "bytes=1500-") in site.asked


@pytest.mark.parametrize("ranges", [True, False])
def test_a_part_of_something_else_does_no_harm(site: Site, tmp_path: Path, ranges: bool) -> None:
    out = tmp_path / "out"
    site.ranges = ranges
    item = next(item for item in site.contents.items if item.path == BETA)
    (out / ".parts").mkdir(parents=True)
    Store(out).part(item).write_bytes(b"other" * 100)
    (out / ".parts" / "of-another-lock").write_bytes(b"old")
    make(site, out)
    assert verify(out, read_manifest(out), site.contents.items) == []


def test_a_mirror_that_is_down_is_said_once_and_resumed(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "out"
    site.status = {f"/{site.file(BETA).relative_to(site.root)}": 503}
    assert "503" in refused(site, out)
    site.down()
    for path in (ALPHA, DEB):
        (out / path).unlink()
    text = refused(site, out)
    host = site.url.removeprefix("http://")
    assert text.count(host) == 1 and "can't be reached" in text and "3 of 3 file(s)" in text
    assert "run again: what was fetched is kept" in text
    site.status = {}
    site.up()
    make(site, out)


def test_what_the_mirror_no_longer_has_is_named_with_its_address(
    site: Site, tmp_path: Path
) -> None:
    site.file(DEB).unlink()
    text = refused(site, tmp_path / "out")
    assert f"{DEB}: {site.url}/debs/pool/" in text and "404" in text


def test_a_second_address_is_tried(site: Site, tmp_path: Path) -> None:
    dead = "http://127.0.0.1:1/gone"
    items = tuple(replace(i, urls=(dead, *i.urls)) for i in site.contents.items)
    site.contents = replace(site.contents, items=items)
    make(site, tmp_path / "out")


def test_a_full_disk_is_said_before_the_first_byte(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(bundle_store.shutil, "disk_usage", lambda path: usage)
    text = refused(site, out)
    assert "no space left" in text and "1 MB are free" in text and "run again" in text
    assert not site.asked


def test_a_disk_that_fills_up_on_the_way_ends_it_with_one_error(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    real = bundle_store.Store.adopt

    def adopt(self: bundle_store.Store, found: Path, item: Item) -> str:
        if item.path == BETA:
            raise OSError(28, "No space left on device", str(found))
        return real(self, found, item)

    monkeypatch.setattr(bundle_store.Store, "adopt", adopt)
    assert refused(site, out, jobs=1).count("no space left") == 1
    monkeypatch.undo()
    all_right(site, out)


def test_other_directories_are_not_taken_for_a_bundle(site: Site, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    assert "thesis.txt" in refused(site, home)
    assert "can be written" in refused(site, Path("/proc/out"))
    (tmp_path / "plain").write_text("a file")
    assert "can be written" in str(refused(site, tmp_path / "plain" / "out"))


def test_a_link_under_a_final_name_is_replaced_and_its_target_left(
    site: Site, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    make(site, out)
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (out / DEB).unlink()
    (out / DEB).symlink_to(outside)
    make(site, out)
    assert outside.read_text() == "mine" and not (out / DEB).is_symlink()


def test_two_builds_of_one_bundle_do_not_mix(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackpin.bundle.build.LOCK_WAIT_S", 0.1)
    out = tmp_path / "out"
    out.mkdir()
    with FileLock(out / ".lock"):
        assert "another rackpin bundle is at work" in refused(site, out)


def test_a_newer_lock_takes_the_place_of_the_older(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(site, out)
    fewer = tuple(item for item in site.contents.items if item.path not in (DEB, ALPHA))
    site.contents = replace(site.contents, items=fewer, lock_digest="f" * 64)
    manifest = make(site, out)
    assert not (out / DEB).exists() and DEB not in manifest.entries
    assert PACKAGES[0].version not in (out / APT.path / "Packages").read_text().split("\n\n")[0]
    assert verify(out, manifest, fewer) == []
    assert any(line.startswith("removed 2 file(s)") for line in site.said)


def test_signed_by_the_site_and_signed_again_only_when_it_changed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = shared_key()
    monkeypatch.setenv("GNUPGHOME", str(key.home))
    out = tmp_path / "out"
    spaced = " ".join(key.fingerprint[i : i + 4].lower() for i in range(0, 40, 4))
    manifest = make(site, out, sign_key=spaced)
    assert manifest.signed_by == key.fingerprint
    assert {"keys/site.asc", f"{APT.path}/InRelease"} <= set(manifest.entries)
    assert verify(out, manifest) == []
    first = (out / APT.path / "InRelease").read_bytes()
    (out / MANIFEST).unlink()
    make(site, out, sign_key=key.fingerprint)
    assert (out / APT.path / "InRelease").read_bytes() == first
    unsigned = make(site, out)
    assert unsigned.signed_by is None and not (out / APT.path / "InRelease").exists()
    assert not (out / "keys").exists()


def test_a_key_that_cannot_sign_is_said(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNUPGHOME", str(shared_key().home))
    assert "write the whole fingerprint" in refused(site, tmp_path / "a", sign_key="DEADBEEF")
    assert "gpg has no such key" in refused(site, tmp_path / "b", sign_key="A" * 40)


def test_wheels_come_from_this_machines_wheelhouse_when_they_are_right(
    site: Site, tmp_path: Path
) -> None:
    house = tmp_path / "cache/wheelhouse"
    house.mkdir(parents=True)
    for path in (ALPHA, BETA):
        shutil.copy(site.file(path), house)
    flip(house / Path(BETA).name)
    make(site, tmp_path / "out")
    asked = [path for path, _ in site.asked]
    assert not any("alpha" in path for path in asked) and any("beta" in path for path in asked)


BUILDER = """\
import pathlib, sys
(pathlib.Path(sys.argv[1]) / "own-1.0-py3-none-any.whl").write_bytes(b"own" * 1000)
"""


def test_wheels_of_this_repository_are_built_and_proved(site: Site, tmp_path: Path) -> None:
    (site.root / "build.py").write_text(BUILDER)
    local = LocalWheel(name="own", version="1.0", builder="build.py")
    own = locked("own", b"own" * 1000, None).model_copy(update={"builder": "build.py"})
    stack = make_stack(site.root / "st", "site-stack", *site.stack.lock.files, own, local=(local,))
    item = Item("wheelhouse/own-1.0-py3-none-any.whl", own.sha256, own.size, (), "wheel")
    site.stack = stack
    site.contents = replace(site.contents, items=(*site.contents.items, item), lock=stack.lock)
    make(site, tmp_path / "out")
    assert (tmp_path / "out" / item.path).read_bytes() == b"own" * 1000
    (site.root / "build.py").write_text(BUILDER.replace('own" *', 'new" *'))
    text = refused(site, tmp_path / "other")
    assert "has build.py changed?" in text and text.count("own-1.0") >= 1


def test_the_environment_of_a_build_may_be_umask_077(site: Site, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        manifest = make(site, tmp_path / "out")
    finally:
        os.umask(old)
    out = tmp_path / "out"
    files = [out / path for path in manifest.entries]
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in files)
    assert all(
        f.stat().st_mode & 0o055 == 0o055
        for file in files
        for f in file.parents
        if f == out or out in f.parents
    )
