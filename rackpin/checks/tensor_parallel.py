"""TP in effect: sizes and KV cache from the engine's log, a worker a rank, cards filled alike.

An engine answers just as well with one rank where two were asked for: slower, and with half the
KV cache. Each node is asked what it can tell: the API server's the log, all of them their workers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from rackpin import layout
from rackpin.checks import engineprocs, gpuinfo, procinfo
from rackpin.checks.base import (
    INACTIVE,
    NO_ANSWER,
    SERVING,
    Command,
    Context,
    Outputs,
    Question,
    one_line,
    sections,
    unseen,
)
from rackpin.checks.gpuinfo import Told
from rackpin.checks.procinfo import Proc
from rackpin.checks.servingdata import serving
from rackpin.findings import Finding, Level
from rackpin.inventory import Instance
from rackpin.parse import engine_log
from rackpin.parse.engine_log import EngineLog
from rackpin.parse.kinds import NotThisKind

APPS = Command(
    "gpu.apps",
    "nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory --format=csv,noheader,nounits",
    gpuinfo.DEADLINE_S,
    slow=True,
)
_APP = re.compile(r"(\d+), *([A-Za-z0-9-]+), *(.+)")
_MIB = 2**20


def log_command(instance: Instance) -> Command:
    """The telling lines of this start: of this invocation of the unit, up to when it was ready."""
    unit = layout.vllm_unit(instance.name)
    shell = f"""\
systemctl is-active -q {unit} || exit {INACTIVE}
i=$(systemctl show -p InvocationID --value {unit}) && [ -n "$i" ] || exit 71
t=$(date -d "$(systemctl show -p ActiveEnterTimestamp --value {unit})" +%s) || exit 72
echo '## log'
journalctl -q --no-pager -o cat --until "@$((t + 60))" "_SYSTEMD_INVOCATION_ID=$i" |
  grep -aE '{engine_log.TELLING}' | head -n 300 | cut -c 1-8000
