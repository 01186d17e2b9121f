"""``all_reduce_perf`` over the cards of one node, judged at the one size its SKU says.

It takes all cards and most of their memory, so it is no part of the checks that every verify
asks: only of a node that serves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.checks import gpuinfo
from rackpin.checks.base import (
    IDLE,
    NO_ANSWER,
    Command,
    Context,
    Outputs,
    Question,
    one_line,
    unseen,
)
from rackpin.checks.gpuinfo import Told
from rackpin.findings import Finding, Level
from rackpin.parse import nccl_tests
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nccl_tests_model import NcclTests
from rackpin.skus import Figure, Sku

NAME, TOOL = "gpu.allreduce", "all_reduce_perf"
DEADLINE_S = 45.0  # 8 GiB over PCIe take 0.7 s each: 12 in place, 12 out of place, and the start
MEASURE = (
    "copy the nearest file of skus/ for this hardware, measure all_reduce_perf -b 8G -e 8G on a "
    "new node, and write figures and all_reduce into it"
)
REMEDY = (
    "see the other gpu and fabric findings first; run it again while nothing else runs; then with "
    "NCCL_DEBUG=INFO, and fewer cards, to find the slow one"
)


def command(gpus: int, size: int) -> Command:
    """One process over all cards; ``size`` in bytes. ``-c 1``: the data are checked."""
    shell = f"{TOOL} -b {size} -e {size} -f 2 -g {gpus} -n 10 -w 2 -c 1"
    return Command(NAME, shell, DEADLINE_S, slow=True)


class AllReduce:
    id = NAME
    title = "all_reduce over the cards of the node is as fast as the SKU says"
    level: Level = "node"
    needs = IDLE

    def commands(self, ctx: Context) -> Sequence[Command]:
        sku = gpuinfo.sku_of(ctx)
        gate = sku.gate if isinstance(sku, Sku) else None
        if gate is None or not gpuinfo.has_cards(ctx) or ctx.node.gpus < 2:
            return []
        return [command(ctx.node.gpus, gate[1])]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not gpuinfo.has_cards(ctx) or ctx.node.gpus < 2:
            return []
        sku = gpuinfo.sku_of(ctx)
        if isinstance(sku, str):
            return [gpuinfo.unknown_sku(Question(ctx, self.id, source="skus/"), sku)]
        if sku.gate is None:
            question = Question(ctx, self.id, source=f"skus/{sku.name}.yaml")
            return [question.not_run(f"the SKU {sku.name} has no figure of it", remedy=MEASURE)]
        figure, size = sku.gate
        return [judge_output(ctx, sku, figure, size, outputs)]


def judge_output(ctx: Context, sku: Sku, figure: Figure, size: int, outputs: Outputs) -> Finding:
    """What one run says; anything but a whole, checked run at that size isn't a pass."""
    asked = command(ctx.node.gpus, size)
    output = outputs.get(NAME, NO_ANSWER)
    expected = (
        f"{figure.expected:g} {figure.unit} at {size / 2**30:g} GiB, out of place; "
        f"warn below {figure.warn_below:g}, fail below {figure.fail_below:g}"
    )
    source = f"skus/{sku.name}.yaml, {figure.name}: {figure.source}"
    question = Question(ctx, NAME, asked, output, expected, source)
    if why := unseen(asked, output):
        remedy = "install nccl-tests, and run it while nothing else uses the cards"
        return question.not_run(why, remedy=remedy)
    try:
        run = nccl_tests.read(f"{output.stdout}\n{output.stderr}")
    except NotThisKind as error:
        return question.not_run(f"the answer can't be read: {error}", remedy=REMEDY)
    told = Told(faults=_run_faults(run, ctx.node.gpus, size, output.rc))
    speed = _speed(run, size, told)
    if speed is not None:
        _compare(speed, figure, told)
    metrics = {
        "busbw_min_gb_s": figure.fail_below,
        "busbw_expected_gb_s": figure.expected,
    }
    return gpuinfo.conclude(
        question,
        f"{speed} {figure.unit} of bus bandwidth",
        told,
        shown=output.stdout,
        remedy=REMEDY,
        metrics={} if speed is None else {"busbw_gb_s": speed, **metrics},
    )


def _run_faults(run: NcclTests, gpus: int, size: int, rc: int | None) -> list[str]:
    faults = [one_line(error, 200) for error in run.errors]
    if len(run.runs) > 1:
        faults.append(f"the answer holds {len(run.runs)} runs")
    if run.ranks is not None and run.ranks != gpus:
        faults.append(f"it ran over {run.ranks} of {gpus} cards")
    if run.reduced_max_bytes is not None and run.reduced_max_bytes < size:
        faults.append(
            f"the test made itself smaller for want of memory: {run.reduced_max_bytes} bytes"
        )
    if rc != 0 and not faults:
        faults.append(f"it ended with status {rc}")
    return faults


def _speed(run: NcclTests, size: int, told: Told) -> float | None:
    """Bus bandwidth of the row of that size; what keeps it from counting goes to ``told``."""
    rows = [row for row in run.rows if row.size == size]
    if not rows:
        told.faults.append(f"the row of {size} bytes is missing")
        return None
    halves = [half for row in rows for half in (row.out_of_place, row.in_place) if half]
    if run.op not in (None, TOOL):  # by its columns and numbers: it prints no name
        told.faults.append(f"this is an output of {run.op}")
    if any(half.wrong for half in halves):
        told.faults.append("the result has wrong elements: the data were damaged on the way")
    elif not halves or any(half.wrong is None for half in halves):
        told.untold.append("whether the result was right: it was not checked")
    if run.ranks is None:
        told.untold.append("over how many cards it ran")
    if run.ok is None or run.avg_busbw is None:  # its average decides nothing, but ends a whole run
        told.untold.append("; ".join(run.warnings) or "the summary is not whole")
    measured = rows[0].out_of_place
    if measured is None or measured.busbw is None:
        told.untold.append("the bus bandwidth out of place")
        return None
    return float(measured.busbw)


def _compare(speed: float, figure: Figure, told: Told) -> None:
    says = f"{speed:g} {figure.unit}, {figure.expected:g} is usual"
    if speed < figure.fail_below:
        told.faults.append(f"{says}, {figure.fail_below:g} the least")
    elif speed < figure.warn_below:
        told.worries.append(f"{says}, below {figure.warn_below:g} something is amiss")


CHECK = AllReduce()
