"""nccl-tests (and rccl-tests): rows, summary and verdict, from what it prints or from ``-J``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rackpin.parse import nccl_tests_json, nccl_tests_text
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nccl_tests_lines import OPS
from rackpin.parse.nccl_tests_model import NcclTests, Run
from rackpin.parse.text import ends_whole, lines, missing_tool


def read(text: str) -> NcclTests:
    """Read one text, which may hold several runs. Raises NotThisKind when it has none."""
    found = lines(text)
    if (start := nccl_tests_json.start("\n".join(found))) is not None:
        return _alone(nccl_tests_json.report(start), format="json", exit_code=None)
    made, exit_code = nccl_tests_text.runs(found, ends_whole(found))
    if not made:
        tools = [f"{op}_perf" for op in OPS]
        if absent := missing_tool(found, *tools, "mpirun", "srun"):
            raise NotThisKind(f"the test did not run: {absent}")
        raise NotThisKind("no banner, no table and no failure of nccl-tests")
    if all(not _says(run) for run in made):
        raise NotThisKind("a line like nccl-tests', but nothing that it measured or reports")
    if len(made) == 1:
        return _alone(made[0], format="text", exit_code=exit_code)
    return _several(made, exit_code)


def _says(run: Run) -> bool:
    said = (run.rows, run.errors, run.ranks_listed, run.complete, run.min_bytes is not None)
    return any(said) or run.check_column is not None or run.tests_version is not None


def _values(run: Run) -> dict[str, Any]:
    return {one.name: getattr(run, one.name) for one in fields(Run)}


def _alone(run: Run, **more: Any) -> NcclTests:
    return NcclTests(**_values(run), **more)


def _several(made: Sequence[Run], exit_code: int | None) -> NcclTests:
    """What all runs agree on; sums and extremes over all; averages stay with their run."""
    alike = [one.name for one in fields(Run) if one.name not in _ADDED]
    distinct = {name: list({getattr(run, name) for run in made}) for name in alike}
    values: dict[str, Any] = {
        name: found[0] if len(found) == 1 else None for name, found in distinct.items()
    }
    bounds = [run.out_of_bounds for run in made if run.out_of_bounds is not None]
    peaks = [run.peak_busbw for run in made if run.peak_busbw is not None]
    sizes = [run.max_size for run in made if run.max_size is not None]
    verdicts = {run.ok for run in made}
    warnings = tuple(dict.fromkeys(text for run in made for text in run.warnings))
    if all(run.ranks == 1 for run in made):
        warnings += ("each process ran by itself: a binary without MPI, or another MPI's mpirun",)
    return NcclTests(
        **values,
        ranks_listed=max(run.ranks_listed for run in made),
        hosts=max(run.hosts for run in made),
        devices=tuple(dict.fromkeys(name for run in made for name in run.devices)),
        rows=tuple(row for run in made for row in run.rows),
        max_size=max(sizes, default=None),
        peak_busbw=max(peaks, default=None),
        out_of_bounds=sum(bounds) if len(bounds) == len(made) else None,
        complete=all(run.complete for run in made),
        ok=False if False in verdicts else (None if None in verdicts else True),
        errors=tuple(dict.fromkeys(text for run in made for text in run.errors)),
        warnings=warnings,
        exit_code=exit_code,
        runs=tuple(made),
    )


# The fields of Run that _several makes itself.
_ADDED = {
    "ranks_listed",
    "hosts",
    "devices",
    "rows",
    "max_size",
    "peak_busbw",
    "out_of_bounds",
    "complete",
    "ok",
    "errors",
    "warnings",
}