echo '## end'
"""
    return Command(f"tp.log.{instance.name}", shell, deadline_s=20, slow=True)


class TensorParallel:
    id = "tp"
    title = "Engines work over as many ranks as the inventory says"
    level: Level = "node"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        mine = engineprocs.working_here(ctx)
        if not mine:
            return []
        logs = [log_command(instance) for instance in ctx.fleet.instances_on(ctx.node)]
        return [procinfo.COMMAND, *logs, *([APPS] if engineprocs.on_cards(ctx) else [])]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        return [judge_instance(ctx, one, outputs) for one in engineprocs.working_here(ctx)]


def judge_instance(ctx: Context, instance: Instance, outputs: Outputs) -> Finding:
    """``tp.NAME`` on each node of the engine."""
    here = instance.nodes[0] == ctx.node.name
    asked = log_command(instance) if here else procinfo.COMMAND
    output = outputs.get(asked.name, NO_ANSWER)
    size = f"tp {instance.tp}, pp {instance.pp}"
    count = engineprocs.wanted(ctx, instance)
    expected = f"{size} over {len(instance.nodes)} nodes, {count} ranks here"
    question = Question(ctx, f"tp.{instance.name}", asked, output, expected, "inventory: instances")
    unit = layout.vllm_unit(instance.name)
    first = f"see units.vllm@{instance.name} on {instance.nodes[0]}; verify again when it is active"
    told, metrics = Told(), dict[str, float]()
    shown: list[str] = []
    good: list[str] = []
    if here:
        if output.rc == INACTIVE:
            return question.not_run("engine is not running", remedy=first)
        log = read_log(question, outputs)
        if isinstance(log, str):
            told.untold.append(log)
        else:
            good.append(judge_log(ctx, instance, log, told, metrics))
            shown += log.shown
    procs, why = procinfo.read(outputs)
    if procs is None:
        told.untold.append(f"its workers: {why}")
    else:
        good.append(judge_workers(ctx, instance, procs, told, metrics))
        shown += [f"{p.unit} {p}" for p in engineprocs.of_instance(ctx, instance, procs)]
        if engineprocs.on_cards(ctx):
            good.append(judge_cards(ctx, instance, procs, outputs, told, metrics))
            shown += outputs.get(APPS.name, NO_ANSWER).stdout.splitlines()
    return gpuinfo.conclude(
        question,
        ", ".join(part for part in good if part),
        told,
        shown="\n".join(shown),
        remedy=f"on {instance.nodes[0]}: systemctl cat {unit} against the inventory, journalctl -u "
        f"{unit} -b for a rank that died; then restart it in a wave",
        metrics=metrics,
    )


def read_log(question: Question, outputs: Outputs) -> EngineLog | str:
    """The engine's last start, or why it isn't known."""
    asked = question.asked
    assert asked is not None  # made with it above
    output = outputs.get(asked.name, NO_ANSWER)
    if why := unseen(asked, output):
        return f"its log: {why}"
    parts = sections(output.stdout)
    if not output.ok or not {"log", "end"} <= parts.keys():
        return f"its log (exit status {output.rc}): {one_line(output.stderr, 150)}"
    try:
        return engine_log.read(parts["log"])
    except NotThisKind as error:
        return f"its log: {error}; the journal no longer holds this start, so restart it in a wave"


def judge_log(
    ctx: Context, instance: Instance, log: EngineLog, told: Told, metrics: dict[str, float]
) -> str:
    """Sizes, the groups that ranks formed, and the KV cache."""
    for label, has, want in (("tp", log.tp, instance.tp), ("pp", log.pp, instance.pp)):
        if has is None and want > 1:
            told.untold.append(f"the log has no {label}")
        elif has not in (None, want):
            told.faults.append(f"the engine was started with {label} {has}, not {want}")
    world = instance.tp * instance.pp * (log.dp or 1)
    for formed in sorted(log.worlds - {world}):
        told.faults.append(f"its ranks formed a world of {formed}, not {world}")
    for label, ranks, size in (
        ("TP", log.tp_ranks, instance.tp),
        ("PP", log.pp_ranks, instance.pp),
    ):
        if ranks and max(ranks) >= size:
            told.faults.append(f"there is a {label} rank {max(ranks)} in a group of {size}")
    if log.backends - {"nccl"} and engineprocs.on_cards(ctx):
        told.faults.append(f"its ranks speak {', '.join(sorted(log.backends))}, not nccl")
    if not log.kv_told:
        told.untold.append("the log has no size of the KV cache")
    limit = instance.max_model_len
    if log.kv_blocks == 0 or log.kv_tokens == 0:
        told.faults.append("the KV cache is empty")
    elif log.kv_tokens is not None and limit and log.kv_tokens < limit:
        told.faults.append(f"the KV cache holds {log.kv_tokens} tokens, not one of {limit}")
    for name, value in (("kv_tokens", log.kv_tokens), ("kv_blocks", log.kv_blocks)):
        if value is not None:
            metrics[name] = value
            _against_history(ctx, instance, name, value, told)
    if log.worlds:
        metrics["world_size"] = max(log.worlds)
    ranks_of = f"world of {max(log.worlds)}" if log.worlds else f"tp {log.tp}"
    kv = f"{log.kv_tokens:,} tokens" if log.kv_tokens is not None else f"{log.kv_blocks} blocks"
    return f"{ranks_of}, KV cache of {kv}"


def _against_history(ctx: Context, instance: Instance, name: str, value: float, told: Told) -> None:
    earlier = ctx.history.get(f"tp.{instance.name} {name}", ())
    data = serving()
    if len(earlier) >= data.earlier_runs.least:
        usual = median(earlier)
        if value < data.tensor_parallel.kv_warn * usual:
            told.worries.append(f"{name} {value:g}, {usual:g} is usual here: less memory was free")


def judge_workers(
    ctx: Context,
    instance: Instance,
    procs: dict[int, Proc],
    told: Told,
    metrics: dict[str, float],
) -> str:
    """A process a rank, whatever the log says."""
    want = engineprocs.wanted(ctx, instance)
    has = len(engineprocs.ranks(ctx, instance, procs))
    whose = "engine ranks of Ray" if instance.executor == "ray" else "ranks"
    if has != want and not engineprocs.has_names(ctx, instance):
        told.untold.append(f"its ranks: vLLM {ctx.lock.engine.version} doesn't name its workers")
        return ""
    metrics["ranks_count"] = has
    if has < want:
        told.faults.append(f"{has} {whose} run here, not {want}")
    elif has > want:
        told.faults.append(f"{has} {whose} run here, not {want}: some are left over from a start")
    return f"{has} {whose} here"


def judge_cards(
    ctx: Context,
    instance: Instance,
    procs: dict[int, Proc],
    outputs: Outputs,
    told: Told,
    metrics: dict[str, float],
) -> str:
    """Memory of the engine's processes by card: one that is nearly empty has no rank."""
    output = outputs.get(APPS.name, NO_ANSWER)
    rows = [_APP.fullmatch(line.strip()) for line in output.stdout.splitlines() if line.strip()]
    if why := unseen(APPS, output) or (
        None if output.ok and all(rows) else "no table of processes"
    ):
        told.untold.append(f"memory on the cards: {why}")
        return ""
    mine = {proc.pid for proc in engineprocs.of_instance(ctx, instance, procs)}
    used: dict[str, float] = {}
    for row in rows:
        if row is None or int(row[1]) not in mine:
            continue
        if not row[3].isdigit():
            told.untold.append(f"memory of process {row[1]}: {row[3]}")
            return ""
        used[row[2]] = used.get(row[2], 0) + int(row[3]) * _MIB
    want = engineprocs.wanted(ctx, instance)
    if not used:
        told.faults.append(f"none of its processes holds memory of a card, {want} cards should")
        return ""
    most = max(used.values())
    bounds = serving().tensor_parallel
    metrics["card_min_bytes"], metrics["card_max_bytes"] = min(used.values()), most
    several = instance.executor == "ray" and want != instance.gpus_per_node
    least = 0.0 if several else bounds.card_fail * most  # ranks of two engines need not be alike
    full = {card: size for card, size in used.items() if size >= least}
    how = "in use by several engines" if several else "filled alike"
    if len(full) != want:
        listed = ", ".join(f"{c[:12]} {s / _MIB:.0f} MiB" for c, s in sorted(used.items()))
        told.faults.append(f"{len(full)} of {want} cards are {how}: {listed}")
    elif not several and min(full.values()) < bounds.card_warn * most:
        told.worries.append(
            f"its cards hold {min(full.values()) / _MIB:.0f} to {most / _MIB:.0f} MiB"
        )
    return f"{len(full)} cards {how}"


CHECK = TensorParallel()
