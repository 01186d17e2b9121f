"""Which processes are an engine's ranks, by the names that vLLM and Ray give them."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from rackpin import layout
from rackpin.checks import gpuinfo
from rackpin.checks.base import Context
from rackpin.checks.procinfo import Proc
from rackpin.inventory import Instance
from rackpin.stack.lock import Lock

RAY_WORKER = "ray::RayWorker"  # RayWorkerWrapper, later RayWorkerProc
COMM_CHARS = 15  # of a name that the kernel keeps
PREFIX = "VLLM_PROCESS_NAME_PREFIX"  # an operator's own word in place of VLLM
# vLLM names its own processes since August 2025 (vllm#21780, #22205). Up to 0.4.2 it used Ray on
# one node as well, an actor for each rank. Between them local workers are called python.
NAMED_FROM = Version("0.10.2")
RAY_ALWAYS_UP_TO = Version("0.4.2")


def engine_nccl(lock: Lock) -> tuple[str, str] | None:
    """Distribution and version of the NCCL wheel that the engine is meant to load, if any."""
    pinned = lock.host.nccl.engine
    if pinned is not None:
        return pinned.distribution, pinned.version
    found = [(n, v) for n, v in lock.dists.items() if n.startswith("nvidia-nccl-cu")]
    return found[0] if found else None


def on_cards(ctx: Context) -> bool:
    """Whether this stack's engine works on this node's cards; a build for CPU leaves them alone."""
    return gpuinfo.has_cards(ctx) and engine_nccl(ctx.lock) is not None


def engine_version(ctx: Context) -> Version | None:
    try:
        return Version(ctx.lock.engine.version)
    except InvalidVersion:
        return None


def has_names(ctx: Context, instance: Instance) -> bool:
    """Whether this version's ranks can be told from other processes by their names."""
    version = engine_version(ctx)
    if instance.executor == "ray":
        return True
    return version is not None and (version >= NAMED_FROM or version <= RAY_ALWAYS_UP_TO)


def own_names(ctx: Context, instance: Instance) -> tuple[str, str]:
    """How the names of the engine's core and of its local workers begin."""
    prefix = instance.env.get(PREFIX) or ctx.node.env.get(PREFIX) or "VLLM"
    return f"{prefix}::EngineCore"[:COMM_CHARS], f"{prefix}::Worker"[:COMM_CHARS]


def in_one_process(instance: Instance) -> bool:
    """A single rank works inside the engine's own process, without a worker of its own."""
    return instance.tp * instance.pp == 1


def of_instance(ctx: Context, instance: Instance, procs: dict[int, Proc]) -> list[Proc]:
    """Processes on this node that may hold a part of the engine: its unit's, and Ray's workers."""
    unit = layout.vllm_unit(instance.name)
    mine = [proc for proc in procs.values() if proc.unit == unit]
    return mine + (ray_workers(procs) if instance.executor == "ray" else [])


def ray_workers(procs: dict[int, Proc]) -> list[Proc]:
    """Engine ranks under this node's Ray, of whichever engine."""
    units = (layout.RAY_HEAD_UNIT, layout.RAY_WORKER_UNIT)
    return [p for p in procs.values() if p.unit in units and p.comm.startswith(RAY_WORKER)]


def ranks(ctx: Context, instance: Instance, procs: dict[int, Proc]) -> list[Proc]:
    """The engine's rank processes on this node. Ray's are those of all its engines together."""
    if instance.executor == "ray":
        return ray_workers(procs)
    unit = layout.vllm_unit(instance.name)
    mine = [proc for proc in procs.values() if proc.unit == unit]
    core, worker = own_names(ctx, instance)
    if in_one_process(instance):
        cores = [proc for proc in mine if proc.comm == core]
        named = (version := engine_version(ctx)) is not None and version >= NAMED_FROM
        return cores if named else [proc for proc in mine if proc.envs][:1]
    return [p for p in mine if p.comm.startswith((worker, RAY_WORKER))]


def wanted(ctx: Context, instance: Instance) -> int:
    """How many ranks :func:`ranks` should find on this node."""
    if instance.executor == "local":
        return instance.gpus_per_node
    return sum(i.gpus_per_node for i in working_here(ctx) if i.executor == "ray")


def working_here(ctx: Context) -> list[Instance]:
    """Engines with ranks on this node."""
    return ctx.fleet.instances_over(ctx.node)
