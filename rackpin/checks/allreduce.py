"""What one run of all_reduce_perf says: only a whole, checked run at the size asked for counts.

One size's number is never judged by another size's figure.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.checks.base import one_line
from rackpin.checks.gpuinfo import Told
from rackpin.parse import nccl_tests
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nccl_tests_model import NcclTests
from rackpin.skus import Figure

TOOL = "all_reduce_perf"
ITERATIONS, WARMUP = 10, 2  # timed and not; each for both halves of the row


@dataclass
class Verdict(Told):
    """``speed``: GB/s of bus bandwidth out of place, None where no number counts."""

    speed: float | None = None
    apart: bool = False  # each process ran by itself: built without MPI
    shrunk: bool = False  # the cards' memory doesn't allow the size
    wrong: bool = False  # the data were damaged on the way
    below: bool = False  # slower than its figure allows

    @property
    def broken(self) -> bool:
        """Faults beside the speed."""
        return len(self.faults) > int(self.below)


def arguments(size: int, gpus: int) -> str:
    """Of one process over ``gpus`` cards, ``size`` in bytes. ``-c 1``: the data are checked."""
    return f"-b {size} -e {size} -g {gpus} -n {ITERATIONS} -w {WARMUP} -c 1"


def judge(
    text: str, rc: int | None, *, gpus: int, ranks: int, size: int, figure: Figure | None
) -> Verdict:
    """The verdict on what a run over ``ranks`` cards printed, ``gpus`` of them to a process.

    Without a ``figure`` the speed is read and compared with nothing. Never raises.
    """
    found = Verdict()
    try:
        run = nccl_tests.read(text)
    except NotThisKind as error:
        found.untold.append(f"what it measured: {error}")
        return found
    _run(run, rc, gpus, ranks, size, found)
    found.speed = _speed(run, size, found)
    if found.speed is not None and figure is not None:
        _compare(found.speed, figure, found)
    return found


def _run(run: NcclTests, rc: int | None, gpus: int, ranks: int, size: int, found: Verdict) -> None:
    found.faults += [one_line(error, 200) for error in run.errors]
    each = {one.ranks for one in run.runs or (run,)}
    found.apart = ranks > gpus and each == {gpus} and ranks // gpus == len(run.runs or (run,))
    if found.apart:
        found.untold.append(
            f"what all {ranks} cards do together: each process ran by itself over its own {gpus}, "
            "so nccl-tests are built without MPI, or mpirun is another MPI's"
        )
    elif len(run.runs) > 1:
        found.faults.append(f"the answer holds {len(run.runs)} runs")
    if not found.apart and run.ranks is not None and run.ranks != ranks:
        found.faults.append(f"it ran over {run.ranks} of {ranks} cards")
    shrunk = run.reduced_max_bytes
    if shrunk is not None and shrunk < size:
        found.shrunk = True
        found.untold.append(
            f"anything at {size} bytes: memory allows {shrunk} on these cards, and no other size "
            "is judged by this size's figure"
        )
    if rc != 0 and not found.faults:
        found.faults.append(f"it ended with status {rc}")


def _speed(run: NcclTests, size: int, found: Verdict) -> float | None:
    """Bus bandwidth of the row of that size; what keeps it from counting goes to ``found``."""
    rows = [row for row in run.rows if row.size == size]
    if not rows:
        if not found.shrunk:
            found.faults.append(f"the row of {size} bytes is missing")
        return None
    halves = [half for row in rows for half in (row.out_of_place, row.in_place) if half]
    if run.op not in (None, TOOL):  # by its columns and numbers: it prints no name
        found.faults.append(f"this is an output of {run.op}")
    if any(half.wrong for half in halves):
        found.wrong = True
        found.faults.append("the result has wrong elements: the data were damaged on the way")
    elif not halves or any(half.wrong is None for half in halves):
        found.untold.append("whether the result was right: it was not checked")
    if run.ranks is None and not found.apart:
        found.untold.append("over how many cards it ran")
    if not found.apart and (run.ok is None or run.avg_busbw is None):
        # its average decides nothing, but ends a whole run
        found.untold.append("; ".join(run.warnings) or "the summary is not whole")
    measured = rows[0].out_of_place
    if measured is None or measured.busbw is None:
        found.untold.append("the bus bandwidth out of place")
        return None
    return None if found.apart or found.shrunk else float(measured.busbw)


def _compare(speed: float, figure: Figure, found: Verdict) -> None:
    says = f"{speed:g} {figure.unit}, {figure.expected:g} is usual"
    if speed < figure.fail_below:
        found.below = True
        found.faults.append(f"{says}, {figure.fail_below:g} the least")
    elif speed < figure.warn_below:
        found.worries.append(f"{says}, below {figure.warn_below:g} something is amiss")
