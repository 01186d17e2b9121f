"""Earlier runs of a report directory: what was measured then, and which runs are kept."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from rackpin.report import metrics
from rackpin.report.files import ReportError, commit
from rackpin.report.store import load

RUNS = 20  # so many earlier values tell what is usual, and a slow drift still shows in them
KEEP = 200  # runs: some months of a nightly verify
_DATED = re.compile(r"\d{8}[T-]\d{6}[A-Za-z0-9._-]{0,110}")  # a run's name begins with its time
# What write() puts into a run's directory; the report goes last, so that a removal that was cut
# short is still known as a run and goes on the next time.
_OURS = ("report.html", "junit.xml", metrics.NAME, "report.json")
_DRAFT = re.compile(rf"\.({'|'.join(map(re.escape, _OURS))})\.\d+\.draft")  # of a killed writer


def history(
    directory: Path, lock: str, runs: int = RUNS, notes: list[str] | None = None
) -> dict[str, dict[str, list[float]]]:
    """Node → ``"CHECK METRIC"`` → its values in the newest ``runs`` runs of ``lock``, newest last.

    Only findings that passed or warn count. A report that can't be read is left out, and is named
    in ``notes``. No directory yet is no history.
    """
    found: list[dict[str, dict[str, float]]] = []
    for home in reversed(_runs(directory)):
        if len(found) >= runs:
            break
        try:
            data = _metrics(home)
        except ReportError as error:
            if notes is not None:
                notes.append(f"left out of the history: {str(error).splitlines()[0]}")
            continue
        if data["lock"] == lock:
            found.append(data["values"])
    made: dict[str, dict[str, list[float]]] = {}
    for values in reversed(found):
        for node, named in values.items():
            for key, value in named.items():
                made.setdefault(node, {}).setdefault(key, []).append(float(value))
    return made


def prune(directory: Path, keep: int = KEEP) -> list[str]:
    """Remove all but the newest ``keep`` runs; their names, oldest first.

    Removes only a directory that is named like a run, holds that run's report and nothing that
    rackpin did not write. Raises :class:`ReportError` when one can't be removed.
    """
    if keep < 1:
        raise ReportError(f"{directory}: can't keep {keep} runs; keep at least one")
    old = _runs(directory)[:-keep]
    removed = []
    for home in old:
        if not _is_ours(home):
            continue
        try:
            drafts = [path.name for path in home.iterdir() if _DRAFT.fullmatch(path.name)]
            for name in (*drafts, *_OURS):
                (home / name).unlink(missing_ok=True)
            home.rmdir()
        except OSError as error:
            raise ReportError(
                f"{home}: an old run can't be removed: {error.strerror}; remove it by hand"
            ) from error
        removed.append(home.name)
    return removed


def _runs(directory: Path) -> list[Path]:
    """Directories that look like runs, oldest first; no links, which may lead elsewhere."""
    if not directory.is_dir():
        return []
    return sorted(
        home
        for home in directory.iterdir()
        if _DATED.fullmatch(home.name)
        and not home.is_symlink()
        and (home / "report.json").is_file()
    )


def _is_ours(home: Path) -> bool:
    """The report in it is of this very run, and every other file is one that write() makes."""
    inside = list(home.iterdir())
    for path in inside:
        known = path.name in _OURS or _DRAFT.fullmatch(path.name)
        if not known or path.is_symlink() or path.is_dir():
            return False
    try:
        data = json.loads((home / "report.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False  # not known to be a report: whoever put it there may want it
    return (
        isinstance(data, dict)
        and data.get("run") == home.name
        and isinstance(data.get("schema_version"), int)
    )


def _metrics(home: Path) -> dict[str, Any]:
    """``{"lock", "values"}`` of one run, from the small file, or anew from its report."""
    record, small = home / "report.json", home / metrics.NAME
    try:
        fresh = small.stat().st_mtime_ns >= record.stat().st_mtime_ns
        data = metrics.read(small.read_bytes(), home.name) if fresh else None
    except OSError:
        data = None  # it is only a shortcut: the report tells the same
    if data is not None:
        return data
    report = load(record)
    if report.run != home.name:
        raise ReportError(f"{record}: is the report of run {report.run}, not of its directory's")
    with suppress(ReportError):  # in a read-only directory only the shortcut is missing
        commit({small: metrics.dumped(report)})
    return {"lock": report.lock, "values": metrics.values_of(report)}
