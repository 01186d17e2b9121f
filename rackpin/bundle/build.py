"""Making a bundle whole: prove what is there, fetch the rest, index, and only then the manifest."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock, Timeout

from rackpin.bundle import aptrepo
from rackpin.bundle.contents import IMAGES
from rackpin.bundle.gather import Gather, Moved
from rackpin.bundle.model import (
    MANIFEST,
    BundleError,
    Contents,
    Entry,
    Item,
    Kind,
    Manifest,
    read_manifest,
)
from rackpin.bundle.store import FULL, LOCK, PARTS, Store, full, write
from rackpin.stack.items import Unresolved
from rackpin.stack.lock import STACKS, Stack
from rackpin.stack.wheelfile import sha256_of

JOBS = 4
LOCK_WAIT_S = 5
ROOMS = (
    "wheelhouse",
    "debs",
    "files",
    "images",
    "models",
    "keys",
)  # owned whole: what isn't locked is removed
Say = Callable[[str], None]
Start = Callable[[int], Moved]


def build(
    stack: Stack,
    contents: Contents,
    directory: Path,
    *,
    jobs: int = JOBS,
    sign_key: str | None = None,
    root: Path = STACKS,
    say: Say = lambda text: None,
    start: Start = lambda total: lambda size: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Manifest:
    """Make the bundle in ``directory`` complete; only what is missing or damaged is fetched.

    ``sign_key`` is the fingerprint of a key in gpg's keyring. ``start`` is told how many bytes
    are to come and gives what counts them. Raises :class:`BundleError` with everything that
    could not be had; run again to go on from there.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        _refuse_strangers(directory)
        with FileLock(directory / LOCK, timeout=LOCK_WAIT_S):
            begun = time.monotonic()
            signer = aptrepo.Signer(sign_key, directory) if sign_key and contents.apt else None
            wanted = _prepare(Store(directory), contents, jobs, say)
            if not wanted and (old := _unchanged(directory, contents, signer)):
                shutil.rmtree(directory / PARTS)
                say(f"{directory}: complete for {contents.stack}, nothing to do")
                return old
            (directory / MANIFEST).unlink(missing_ok=True)  # not whole until it is back
            if wanted:
                size = sum(item.size or 0 for item in wanted)
                say(f"fetching {len(wanted)} of {len(contents.items)} files, {size / 1e6:.0f} MB")
                gather = Gather(stack, Store(directory), start(size), jobs, root, sleep)
                gather.run(wanted)
            manifest = _finish(directory, contents, signer, say)
            say(
                f"{directory}: complete for {contents.stack}, {len(manifest.files)} files, "
                f"{sum(e.size for e in manifest.files) / 1e6:.0f} MB, "
                f"after {time.monotonic() - begun:.0f} s"
            )
            return manifest
    except Timeout:
        raise BundleError(
            f"{directory}: another rackpin bundle is at work there; let it end, or end it"
        ) from None
    except OSError as error:
        if error.errno in FULL:
            raise BundleError(full(directory, 0)) from None
        raise BundleError(
            f"{error.filename or directory}: {error.strerror}; give -o a directory that can be "
            "written"
        ) from None


def _refuse_strangers(directory: Path) -> None:
    """A directory with other things in it is not overwritten by mistake."""
    ours = {MANIFEST, LOCK, PARTS, *ROOMS}
    if strange := sorted(p.name for p in directory.iterdir() if p.name not in ours):
        raise BundleError(
            f"{directory}: holds {', '.join(strange[:5])}, which is no part of a bundle; give -o "
            "an empty directory, or move that away"
        )


def _prepare(store: Store, contents: Contents, jobs: int, say: Say) -> list[Item]:
    """What has to be fetched; damaged files and parts of other items are taken away."""
    with ThreadPoolExecutor(jobs) as pool:
        there = list(pool.map(store.has, contents.items))
    wanted = [item for item, has in zip(contents.items, there, strict=True) if not has]
    store.parts.mkdir(exist_ok=True)
    keep = {store.part(item).name for item in wanted}
    for path in store.parts.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in keep:
            path.unlink()
    store.check_space(wanted)
    for item in wanted:
        file = store.path(item)
        if file.is_symlink() or file.exists():
            say(f"replacing a damaged file: {item.path}")
            shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
    return wanted


