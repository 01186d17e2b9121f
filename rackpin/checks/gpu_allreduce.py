"""``all_reduce_perf`` over the cards of one node, judged at the one size its SKU says.

Once with the NCCL that engines load and once with the host's: nccl-tests are built against each.
It takes all cards and most of their memory, so it is no part of the checks that every verify
asks: only of a node that serves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.checks import allreduce, gpuinfo
from rackpin.checks.allreduce import TOOL
from rackpin.checks.base import (
    IDLE,
    NO_ANSWER,
    Command,
    Context,
    Outputs,
    Question,
    unseen,
)
from rackpin.findings import Finding, Level
from rackpin.nccltests.build import ROOT, Kind
from rackpin.skus import Figure, Sku

NAME = "gpu.allreduce"
LIBRARIES: tuple[Kind, ...] = ("engine", "host")
RUN_S = 45  # 8 GiB over PCIe take 0.7 s each: 12 in place, 12 out of place, and the start
BUSY = 75  # the other library's run held the cards all the time
MEASURE = (
    "copy the nearest file of skus/ for this hardware, measure all_reduce_perf -b 8G -e 8G on a "
    "new node, and write figures and all_reduce into it"
)
BUILD = "build nccl-tests on the node: pyinfra INVENTORY deploys/nccl.py -y"
REMEDY = (
    "see the other gpu and fabric findings first; run it again while nothing else runs; then with "
    "NCCL_DEBUG=INFO, and fewer cards, to find the slow one"
)
MEMORY = (
    "end what holds the cards' memory (nvidia-smi); where nothing does, give the SKU a figure of a "
    "smaller size_gib, measured at that size"
)


def command(library: Kind, gpus: int, size: int) -> Command:
    """One process over all cards; ``size`` in bytes. The two libraries' runs wait for each other:
    the directory of both is locked, which leaves no file."""
    program = f"{ROOT}/{library}/{TOOL}"
    shell = (
        f"[ -x {program} ] || {{ echo '{program} is not there' >&2; exit 127; }}; "
        f"exec flock -w {RUN_S} -E {BUSY} {ROOT} {program} {allreduce.arguments(size, gpus)}"
    )
    return Command(f"{NAME}.{library}", shell, 2.0 * RUN_S, slow=True)


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
        return [command(library, ctx.node.gpus, gate[1]) for library in LIBRARIES]

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
        return [judge_output(ctx, sku, figure, size, library, outputs) for library in LIBRARIES]


def judge_output(
    ctx: Context, sku: Sku, figure: Figure, size: int, library: Kind, outputs: Outputs
) -> Finding:
    """What one run says; anything but a whole, checked run at that size isn't a pass."""
    asked = command(library, ctx.node.gpus, size)
    output = outputs.get(asked.name, NO_ANSWER)
    expected = (
        f"{figure.expected:g} {figure.unit} at {size / 2**30:g} GiB, out of place; "
        f"warn below {figure.warn_below:g}, fail below {figure.fail_below:g}"
    )
    source = f"skus/{sku.name}.yaml, {figure.name}: {figure.source}"
    question = Question(ctx, asked.name, asked, output, expected, source)
    # without a pin there is no build against the host's NCCL, and nothing is amiss
    required = library == "engine" or ctx.lock.host.nccl.host is not None
    if why := unseen(asked, output):
        remedy = BUILD if output.rc == 127 else "run it while nothing else uses the cards"
        return question.not_run(why, remedy=remedy, required=required)
    if output.rc == BUSY and not output.stdout:
        why = f"the run with the other NCCL held the cards for {RUN_S} s"
        return question.not_run(why, remedy=REMEDY, required=required)
    gpus, text = ctx.node.gpus, f"{output.stdout}\n{output.stderr}"
    told = allreduce.judge(text, output.rc, gpus=gpus, ranks=gpus, size=size, figure=figure)
    metrics = {
        "busbw_min_gb_s": figure.fail_below,
        "busbw_expected_gb_s": figure.expected,
    }
    return gpuinfo.conclude(
        question,
        f"{told.speed} {figure.unit} of bus bandwidth with the {library}'s NCCL",
        told,
        shown=output.stdout,
        remedy=MEMORY if told.shrunk and not told.faults else REMEDY,
        metrics={} if told.speed is None else {"busbw_gb_s": told.speed, **metrics},
    )


CHECK = AllReduce()
