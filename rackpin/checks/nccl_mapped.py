"""The NCCL that counts is the one that the engine's processes have mapped.

A host's libnccl2, a variable in a unit, or a file replaced under a running process: none of it
shows in any version that a package manager prints (failures F086).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from rackpin import layout
from rackpin.checks import engineprocs, probe, procinfo
from rackpin.checks.base import (
    NO_ANSWER,
    SERVING,
    Command,
    Context,
    Outputs,
    Question,
    one_line,
    unseen,
)
from rackpin.checks.versions import env_dir
from rackpin.findings import Finding, Level

COMMAND = Command(
    "nccl.maps",
    f"exec {layout.PYTHON} -I -",
    deadline_s=20,
    stdin=probe.text("nccl_mapped", params={"units": procinfo.UNIT_PATTERN}),
    slow=True,
)


def wanted_path(ctx: Context) -> str:
    """Where every NCCL wheel has its library."""
    return f"{env_dir(ctx)}/lib/python{ctx.lock.python}/site-packages/nvidia/nccl/lib/libnccl.so.2"


class NcclMapped:
    id = "nccl.mapped"
    title = "Engine processes use the NCCL of the lock, and no other"
    level: Level = "node"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [COMMAND] if engineprocs.working_here(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not engineprocs.working_here(ctx):
            return []
        want = engineprocs.engine_nccl(ctx.lock)
        expected = f"{want[0]} {want[1]}: {wanted_path(ctx)}" if want else "none: the lock has none"
        output = outputs.get(COMMAND.name, NO_ANSWER)
        source = f"lock {ctx.lock.stack}"
        question = Question(ctx, self.id, COMMAND, output, expected, source)
        why = unseen(COMMAND, output)
        if why is None:
            try:
                facts = probe.answer(output.stdout)
            except ValueError as error:
                why = f"{error} (exit status {output.rc}): {one_line(output.stderr, 200)}"
        if why is not None:
            return [question.not_run(why)]
        procs = _procs(facts)
        if procs is None or facts.get("unread") != 0:
            return [question.not_run(f"the maps of {facts.get('unread')} processes were not read")]
        return [judge_mapped(question, want[1] if want else None, procs)]


def _procs(facts: dict[str, Any]) -> list[dict[str, Any]] | None:
    procs = facts.get("procs")
    whole = isinstance(procs, list) and all(
        isinstance(p, dict)
        and all(isinstance(p.get(key), str) for key in ("unit", "comm"))
        and isinstance(p.get("environment"), dict)
        and isinstance(p.get("libraries"), list)
        and all(
            isinstance(one, dict) and isinstance(one.get("path"), str) for one in p["libraries"]
        )
        for p in procs
    )
    return procs if whole else None


def judge_mapped(question: Question, want: str | None, procs: list[dict[str, Any]]) -> Finding:
    """Every mapped libnccl of every process, then whether the engine's processes map one."""
    ctx = question.ctx
    faults: dict[str, list[str]] = {}
    unread: list[str] = []
    plugins: set[str] = set()
    shown = []
    users = 0
    for proc in procs:
        who = f"{proc['comm']}[{proc.get('pid')}]"
        mapped = []
        for one in proc["libraries"]:
            path, version = one["path"], one.get("version")
            shown.append(
                f"{proc['unit']} {who}: {path}{' (deleted)' if one.get('deleted') else ''} "
                f"{version or 'version not read'}"
            )
            if not PurePosixPath(path).name.startswith("libnccl.so"):
                plugins.add(path)
                continue
            mapped.append(path)
            if one.get("deleted"):
                faults.setdefault(f"{path} was replaced under a running process", []).append(who)
            if want is None:
                fault = f"{path} is in use, and the lock has no NCCL"
                faults.setdefault(fault, []).append(who)
                continue
            if path != wanted_path(ctx):
                fault = f"{path} is in use, not the one of the lock"
                faults.setdefault(fault, []).append(who)
            if version is None:
                unread.append(path)
            elif version != want:
                fault = f"NCCL {version} is in use, locked {want}"
                faults.setdefault(fault, []).append(who)
        users += bool(mapped)
        if mapped:
            shown += [f"  {name}={value}" for name, value in proc["environment"].items()]
        if want is not None and not mapped and is_engine(ctx, proc):
            faults.setdefault("an engine process has no NCCL mapped", []).append(who)
    listed = [f"{fault} ({', '.join(who[:4])})" for fault, who in faults.items()]
    if not listed and not any(is_engine(ctx, proc) for proc in procs):
        remedy = "see units; verify again when the engine runs"
        return question.not_run("no engine process runs here", remedy=remedy)
    if unread and not listed:
        return question.not_run(f"the version of {unread[0]} could not be read")
    good = f"NCCL {want} in {users} processes" if want else "no process maps an NCCL"
    if not want:
        good += ": this stack's engine has none"
    if plugins:
        good += f"; plugins: {', '.join(sorted(plugins))}"
    return question.verdict(
        good,
        listed,
        shown="\n".join(shown) or "no file called libnccl* is mapped",
        remedy="LD_LIBRARY_PATH, LD_PRELOAD and VLLM_NCCL_SO_PATH in the evidence and in systemctl "
        "cat of the unit say where it comes from; take that away, then restart it in a wave",
        metrics={"processes_count": users},
    )


def is_engine(ctx: Context, proc: dict[str, Any]) -> bool:
    """An engine's own core or rank; API servers and Ray's agents need no NCCL.

    Old versions work in the process of the API server, which has no name of its own.
    """
    names = [engineprocs.own_names(ctx, one) for one in engineprocs.working_here(ctx)]
    if str(proc["comm"]).startswith((engineprocs.RAY_WORKER, *(n for pair in names for n in pair))):
        return True
    version = engineprocs.engine_version(ctx)
    unnamed = version is None or version < engineprocs.NAMED_FROM
    return unnamed and str(proc["unit"]).startswith("vllm@") and _is_main(proc)


def _is_main(proc: dict[str, Any]) -> bool:
    """The unit's server, not the resource trackers and compilers that it starts."""
    return proc.get("main") is True


CHECK = NcclMapped()
