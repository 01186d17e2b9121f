"""NCCL's variables in an inventory: what is plainly wrong is a problem, the rest a hint."""

from __future__ import annotations

from collections.abc import Iterator

from rackpin.fabric.lint import Fault, lint
from rackpin.fabric.versions import nccl_versions
from rackpin.inventory import Fleet, Node
from rackpin.inventory_problems import FLEET, Problem
from rackpin.inventory_rules import Draft, Rule
from rackpin.stack.lock import StackError, read_lock
from rackpin.stages.serve import OF_ONE_NODE


def settings(draft: Draft) -> Iterator[Problem]:
    """Variables of nodes and engines that NCCL doesn't read, or reads as something else."""
    versions = _versions(draft)
    for node in draft.nodes.values():
        for fault in lint(node.env, versions):
            if fault.level == "wrong":
                yield Problem(node.name, f"env.{fault.name}", fault.say, fault.remedy)
    for instance in draft.engines("env"):
        for fault in lint(instance.env, versions):
            if fault.level == "wrong":
                key = f"instances[{instance.name}].env.{fault.name}"
                yield Problem(FLEET, key, fault.say, fault.remedy)


def hints(fleet: Fleet, versions: list[str]) -> list[str]:
    """What can be deployed and is better said otherwise; one line each, nodes folded."""
    folded: dict[str, list[str]] = {}

    def hint(who: str, text: str) -> None:
        folded.setdefault(text, []).append(who)

    for node in fleet.nodes.values():
        for fault in lint(node.env, versions):
            hint(node.name, _line(fault))
        for text in _for_nothing(node):
            hint(node.name, text)
    for instance in fleet.config.instances:
        for fault in lint(instance.env, versions):
            hint(f"engine {instance.name}", _line(fault))
        for name in sorted(set(instance.env) & set(OF_ONE_NODE)):
            text = f"{name} is a node's own: vLLM would not hand it to its other nodes"
            hint(f"engine {instance.name}", f"{text}; put it in `env` of the nodes")
    return [f"{', '.join(who)}: {text}" for text, who in folded.items()]


def _for_nothing(node: Node) -> Iterator[str]:
    if not node.gpus and any(name.startswith("NCCL_") for name in node.env):
        yield "NCCL_* of a node without cards: nothing reads them; remove them"


def _line(fault: Fault) -> str:
    return f"{fault.say}; {fault.remedy}"


def _versions(draft: Draft) -> list[str]:
    if "stack" in draft.broken or draft.config.stack not in draft.known_stacks:
        return []
    try:
        return nccl_versions(read_lock(draft.config.stack))
    except StackError:
        return []  # who loads the lock says why; what no release reads is still found


RULES: tuple[Rule, ...] = (settings,)
