"""What a healthy head node answers to every command of the checks; tests change one part of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rackpin.checks import batch, judge, nccl_mapped, plan, probe, ray_cluster, sysctl, upgrades
from rackpin.checks.base import Check, Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding
from tests.unit import apt_samples, host_samples, serving_samples

DATA = Path(__file__).parent / "data" / "checks"


def context(target: Target, name: str = "head1") -> Context:
    return Context(target.fleet, target.fleet.nodes[name], target.lock)


def with_config(ctx: Context, **changes: Any) -> Context:
    """The same context with other values in the fleet's configuration."""
    config = ctx.fleet.config.model_copy(update=changes)
    return replace(ctx, fleet=ctx.fleet.model_copy(update={"config": config}))


def text(ctx: Context, name: str) -> str:
    guarded = "\n".join(
        f'Unattended-Upgrade::Package-Blacklist:: "{item}";' for item in upgrades.guarded(ctx)
    )
    sample = (DATA / name).read_text(encoding="utf-8")
    return sample.replace("@ENV@", ctx.lock.env_name).replace("@GUARDED@", guarded)


def ok(stdout: str, rc: int = 0) -> Output:
    return Output(rc=rc, stdout=stdout, seconds=0.02)


UNITS = {812: "ray-head", 845: "ray-head", 901: "ray-head", 1377: "vllm@two", 1440: "vllm@two"}


def listening(first: str, second: str | None = None) -> Output:
    """The answer of the command ``listeners`` from what ``ss -H -ltnp`` printed twice."""
    cgroups = "".join(f"{p}/cgroup:0::/system.slice/{u}.service\n" for p, u in UNITS.items())
    other = "301/cgroup:0::/system.slice/ssh.service\n4242/cgroup:0::/user.slice/x.scope\n"
    second = first if second is None else second
    return ok(f"## first\n{first}\n## cgroup\n{cgroups}{other}## second\n{second}\n## end\n")


def ray_facts(ctx: Context) -> dict[str, Any]:
    nodes = ctx.fleet.ray_nodes
    return {
        "ray": ctx.lock.dists["ray"],
        "nodes": [
            {
                "id": f"id{number}",
                "alive": True,
                "address": node.address,
                "hostname": node.name,
                "resources": {"CPU": 4.0, f"node:{node.address}": 1.0}
                | ({"GPU": float(ctx.fleet.ray_gpus(node))} if ctx.fleet.ray_gpus(node) else {}),
                "death": "",
            }
            for number, node in enumerate(nodes)
        ],
        "placement": {"placed": True, "seconds": 0.004, "removed": True},
        "members": [
            {
                "rank": rank,
                "address": node.address,
                "ray_address": node.address,
                "hostname": node.name,
                "interface": "host0",
                "python": "3.11.2",
                "ray": ctx.lock.dists["ray"],
                "torch": ctx.lock.dists["torch"],
                "prefix": f"/opt/rackpin/env/{ctx.lock.env_name}",
            }
            for rank, node in enumerate(nodes)
        ],
        "collective": {
            "world": len(nodes),
            "bytes": 67108864,
            "seconds": [0.25, 0.26, 0.24],
            "wrong": 0,
            "wrong_ranks": [],
            "algbw_gb_s": 0.27,
            "busbw_gb_s": 0.36,
        },
    }


def smoke_facts(name: str = "two") -> dict[str, Any]:
    answer = {"status": 200, "text": " the cables", "tokens": 16, "finish": "length"}
    return {
        "key": True,
        "models": {"status": 200, "names": [name], "body": ""},
        "completion": answer,
        "stream": {**answer, "done": True, "chunks": 16, "ttft_s": 0.05, "tokens_per_s": 40.0},
        "repeat": answer,
        "auth": {"models": 401, "completion": 401, "wrong_key": 401, "open": []},
    }


def probe_text(facts: dict[str, Any]) -> str:
    return "a library's own line\n" + probe.MARK + json.dumps(facts) + "\n"


def good(ctx: Context) -> dict[str, Output]:
    """Outputs of head1 by command name; every finding of it is a pass."""
    wish, skip = sysctl.settings(ctx)
    lines = "\n".join(f"{key} = {value}" for key, value in {**wish, **skip}.items())
    dists = json.dumps({"python": f"{ctx.lock.python}.2", "dists": ctx.lock.dists})
    return {
        "versions.current": ok(f"/opt/rackpin/env/{ctx.lock.env_name}\ncomplete\n"),
        "versions.installed": ok(dists),
        "procs": ok(text(ctx, "procs.head1.txt")),
        "units.show": ok(text(ctx, "systemctl-show.head1.txt")),
        "units.dropins": ok("## /usr/lib/systemd/system/service.d/10-vendor.conf\n[Service]\n"),
        "units.journal": ok(""),
        "units.failed": ok("## end\n"),
        "sysctl": ok(f"## live\n{lines}\n## owned\n# Owned\n{lines}\n## files\n## end\n"),
        "swap": ok("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n## end\n"),
        "thp": ok("enabled always [madvise] never\ndefrag always defer [madvise] never\n"),
        "hosts": ok(text(ctx, "hosts.head1.txt")),
        "clock.sync": ok("NTP=yes\nNTPSynchronized=yes\n"),
        batch.CLOCK: ok("1000.0 1010.0 1000.4 1009.7"),
        "disk": ok(text(ctx, "disk.txt")),
        "guard": ok(text(ctx, "guard.txt")),
        "apt.state": ok(apt_samples.state_text(Target(ctx.fleet, ctx.node, ctx.lock))),
        "apt.lists": ok(apt_samples.LISTS),
        "apt.look": ok(apt_samples.look_text()),
        "listeners": listening(text(ctx, "ss.head1.txt")),
        "secrets": ok(text(ctx, "secrets.txt")),
        **host_samples.answers(),
        ray_cluster.NAME: ok(probe_text(ray_facts(ctx))),
        "smoke.two": ok(probe_text(smoke_facts())),
        "tp.log.two": ok(serving_samples.journal(serving_samples.log_text())),
        nccl_mapped.COMMAND.name: ok(probe_text(serving_samples.nccl_facts())),
    }


def found(
    ctx: Context, check: Check, outputs: dict[str, Output] | None = None, **changes: Output
) -> dict[str, Finding]:
    """Findings of one check by id, from the good answers with some replaced (``_`` for ``.``)."""
    answers = dict(outputs if outputs is not None else good(ctx))
    names = {name.replace(".", "_").replace("@", "_"): name for name in answers}
    for name, output in changes.items():
        answers[names.get(name, name)] = output
    return {finding.check: finding for finding in judge(ctx, answers, [check])}


def replaced(output: Output, old: str, new: str) -> Output:
    """The output with a part of its text replaced; the part must be there."""
    assert old in output.stdout, f"{old!r} is not in the sample"
    return replace(output, stdout=output.stdout.replace(old, new))


def asked(ctx: Context) -> set[str]:
    return {command.name for command in plan(ctx)[0]} | {batch.CLOCK}
