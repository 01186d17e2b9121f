"""Reading every byte of a bundle again: each file that isn't as it should be is named."""

from __future__ import annotations

import gzip
import hashlib
import stat
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rackpin.bundle.aptrepo import KEY_FILE, PACKAGES
from rackpin.bundle.model import MANIFEST, AptPart, Entry, Item, Manifest
from rackpin.bundle.store import LOCK, PARTS
from rackpin.debs.index import parse_packages
from rackpin.debs.model import DebError
from rackpin.debs.release import parse_release
from rackpin.debs.signature import verify_inline

Moved = Callable[[int], None]
INDICES = (*PACKAGES, "Release")
_LOCKED = ("wheel", "deb", "file", "image", "model")  # kinds that a lock names


@dataclass(frozen=True, order=True)
class Problem:
    """One file that is wrong; ``unreadable`` says nothing about its content."""

    path: str
    kind: Literal["missing", "damaged", "extra", "index", "lock", "signature", "unreadable"]
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def verify(
    directory: Path,
    manifest: Manifest,
    items: Iterable[Item] | None = None,
    *,
    jobs: int = 4,
    moved: Moved = lambda size: None,
) -> list[Problem]:
    """Everything wrong with a bundle, sorted by path; an empty list means that it is whole.

    ``items`` of a lock are compared too: a bundle may be whole and still be another one.
    """
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda e: _file(directory, e, moved), manifest.files))
    problems = [problem for problem in found if problem]
    problems += _extra(directory, manifest)
    bad = {problem.path for problem in problems}
    for part in manifest.apt:
        # What an index says is only worth reading when the index itself is as it was made.
        if not bad & {f"{part.path}/{name}" for name in INDICES}:
            problems += _index(directory, manifest, part)
            if not bad & {f"{part.path}/InRelease", KEY_FILE}:
                problems += _signature(directory, manifest, part)
    if items is not None:
        problems += _lock(manifest, items)
    return sorted(set(problems))


def _file(directory: Path, entry: Entry, moved: Moved) -> Problem | None:
    file = directory / entry.path
    try:
        mode = file.lstat().st_mode
        if not stat.S_ISREG(mode):
            return Problem(entry.path, "damaged", "is no plain file")
        digest, size = hashlib.sha256(), 0
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
                size += len(block)
                moved(len(block))
    except (FileNotFoundError, NotADirectoryError):
        return Problem(entry.path, "missing", f"missing (sha256 {entry.sha256})")
    except OSError as error:
        return Problem(entry.path, "unreadable", f"can't be read: {error.strerror}")
    if digest.hexdigest() == entry.sha256:
        return None
    return Problem(
        entry.path,
        "damaged",
        f"damaged: expected sha256 {entry.sha256} ({entry.size} bytes), "
        f"found {digest.hexdigest()} ({size} bytes)",
    )


def _extra(directory: Path, manifest: Manifest) -> list[Problem]:
    known = {MANIFEST, LOCK, *manifest.entries}
    found = []
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if name.partition("/")[0] == PARTS or name in known:
            continue  # parts are of a build that goes on
        if path.is_symlink() or not path.is_dir():
            found.append(Problem(name, "extra", "is not in the manifest; remove it"))
    return found


def _index(directory: Path, manifest: Manifest, part: AptPart) -> list[Problem]:
    """Whether Release, Packages and the manifest say the same of each deb."""
    place, name = directory / part.path, f"{part.path}/Packages"
    try:
        text = (place / "Packages").read_bytes()
        packed = gzip.decompress((place / "Packages.gz").read_bytes())
        release = parse_release((place / "Release").read_text("utf-8"), f"{part.path}/Release")
    except (OSError, DebError, EOFError, UnicodeDecodeError, zlib.error) as error:
        return [Problem(f"{part.path}/Release", "index", f"can't be read: {error}")]
    problems = []
    if packed != text:
        problems.append(Problem(f"{name}.gz", "index", "is not what Packages is"))
    entry = release.entries.get("Packages")
    if entry is None or entry.sha256 != hashlib.sha256(text).hexdigest():
        problems.append(Problem(name, "index", "is not what Release vouches for"))
    debs = {
        path.removeprefix(f"{part.path}/"): e.sha256
        for path, e in manifest.entries.items()
        if path.startswith(f"{part.path}/") and e.kind == "deb"
    }
    listed = {}
    for stanza in parse_packages(text.decode("utf-8", "replace"), part.repository):
        try:
            deb = stanza.deb()
        except DebError as error:
            problems.append(Problem(name, "index", str(error)))
        else:
            listed[deb.filename] = deb.sha256
    for filename in sorted({*debs, *listed}):
        if debs.get(filename) != listed.get(filename):
            text_ = (
                f"says sha256 {listed.get(filename)} of {filename}, manifest {debs.get(filename)}"
            )
            problems.append(Problem(name, "index", text_))
    return problems


def _signature(directory: Path, manifest: Manifest, part: AptPart) -> list[Problem]:
    if manifest.signed_by is None:
        return []
    path = f"{part.path}/InRelease"
    try:
        signed = verify_inline(
            (directory / path).read_bytes(), directory / KEY_FILE, (manifest.signed_by,), path
        )
    except (OSError, DebError) as error:
        return [Problem(path, "signature", str(error))]
    if signed != (directory / part.path / "Release").read_bytes():
        return [Problem(path, "signature", "signs another text than Release has")]
    return []


def _lock(manifest: Manifest, items: Iterable[Item]) -> list[Problem]:
    problems = []
    have = {entry.path: entry.sha256 for entry in manifest.files if entry.kind in _LOCKED}
    for item in items:
        found = have.pop(item.path, None)
        if found is None:
            problems.append(Problem(item.path, "lock", "the lock names it, the bundle lacks it"))
        elif found != item.sha256:
            text = f"the lock has sha256 {item.sha256}, the bundle {found}"
            problems.append(Problem(item.path, "lock", text))
    problems += [Problem(path, "lock", "the lock doesn't name it") for path in have]
    return problems
