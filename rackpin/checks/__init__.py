"""Checks: questions to a node and their pure judgements; the registry and one node's run."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.checks import (
    address,
    apt,
    baseline,
    clock,
    clock_source,
    collective,
    containers,
    disk,
    fabric_counters,
    fabric_hcas,
    fabric_look,
    fabric_manager,
    fabric_nvlink,
    gateway,
    gateway_engines,
    gpu_allreduce,
    gpu_clocks,
    gpu_count,
    gpu_dcgm,
    gpu_driver,
    gpu_holders,
    gpu_link,
    gpu_memory,
    gpu_modes,
    gpu_next_boot,
    gpu_pci,
    gpu_xid,
    host_boot,
    host_cpu,
    host_log,
    host_memory,
    host_services,
    host_storage,
    hosts,
    kernel,
    limits,
    listeners,
    long_prompts,
    models,
    nccl_mapped,
    net_fabric,
    ray_cluster,
    running,
    secrets,
    smoke,
    sysctl,
    tensor_parallel,
    units,
    upgrades,
    versions,
)
from rackpin.checks.base import Check, Command, Context, Output, Outputs, Question, Runner
from rackpin.findings import LEVELS, Finding, Level, Outcome

# In the order in which a person reads them: what it is, what runs, what it gives.
ALL: tuple[Check, ...] = (
    versions.CHECK,
    models.CHECK,
    running.CHECK,
    units.CHECK,
    limits.CHECK,
    sysctl.CHECK,
    kernel.CHECK,
    hosts.CHECK,
    address.CHECK,
    clock.CHECK,
    clock_source.CHECK,
    disk.CHECK,
    host_storage.MOUNTS,
    host_storage.STATE,
    host_storage.SMART,
    host_boot.BOOT,
    host_boot.REBOOT,
    host_cpu.CHECK,
    host_memory.ERRORS,
    host_memory.FREE,
    host_memory.SHM,
    host_services.SERVICES,
    host_services.PACKAGES,
    host_log.CHECK,
    net_fabric.CHECK,
    containers.TOOLKIT,
    containers.SHM,
    upgrades.CHECK,
    apt.CHECK,
    listeners.CHECK,
    secrets.CHECK,
    gpu_count.CHECK,
    gpu_count.MODEL,
    gpu_driver.CHECK,
    gpu_xid.CHECK,
    gpu_memory.ECC,
    gpu_memory.ROWS,
    gpu_link.CHECK,
    gpu_clocks.CHECK,
    gpu_modes.MIG,
    gpu_modes.PERSISTENCE,
    gpu_modes.VBIOS,
    gpu_next_boot.CHECK,
    gpu_holders.CHECK,
    gpu_dcgm.CHECK,
    gpu_pci.PAYLOAD,
    gpu_pci.ERRORS,
    fabric_manager.CHECK,
    fabric_manager.GPUS,
    fabric_nvlink.CHECK,
    fabric_hcas.CHECK,
    fabric_counters.CHECK,
    gpu_pci.ADAPTERS,
    fabric_look.ACS,
    fabric_look.IOMMU,
    fabric_look.MODULES,
    fabric_look.MAP,
    gpu_allreduce.CHECK,
    ray_cluster.CHECK,
    collective.CHECK,
    smoke.CHECK,
    tensor_parallel.CHECK,
    nccl_mapped.CHECK,
    gateway.CHECK,
    gateway_engines.UPSTREAMS,
    gateway_engines.ANSWERS,
    baseline.CHECK,
    long_prompts.CHECK,
)


def of_level(level: Level, serving: bool = True, idle: bool = False) -> tuple[Check, ...]:
    """The checks that a verify of this level asks of one node.

    ``serving=False`` leaves out what needs Ray and engines to run; ``idle=True`` takes those in
    that need a node whose cards nobody uses.
    """
    asked = LEVELS[: LEVELS.index(level) + 1]
    without = ({"serving"} if not serving else set()) | ({"idle"} if not idle else set())
    return tuple(c for c in ALL if c.level in asked and not c.needs & without)


# What a run asks that says nothing else.
DEFAULT = of_level("node")


def plan(ctx: Context, checks: Sequence[Check] = DEFAULT) -> tuple[list[Command], list[Finding]]:
    """All commands for this node, each once, and findings for checks that couldn't say theirs."""
    commands: dict[str, Command] = {}
    broken: list[Finding] = []
    for check in checks:
        try:
            for command in check.commands(ctx):
                if commands.setdefault(command.name, command) != command:
                    raise ValueError(f"another check asks {command.name} in other words")
        except Exception as error:
            broken.append(_bug(ctx, check, error, Outcome.NOT_RUN))
    return list(commands.values()), broken


def judge(ctx: Context, outputs: Outputs, checks: Sequence[Check] = DEFAULT) -> list[Finding]:
    """Findings of all checks from the outputs. Never raises: a check's bug fails the check."""
    found: list[Finding] = []
    for check in checks:
        try:
            found += check.judge(ctx, outputs)
        except Exception as error:
            found.append(_bug(ctx, check, error, Outcome.FAIL))
    return found


def run_node(ctx: Context, runner: Runner, checks: Sequence[Check] = DEFAULT) -> list[Finding]:
    """Ask everything in one go and judge it. Never raises an Exception.

    A runner that fails gives the checks nothing to judge, and each says so (``not_run``).
    """
    commands, broken = plan(ctx, checks)
    outputs: dict[str, Output] = {}
    try:
        outputs.update(runner(commands))
    except Exception as error:
        outputs = {
            c.name: Output(rc=None, stderr=f"{type(error).__name__}: {error}") for c in commands
        }
    return broken + judge(ctx, outputs, checks)


def _bug(ctx: Context, check: Check, error: Exception, outcome: Outcome) -> Finding:
    question = Question(ctx, check.id, source="rackpin")
    summary = f"the check itself is broken: {type(error).__name__}: {error}"
    return question.answer(outcome, summary, remedy="report this as a bug, with the report file")


__all__ = ["ALL", "Check", "Command", "Context", "Output", "judge", "of_level", "plan", "run_node"]
