"""Names of a run's parts, and the finding of a node that the run left behind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rackpin.checks.base import mask, one_line
from rackpin.findings import Evidence, Finding, NodeResult, Outcome
from rackpin.inventory import Node
from rackpin.inventory_problems import FLEET


def deploys_of(words: list[str]) -> str:
    """``site``, ``verify``: the deploy files of pyinfra's command line, after the inventory."""
    files = [Path(word).stem for word in words if word.endswith(".py")]
    return "+".join(files[1:]) or "deploy"


def operation_name(state: Any, host: Any, op_hash: str) -> str:
    """The name this host gave it: pyinfra joins operations of hosts by line, not by name."""
    return str(state.get_op_data_for_host(host, op_hash).global_arguments["name"] or op_hash)


def stage_of(operation: str) -> str:
    """Operations are named "stage: what"; pyinfra puts an included file's name before that."""
    own = operation.rpartition(" | ")[2]
    return own.split(":", 1)[0] if ":" in own else "other"


ERROR = re.compile(r"(?i)\b(error|E:|fatal|failed|denied|no space|cannot|can't|unable)\b|^E: ")
SAID = 300  # characters of it


def last_error(lines: Sequence[str]) -> str:
    """The last line that tells of an error, else the last one; nothing secret is in it."""
    said = [line for line in lines if line.strip()]
    told = [line for line in said if ERROR.search(line)] or said
    return one_line(mask(told[-1]), SAID) if told else ""


def noted(lines: Sequence[str]) -> list[str]:
    """What a command that succeeded wants the run to be told: its lines "note: …"."""
    told = [line.removeprefix("note: ") for line in lines if line.startswith("note: ")]
    return [one_line(mask(text), SAID) for text in told]


def stopped_finding(node: Node, result: NodeResult) -> Finding:
    unreachable = result.state == "unreachable"
    return Finding(
        node=node.name,
        check="reachable" if unreachable else f"stage.{result.stage}",
        outcome=Outcome.FAIL,
        summary=f"{'unreachable' if unreachable else 'stopped'} at {result.stage}: {result.reason}",
        expected="the node answers over ssh" if unreachable else "every operation succeeds",
        evidence=Evidence(output=result.reason),
        remedy=(
            f"try `ssh` to it as the inventory says, then run again with --limit {node.name}"
            if unreachable
            else f"see the operation's output above; run again, it goes on where it stopped "
            f"(--limit {node.name})"
        ),
        source="run log",
    )


def kept_out_finding(result: NodeResult, error: str) -> Finding:
    """The fleet's, not the node's own: those of a quarantined node are left out of the verdict."""
    return Finding(
        node=FLEET,
        check=f"stage.{result.stage}",
        outcome=Outcome.FAIL,
        summary=f"{result.name}, which is quarantined, stopped at {result.stage}: {error}",
        expected="a quarantined node gets every stage",
        evidence=Evidence(output=error),
        remedy="see the operation's output above; run again, it goes on where it stopped; a node "
        "that can't take the stages is left out with --limit or goes out of the inventory",
        source="run log",
    )
