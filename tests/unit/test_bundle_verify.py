"""Every byte of a bundle counts, and the one that changed is named."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rackpin.bundle.build import build
from rackpin.bundle.cli import bundle_command
from rackpin.bundle.model import MANIFEST, BundleError, Entry, Manifest, check_path, read_manifest
from rackpin.bundle.verify import verify
from rackpin.cli import main
from tests.fixtures_debs import flip, shared_key
from tests.unit.bundle_samples import APT, FILE, PACKAGES, Site

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("dpkg-scanpackages")), reason="needs gpg, dpkg-dev"
)
DEB = f"{APT.path}/pool/{PACKAGES[0].filename}"


@pytest.fixture
def bundle(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished, signed bundle."""
    key = shared_key()
    monkeypatch.setenv("GNUPGHOME", str(key.home))
    out = tmp_path / "bundle"
    build(site.stack, site.contents, out, sign_key=key.fingerprint, **site.options())
    return out


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["bundle", *words])


def test_a_flipped_byte_in_any_file_is_named_and_nothing_else_is(bundle: Path) -> None:
    assert run("verify", str(bundle)).exit_code == 0
    manifest = read_manifest(bundle)
    assert {entry.kind for entry in manifest.files} == {"wheel", "deb", "file", "index", "key"}
    for entry in manifest.files:
        flip(bundle / entry.path)
        done = run("verify", str(bundle))
        flip(bundle / entry.path)
        lines = done.stdout.splitlines()
        assert done.exit_code == 1
        assert lines[0].startswith(f"{entry.path}: damaged: expected sha256 {entry.sha256}")
        assert len(lines) == 1
    assert run("verify", str(bundle)).exit_code == 0


def test_a_flipped_byte_anywhere_in_the_manifest_is_noticed(bundle: Path) -> None:
    size = (bundle / MANIFEST).stat().st_size
    for offset in [*range(0, size, 37), size - 1]:
        flip(bundle / MANIFEST, offset)
        with pytest.raises(BundleError, match="damaged or changed"):
            read_manifest(bundle)
        flip(bundle / MANIFEST, offset)
    flip(bundle / MANIFEST)
    done = run("verify", str(bundle))
    assert done.exit_code == 1 and "manifest.json: damaged" in done.stderr


def test_what_is_missing_extra_or_no_plain_file_is_named(bundle: Path, tmp_path: Path) -> None:
    (bundle / DEB).unlink()
    (bundle / FILE).unlink()
    (bundle / FILE).symlink_to(tmp_path)
    (bundle / "wheelhouse/extra-1.0-py3-none-any.whl").write_bytes(b"x")
    (bundle / ".hidden").write_bytes(b"x")
    done = run("verify", str(bundle))
    assert done.exit_code == 1
    for words in (
        f"{DEB}: missing",
        f"{FILE}: is no plain file",
        "extra-1.0-py3-none-any.whl: is not in the manifest",
        ".hidden: is not in the manifest",
        "4 problem(s)",
    ):
        assert words in done.output


def rewrite(bundle: Path, manifest: Manifest, *paths: str) -> None:
    """What somebody does who changes files and then the manifest too."""
    entries = []
    for entry in manifest.files:
        if entry.path in paths:
            content = (bundle / entry.path).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            entry = Entry(entry.path, digest, len(content), entry.kind)
        entries.append(entry)
    text = replace(manifest, files=tuple(entries)).render()
    (bundle / MANIFEST).write_text(text, encoding="utf-8")


def test_a_deb_exchanged_with_its_manifest_is_found_by_index_and_lock(
    bundle: Path, site: Site
) -> None:
    manifest = read_manifest(bundle)
    flip(bundle / DEB)
    rewrite(bundle, manifest, DEB)
    found = verify(bundle, read_manifest(bundle), site.contents.items)
    assert {(problem.path, problem.kind) for problem in found} == {
        (f"{APT.path}/Packages", "index"),
        (DEB, "lock"),
    }


def test_an_index_exchanged_with_its_manifest_is_found_by_the_signature(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    release = bundle / APT.path / "Release"
    release.write_text(release.read_text().replace("Label: nvidia-cuda", "Label: nvidia-cudb"))
    rewrite(bundle, manifest, f"{APT.path}/Release")
    found = verify(bundle, read_manifest(bundle))
    assert [(p.path, p.kind) for p in found] == [(f"{APT.path}/InRelease", "signature")]
    (bundle / APT.path / "InRelease").write_bytes(release.read_bytes())
    rewrite(bundle, manifest, f"{APT.path}/Release", f"{APT.path}/InRelease")
    found = verify(bundle, read_manifest(bundle))
    assert "unsigned" in found[0].text


def test_a_whole_bundle_of_another_lock_is_told_apart(bundle: Path, site: Site) -> None:
    fewer = [item for item in site.contents.items if item.path != FILE]
    found = verify(bundle, read_manifest(bundle), fewer)
    assert [str(problem) for problem in found] == [f"{FILE}: the lock doesn't name it"]
    more = [*site.contents.items, replace(site.contents.items[0], path="files/new")]
    found = verify(bundle, read_manifest(bundle), more)
    assert [problem.path for problem in found] == ["files/new"]


def test_what_cannot_be_read_says_nothing_about_its_content(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def broken(self: Path, *arguments: object, **named: object) -> object:
        if self.name == Path(FILE).name:
            raise OSError(5, "Input/output error")
        return real(self, *arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", broken)
    done = run("verify", str(bundle))
    assert done.exit_code == 3
    assert f"{FILE}: can't be read: Input/output error" in done.output


def test_no_bundle_is_bad_input_not_a_damaged_one(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "absent"):
        done = run("verify", str(directory))
        assert done.exit_code == 2
        assert "no bundle, or one that isn't finished" in done.output
    assert run("serve", str(tmp_path), "--bind", "127.0.0.1").exit_code == 2
    assert run("verify", str(tmp_path), "--stack", "nonesuch").exit_code == 2


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../b", "a//b", ".parts/x", "a/.b", "a b", MANIFEST, "a/"]
)
def test_paths_that_lead_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(BundleError, match="is no path for a file of a bundle"):
        check_path(path)


def test_the_manifest_of_a_later_rackpin_is_not_guessed_at(bundle: Path) -> None:
    text = (bundle / MANIFEST).read_text().replace('"schema_version": 1', '"schema_version": 2')
    (bundle / MANIFEST).write_text(text)
    with pytest.raises(BundleError, match="schema_version 2, this rackpin reads 1"):
        read_manifest(bundle)


def test_the_command_builds_without_naming_make(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "by-command"
    stacks = str(site.root / "st")
    done = run("site-stack", "-o", str(out), "--stacks", stacks)
    assert done.exit_code == 0, done.output
    assert read_manifest(out).stack == "site-stack"
    done = run("verify", str(out), "--stack", "site-stack", "--stacks", stacks)
    assert done.exit_code == 0 and "whole, 3 files" in done.stdout
    assert run("nonesuch", "-o", str(out), "--stacks", stacks).exit_code == 2
    assert run("site-stack", "-o", str(out), "--mirror", "debian").exit_code == 2
    assert run("--help").exit_code == 0 and "verify" in run("--help").output
    assert bundle_command.name == "bundle"