def _unchanged(
    directory: Path, contents: Contents, signer: aptrepo.Signer | None
) -> Manifest | None:
    """The manifest that is there, when it is what would be made now."""
    try:
        old = read_manifest(directory)
    except BundleError:
        return None
    items = {item.path: item.sha256 for item in contents.items}
    for entry in old.files:
        if entry.kind in ("index", "key"):
            file = directory / entry.path
            if file.is_symlink() or not file.is_file() or sha256_of(file) != entry.sha256:
                return None
        elif items.pop(entry.path, "") != entry.sha256:
            return None
    same = (old.stack, old.lock_digest, old.signed_by, old.apt, old.unresolved) == (
        contents.stack, contents.lock_digest, signer.fingerprint if signer else None,
        contents.apt, contents.unresolved,
    )  # fmt: skip
    strangers = set(_files(directory)) - set(old.entries)
    return old if same and not items and not strangers else None


def _finish(
    directory: Path, contents: Contents, signer: aptrepo.Signer | None, say: Say
) -> Manifest:
    """Everything is there: index it, remove what isn't ours, and write the manifest."""
    kinds: dict[str, Kind] = {item.path: item.kind for item in contents.items}
    if signer:
        write(directory / aptrepo.KEY_FILE, signer.export(), directory)
        kinds[aptrepo.KEY_FILE] = "key"
    for part in contents.apt:
        debs = [i for i in contents.items if i.path.startswith(f"{part.path}/")]
        kinds |= dict.fromkeys(aptrepo.make(directory, part, debs, contents.stack, signer), "index")
    for path, text in layouts(contents).items():
        write(directory / path, text.encode(), directory)
        kinds[path] = "index"
    _prune(directory, set(kinds), say)
    hashes = {item.path: item.sha256 for item in contents.items}
    manifest = Manifest(
        stack=contents.stack,
        lock_digest=contents.lock_digest,
        files=tuple(
            Entry(
                path=path,
                sha256=hashes.get(path) or sha256_of(directory / path),
                size=(directory / path).stat().st_size,
                kind=kind,
            )
            for path, kind in sorted(kinds.items())
        ),
        apt=contents.apt,
        signed_by=signer.fingerprint if signer else None,
        unresolved=contents.unresolved,
    )
    write(directory / MANIFEST, manifest.render().encode(), directory)
    shutil.rmtree(directory / PARTS)
    return manifest


def layouts(contents: Contents) -> dict[str, str]:
    """The two files that make an OCI layout of each image's parts; text by path."""
    texts = {}
    for name, image in sorted(contents.lock.images.items()):
        if isinstance(image, Unresolved) or not image.parts:
            continue
        top = image.parts[0]
        descriptor = {
            "mediaType": top.media_type,
            "digest": top.digest,
            "size": top.size,
            # the names by which skopeo and podman, and containerd, take it
            "annotations": {
                "org.opencontainers.image.ref.name": image.ref,
                "io.containerd.image.name": image.ref,
            },
        }
        index = {"schemaVersion": 2, "manifests": [descriptor]}
        texts[f"{IMAGES}/{name}/oci-layout"] = '{"imageLayoutVersion": "1.0.0"}\n'
        texts[f"{IMAGES}/{name}/index.json"] = json.dumps(index, indent=1) + "\n"
    return texts


def _files(directory: Path) -> list[str]:
    """Paths of all files, links too, in the rooms of a bundle."""
    return [
        path.relative_to(directory).as_posix()
        for room in ROOMS
        for path in (directory / room).rglob("*")
        if path.is_symlink() or not path.is_dir()
    ]


def _prune(directory: Path, keep: set[str], say: Say) -> None:
    """Remove what no longer belongs to it, of an earlier lock mostly."""
    gone = sorted(set(_files(directory)) - keep)
    for path in gone:
        (directory / path).unlink()
    for room in ROOMS:
        for place in sorted((directory / room).rglob("*"), reverse=True):
            _tidy(place)
        _tidy(directory / room)
    if gone:
        say(f"removed {len(gone)} file(s) that the lock doesn't name, {gone[0]} first")


def _tidy(place: Path) -> None:
    """An empty directory goes, others are for everybody to read."""
    if place.is_dir() and any(place.iterdir()):
        place.chmod(0o755)
    elif place.is_dir():
        place.rmdir()
