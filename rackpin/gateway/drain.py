"""Taking an engine out of the gateway, and knowing when nothing of it is left to wait for."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rackpin.checks import probe
from rackpin.checks.base import NO_ANSWER, Command, Output, one_line, unseen
from rackpin.child import dying_with_parent, pyinfra_argv
from rackpin.inventory import ROOT, Fleet, Instance

REQUEST_S, ASK_S = 5, 20
POLL_S = 1.0
QUIET = 2  # answers of zero in a row: between two steps an engine may count nothing
TELL_S = 900.0  # one run of the stage over all gateways
# Asks one node; how :meth:`rackpin.verify.connect.Connections.ask` does it.
Ask = Callable[[Mapping[str, Sequence[Command]]], dict[str, dict[str, Output]]]


@dataclass(frozen=True)
class Told:
    """What a run of the gateway stage came to."""

    good: bool
    text: str


def tell(
    inventory: str,
    data: Sequence[str],
    group_data: Sequence[str],
    gateways: Sequence[str],
    turn: Path,
    environment: Mapping[str, str] | None = None,
) -> Told:
    """Run the gateway stage on these nodes, as anybody would: the way in is one and the same.

    ``turn``: a lock file of the fleet. Of two that are told at once the older word must not win.
    """
    folders = [str(Path(folder).absolute()) for folder in group_data]
    stage = str(ROOT / "deploys" / "gateway.py")
    argv = pyinfra_argv(str(Path(inventory).absolute()), stage, gateways, data, folders)
    try:
        turn.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(turn, timeout=TELL_S):
            done = subprocess.run(
                argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TELL_S,
                env=environment, preexec_fn=dying_with_parent(),
            )  # fmt: skip
    except Timeout:
        return Told(False, f"another rackpin has been telling the gateways for {TELL_S:.0f} s")
    except subprocess.TimeoutExpired:
        return Told(False, f"not done within {TELL_S:.0f} s")
    return Told(done.returncode == 0, f"{done.stdout}\n{done.stderr}".strip())


def question(fleet: Fleet, instance: Instance) -> Command:
    """How many requests the engine has in hand."""
    params = {
        "host": fleet.nodes[instance.nodes[0]].address,
        "port": instance.port,
        "request_s": REQUEST_S,
        "peers": [node.address for node in fleet.nodes.values() if node.is_gateway],
    }
    script = probe.text("inflight", params=params)
    return Command("inflight", "exec /usr/bin/python3 -I -", ASK_S, stdin=script)


def in_hand(asked: Command, output: Output) -> tuple[int | None, str]:
    """Requests in flight, and how to say it; None when it isn't known."""
    if why := unseen(asked, output):
        return None, why
    try:
        facts: dict[str, Any] = probe.answer(output.stdout)
    except ValueError as error:
        return None, f"{error}: {one_line(output.stderr, 200)}"
    if facts.get("down"):
        return 0, "the engine is not running"
    if "error" in facts:
        return None, one_line(str(facts["error"]), 200)
    if facts.get("status") != 200 or not {"running", "waiting", "connections"} <= facts.keys():
        return (
            None,
            f"its metrics don't say how many requests it has (status {facts.get('status')})",
        )
    running, waiting, links = (facts[name] for name in ("running", "waiting", "connections"))
    text = f"{running} running, {waiting} waiting, {links} connections from the gateway"
    return running + waiting + links, text


def wait_quiet(
    ask: Ask, fleet: Fleet, instance: Instance, limit_s: float, say: Callable[[str], None]
) -> tuple[bool, str]:
    """Until nothing is in flight on the engine; False and the last word after ``limit_s``."""
    asked, node = question(fleet, instance), instance.nodes[0]
    end, quiet, last = time.monotonic() + limit_s, 0, ""
    while True:
        output = ask({node: [asked]})[node].get(asked.name, NO_ANSWER)
        count, text = in_hand(asked, output)
        quiet = quiet + 1 if count == 0 else 0
        if quiet == QUIET:
            return True, text
        if count != 0 and text != last:
            say(f"{instance.name}: {text}")
            last = text
        if time.monotonic() >= end:
            return False, text
        time.sleep(POLL_S)
