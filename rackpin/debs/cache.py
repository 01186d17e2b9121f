"""What is kept between runs: indices by their sha256, and the newest Date seen of a repository."""

from __future__ import annotations

import hashlib
import json
import os
import time
from datetime import datetime
from pathlib import Path

from rackpin.debs.model import DebError, Refused, Repository
from rackpin.debs.release import Entry, Release


class Torn(Refused):
    """Files that don't belong together; asking again may help."""


def fits(content: bytes, entry: Entry) -> bool:
    return len(content) == entry.size and hashlib.sha256(content).hexdigest() == entry.sha256


def cached(cache: Path | None, entry: Entry) -> bytes | None:
    if cache is None:
        return None
    try:
        content = (cache / "indices" / entry.sha256).read_bytes()
    except FileNotFoundError:
        return None
    if not fits(content, entry):
        return None
    os.utime(cache / "indices" / entry.sha256)  # in use, so not to be forgotten
    return content


def keep(cache: Path | None, entry: Entry, content: bytes) -> None:
    if cache is not None and not (cache / "indices" / entry.sha256).is_file():
        replace_bytes(cache / "indices" / entry.sha256, content)


def forget(cache: Path, older_s: float = 30 * 86400) -> None:
    """Remove indices from the cache that nobody asked for in so many seconds."""
    for file in (cache / "indices").glob("*"):
        if time.time() - file.stat().st_mtime > older_s:
            file.unlink(missing_ok=True)


def replace_bytes(file: Path, content: bytes) -> None:
    """Write a file in one step; its directory is made."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.{os.getpid()}.part")  # others may write it too
        part.write_bytes(content)
        part.replace(file)
    except OSError as error:
        raise DebError(
            f"{file}: can't be written: {error.strerror}; make room, or set RACKPIN_CACHE to a "
            "directory that can be"
        ) from None


class Seen:
    """The newest Date seen of a repository: an older one is a replay or a mirror that lags."""

    def __init__(self, cache: Path | None, repository: Repository) -> None:
        words = f"{repository.url}\n{repository.suite}"  # whatever mirror it comes from
        name = f"{repository.name}-{hashlib.sha256(words.encode()).hexdigest()[:12]}.json"
        self.file = cache / "seen" / name if cache else None

    def check(self, release: Release, what: str) -> None:
        if self.file is None or not self.file.is_file():
            return
        try:
            before = datetime.fromisoformat(json.loads(self.file.read_text("utf-8"))["date"])
        except (ValueError, KeyError, TypeError):
            raise DebError(f"{self.file}: unreadable; remove it, then run again") from None
        if release.date < before:
            raise Torn(
                f"{what}: refused: Date goes back from {before:%Y-%m-%d %H:%M} to "
                f"{release.date:%Y-%m-%d %H:%M} UTC: an old state given out as new, or a mirror "
                f"that lags; if the older one is wanted, remove {self.file}"
            )

    def write(self, release: Release) -> None:
        if self.file:
            text = json.dumps({"date": release.date.isoformat()})
            replace_bytes(self.file, text.encode())
