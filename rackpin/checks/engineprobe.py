"""Asking one engine by a probe on the node of its API server, and reading what the probe says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackpin import layout
from rackpin.checks import probe
from rackpin.checks.base import (
    INACTIVE,
    NO_ANSWER,
    Command,
    Context,
    Outputs,
    Question,
    one_line,
    unseen,
)
from rackpin.findings import Finding
from rackpin.inventory import Instance


def command(
    ctx: Context,
    instance: Instance,
    check: str,
    probes: tuple[str, ...],
    params: Mapping[str, Any],
    deadline_s: float,
) -> Command:
    """``CHECK.NAME``: the probe by the stack's Python, as root, only if the unit is active."""
    unit = layout.vllm_unit(instance.name)
    shell = f"systemctl is-active -q {unit} || exit {INACTIVE}\nexec {layout.PYTHON} -I -"
    asked = {
        "env_file": f"{layout.INSTANCE_DIR}/{instance.name}.env",
        "host": ctx.node.address,
        "port": instance.port,
        "model": instance.served_name,
        "path": instance.model,
        **params,
    }
    script = probe.text(*probes, params=asked)
    return Command(f"{check}.{instance.name}", shell, deadline_s, stdin=script, slow=True)


def facts(question: Question, instance: Instance, outputs: Outputs) -> dict[str, Any] | Finding:
    """What the probe found, or the finding that says why nothing is known.

    A mute engine fails: its unit is active. A batch that ended the probe before its deadline
    says nothing about the engine.
    """
    asked = question.asked
    assert asked is not None  # every question here is made with its command
    output = outputs.get(asked.name, NO_ANSWER)
    remedy = f"see units.vllm@{instance.name} and smoke.{instance.name}; verify again"
    if output.rc == INACTIVE:
        return question.not_run("engine is not running", remedy=remedy)
    why = unseen(asked, output)
    if output.timed_out and output.seconds >= asked.deadline_s:
        return question.verdict("", [f"the engine gave {why}"], remedy=remedy)
    if why is None:
        try:
            return probe.answer(output.stdout)
        except ValueError as error:
            why = f"{error} (exit status {output.rc}): {one_line(output.stderr, 200)}"
    return question.not_run(why, remedy=remedy)


def part(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of the facts that should be an object; empty when it isn't one."""
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def number(value: object) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value == value and abs(value) != float("inf") else None
