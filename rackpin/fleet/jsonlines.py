"""A file of JSON lines that outlives a kill: each line is on disk before the next thing happens."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rackpin.fleet.state import FleetStateError

Line = dict[str, Any]


def read(path: Path, what: str, needs: Sequence[str]) -> list[Line]:
    """All whole lines, each with the keys in ``needs``; a torn last one is what a kill left.

    ``what`` names a line in the error. Raises :class:`FleetStateError`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        text = _before_a_cut(path, error)
    except OSError as error:
        raise FleetStateError(f"{path}: can't be read ({error})") from error
    found = []
    # a kill in the middle of a write leaves a last line without its end
    for number, row in enumerate(text.split("\n")[:-1], 1):
        try:
            line = json.loads(row)
            found.append({**line, **{key: line[key] for key in needs}})
        except (ValueError, KeyError, TypeError) as error:
            text = f"{path}:{number}: is no {what}; mend it or move it away"
            raise FleetStateError(text) from error
    return found


def append(path: Path, line: Line) -> None:
    """Add one line, fsynced; what a kill left of an earlier one goes. Raises FleetStateError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                if file.read(1) != b"\n":
                    file.truncate(_whole(path))
            file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        text = f"{path}: can't be written: {error.strerror}; see its owner and space"
        raise FleetStateError(text) from error


def _whole(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return path.read_bytes().rfind(b"\n") + 1


def _before_a_cut(path: Path, error: UnicodeDecodeError) -> str:
    """The text when only its torn last line ends inside a character."""
    data = path.read_bytes()
    try:
        return data[: data.rfind(b"\n") + 1].decode("utf-8")
    except UnicodeDecodeError:
        raise FleetStateError(f"{path}: can't be read ({error})") from error
