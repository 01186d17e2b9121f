"""Who listens where: only what the inventory knows may be reached from outside (F113, F116)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackpin import layout
from rackpin.checks import sockets
from rackpin.checks.base import NO_ANSWER, SERVING, Command, Context, Outputs, Question
from rackpin.checks.sockets import Listener
from rackpin.findings import Finding, Level
from rackpin.stack import share

EXPECTED = "from outside: ssh, Ray's fixed and worker ports, the engines' ports, extra_listeners"
RAY = (layout.RAY_HEAD_UNIT, layout.RAY_WORKER_UNIT)


@dataclass(frozen=True)
class Rule:
    """What a port is for. ``units`` may own it; else a program of ``programs``; else anybody."""

    what: str
    units: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def admits(self, units: frozenset[str], program: str) -> bool:
        if self.units:
            return bool(units & {*self.units})
        return not self.programs or program in self.programs


class Listeners:
    id = "listeners"
    title = "Ports that are open to other hosts"
    level: Level = "quick"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [sockets.COMMAND]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        source = "inventory: ray.ports, instances, extra_listeners; failures F116 (CVE-2023-48022)"
        asked = sockets.COMMAND
        output = outputs.get(asked.name, NO_ANSWER)
        question = Question(ctx, self.id, asked, output, EXPECTED, source)
        found, why = sockets.read(outputs)
        if found is None:
            return [question.not_run(why)]
        return [judge_listeners(ctx, question, found)]


def rules(ctx: Context) -> dict[int, Rule]:
    """What may be open on this node, by port. Ray's worker range is asked in :func:`rule_for`."""
    config, node = ctx.fleet.config, ctx.node
    ssh = int(ctx.extra.get("ssh_port", "22"))
    found = {ssh: Rule("ssh", programs=("sshd", "systemd", "sshd-session"))}
    if node.in_ray:
        inside = sockets.is_loopback(config.ray.dashboard_host)
        for name, port in config.ray.ports.of_node(node.is_head).items():
            if not (name == "dashboard" and inside):
                found[port] = Rule(f"Ray's {name}", RAY)
    for instance in ctx.fleet.instances_on(node):
        unit = layout.vllm_unit(instance.name)
        found[instance.port] = Rule(f"engine {instance.name}", (unit,))
    if node.is_gateway:
        found[config.gateway.port] = Rule("the gateway", programs=("nginx",))
    if config.transfers.neighbours:
        found[config.transfers.port] = Rule("wheels for its neighbours", (share.UNIT,))
    for port in config.extra_listeners:
        found.setdefault(port, Rule("extra_listeners"))
    return found


def rule_for(ctx: Context, known: Mapping[int, Rule], port: int) -> Rule | None:
    if port in known:
        return known[port]
    ports = ctx.fleet.config.ray.ports
    if ctx.node.in_ray and ports.worker_min <= port <= ports.worker_max:
        # An engine that uses Ray is a driver: it has a port of the range too.
        engines = [layout.vllm_unit(i.name) for i in ctx.fleet.instances_on(ctx.node)]
        return Rule("Ray's workers", (*RAY, *engines))
    return None


def judge_listeners(ctx: Context, question: Question, found: Sequence[Listener]) -> Finding:
    """``listeners``: strangers fail; what our own units opened besides is only counted.

    Engines and Ray open further ports of the kernel's choice (gloo, NCCL, message queues):
    they can't be named beforehand, but the process that holds them can.
    """
    known = rules(ctx)
    dashboard = ctx.fleet.config.ray.ports.dashboard
    faults, notes, dynamic, right = [], [], 0, 0
    for listener in found:
        if listener.loopback:
            continue
        units = listener.units
        rule = rule_for(ctx, known, listener.port)
        if rule is not None and rule.admits(units, listener.program):
            right += 1
            notes.append(f"{listener} ({rule.what})")
        elif rule is not None:
            faults.append(f"{listener} holds the port of {rule.what}")
        elif not units:
            faults.append(f"not expected: {listener}")
        elif listener.port == dashboard:
            faults.append(f"Ray's dashboard is open to other hosts: {listener}")
        else:
            dynamic += 1
            notes.append(f"{listener} ({', '.join(sorted(units))}, port of the kernel's choice)")
    return question.verdict(
        f"{right} known listeners, {dynamic} more of our own units, no stranger",
        faults,
        shown="\n".join(faults + notes),
        remedy="stop the program (systemctl status PID), bind it to loopback, or name its port in "
        "extra_listeners",
        metrics={"known_count": right, "dynamic_count": dynamic},
    )


CHECK = Listeners()
