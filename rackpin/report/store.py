"""Reports on disk: written whole or not at all, read back with clear errors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rackpin.findings import SCHEMA_VERSION, Report
from rackpin.report import junit, metrics, page, prometheus
from rackpin.report.files import ReportError, commit
from rackpin.report.shape import presentable, storable
from rackpin.report.text import plural

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHOWN_ERRORS = 10
OLDEST = 1  # of the schema versions that are read: what was added since takes its default


@dataclass(frozen=True)
class Written:
    """Where the files of one run are; ``latest`` is the copy of the newest run's HTML."""

    json: Path
    html: Path
    junit: Path
    latest: Path


def write(report: Report, directory: Path) -> Written:
    """Write ``directory/RUN/report.json|report.html|junit.xml`` and ``directory/latest.*``.

    ``latest.prom`` is for Prometheus, ``RUN/metrics.json`` makes reading the history quick.

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
    commit({written.json: data})
    shown = presentable(kept)
    markup = page.render(shown).encode()
    commit(
        {
            written.html: markup,
            written.junit: junit.render(shown),
            home / metrics.NAME: metrics.dumped(kept),
            # Copies, not links: they survive an upload of artifacts and the removal of old runs.
            directory / "latest.json": data,
            written.latest: markup,
            directory / "latest.prom": prometheus.render(shown).encode(),
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
    if not OLDEST <= version <= SCHEMA_VERSION:
        hint = "upgrade rackpin" if version > SCHEMA_VERSION else "run verify again"
        raise ReportError(
            f"{path}: has schema version {version}, this rackpin reads {OLDEST} to "
            f"{SCHEMA_VERSION}; {hint}"
        )
    try:
        return Report.model_validate({**data, "schema_version": SCHEMA_VERSION})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found[:_SHOWN_ERRORS]]
        if len(found) > _SHOWN_ERRORS:
            lines.append(f"  … and {len(found) - _SHOWN_ERRORS} more")
        head = f"{path}: {plural(len(found), 'value')} not as the report schema says"
        raise ReportError("\n".join([f"{head}; run verify again", *lines])) from None
