"""Reports on disk: written whole or not at all, read back with clear errors."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rackpin.findings import SCHEMA_VERSION, Report
from rackpin.report import junit, page
from rackpin.report.shape import presentable, storable
from rackpin.report.text import plural

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHOWN_ERRORS = 10


class ReportError(Exception):
    """A report can't be written or read; the text says which file and what to do."""


@dataclass(frozen=True)
class Written:
    """Where the files of one run are; ``latest`` is the copy of the newest run's HTML."""

    json: Path
    html: Path
    junit: Path
    latest: Path


def write(report: Report, directory: Path) -> Written:
    """Write ``directory/RUN/report.json|report.html|junit.xml`` and ``directory/latest.*``.

    Each file appears whole or not at all. The JSON is there first: it stays even if a
    later file can't be made. Raises :class:`ReportError`.
    """
    if not _RUN.fullmatch(report.run):
        raise ReportError(
            f"run id {report.run!r} can't name a directory: use letters, digits, '.', '_' and '-'"
        )
    home = directory / report.run
    written = Written(
        json=home / "report.json",
        html=home / "report.html",
        junit=home / "junit.xml",
        latest=directory / "latest.html",
    )
    kept = storable(report)
    data = (json.dumps(kept.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n").encode()
    _commit({written.json: data})
    shown = presentable(kept)
    markup = page.render(shown).encode()
    _commit(
        {
            written.html: markup,
            written.junit: junit.render(shown),
            # Copies, not links: they survive an upload of artifacts and the removal of old runs.
            directory / "latest.json": data,
            written.latest: markup,
        }
    )
    return written


def load(path: Path) -> Report:
    """Read a ``report.json``, or the newest one in a directory. Raises :class:`ReportError`."""
    path = locate(path)
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        hint = "run `rackpin verify` first, or name a report.json"
        raise ReportError(f"{path}: there is no such report; {hint}") from None
    except OSError as error:
        raise ReportError(f"{path}: can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ReportError(f"{path}: is no JSON file; name a report.json of rackpin") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}: {error.msg}"
        hint = "cut short or not written by rackpin? Name another report or run verify again"
        raise ReportError(f"{path}: is no valid JSON ({where}); {hint}") from None
    return _validated(path, data)


def locate(path: Path) -> Path:
    """The JSON file meant by ``path``: itself, or a run's or the newest one in a directory."""
    if not path.is_dir():
        return path
    of_run = path / "report.json"
    return of_run if of_run.is_file() else path / "latest.json"


def _validated(path: Path, data: Any) -> Report:
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise ReportError(f"{path}: is no rackpin report: it has no schema_version")
    if version != SCHEMA_VERSION:
        hint = "upgrade rackpin" if version > SCHEMA_VERSION else "run verify again"
        raise ReportError(
            f"{path}: has schema version {version}, this rackpin reads {SCHEMA_VERSION}; {hint}"
        )
    try:
        return Report.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found[:_SHOWN_ERRORS]]
        if len(found) > _SHOWN_ERRORS:
            lines.append(f"  … and {len(found) - _SHOWN_ERRORS} more")
        head = f"{path}: {plural(len(found), 'value')} not as the report schema says"
        raise ReportError("\n".join([f"{head}; run verify again", *lines])) from None


def _commit(files: dict[Path, bytes]) -> None:
    """Write all files beside their places, then move all: a full disk leaves the old ones."""
    ready: list[tuple[Path, Path]] = []
    place = Path()
    try:
        for place, data in files.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = place.with_name(f".{place.name}.{os.getpid()}.draft")
            ready.append((draft, place))
            _write_synced(draft, data)
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
