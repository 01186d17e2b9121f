"""The bundle's directory while it is made: proved files under their names, parts elsewhere.

A file has its final name only after its sha256 was right, so whatever is killed when, nothing
half-written is ever taken for whole. Parts lie in ``.parts`` by the hash they should
get and the path they go to.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path

from rackpin.bundle.model import BundleError, Item
from rackpin.stack.wheelfile import sha256_of

PARTS = ".parts"
LOCK = ".lock"
FULL = (errno.ENOSPC, errno.EDQUOT)
SPARE = 64 << 20  # bytes kept free for indices and the filesystem itself


class Store:
    """Paths and proofs. Every build reads what is there again: a stamp would hide a bad disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.parts = directory / PARTS

    def path(self, item: Item) -> Path:
        return self.directory / item.path

    def part(self, item: Item) -> Path:
        # by path too: two files may have one content, an empty {} for example
        path = hashlib.sha256(item.path.encode()).hexdigest()[:8]
        return self.parts / f"{item.sha256}-{path}"

    def has(self, item: Item) -> bool:
        """Whether the file is there, a plain one, and right."""
        file = self.path(item)
        if file.is_symlink() or not file.is_file():
            return False
        return item.size in (None, file.stat().st_size) and sha256_of(file) == item.sha256

    def adopt(self, found: Path, item: Item) -> str:
        """Give a fetched file its final name if it is right; returns "" or what is wrong."""
        size = found.stat().st_size
        digest = sha256_of(found)
        if digest != item.sha256:
            found.unlink()
            return (
                f"{item.path}: refused: expected sha256 {item.sha256}"
                f"{f' ({item.size} bytes)' if item.size else ''}, found {digest} ({size} bytes)"
            )
        found.chmod(0o644)
        with found.open("rb") as stream:
            os.fsync(stream.fileno())
        target = self.path(item)
        target.parent.mkdir(parents=True, exist_ok=True)
        found.replace(target)
        return ""

    def check_space(self, wanted: list[Item]) -> None:
        """Refuse before the first byte when the rest can't fit."""
        have = sum(p.stat().st_size for item in wanted if (p := self.part(item)).is_file())
        need = sum(item.size or 0 for item in wanted) - have + SPARE
        if wanted and (free := shutil.disk_usage(self.directory).free) < need:
            raise BundleError(full(self.directory, need, free))


def full(directory: Path, need: int, free: int | None = None) -> str:
    """The one text for a full disk. Sizes in bytes."""
    left = shutil.disk_usage(directory).free if free is None else free
    return (
        f"{directory}: no space left: about {need / 1e6:.0f} MB more are needed, "
        f"{left / 1e6:.0f} MB are free; make room or give another -o, then run again: "
        "what was fetched is kept"
    )


def write(file: Path, content: bytes, directory: Path) -> None:
    """Write a small file of the bundle in one step, through its parts."""
    parts = directory / PARTS
    parts.mkdir(exist_ok=True)
    part = parts / f"write-{file.name}"  # one writer: the build holds the lock
    with part.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    part.chmod(0o644)
    file.parent.mkdir(parents=True, exist_ok=True)
    part.replace(file)
