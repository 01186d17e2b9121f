"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


class ReportError(Exception):
    """A report can't be written or read; the text says which file and what to do."""


def commit(files: Mapping[Path, bytes], mode: int | None = None) -> None:
    """Write all files beside their places, then move all: a full disk leaves the old ones.

    ``mode`` is the files' mode; without it the process's umask decides.
    """
    ready: list[tuple[Path, Path]] = []
    place = Path()
    try:
        for place, data in files.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = place.with_name(f".{place.name}.{os.getpid()}.draft")
            ready.append((draft, place))
            _write_synced(draft, data)
            if mode is not None:
                draft.chmod(mode)
        for draft, place in ready:
            draft.replace(place)
        for parent in {place.parent for place in files}:
            _sync_directory(parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ReportError(
            f"{place}: can't be written: {reason}; free space or give another report directory"
        ) from error
    finally:
        for draft, _ in ready:
            with suppress(FileNotFoundError):  # moved already: all is well
                draft.unlink()


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
