"""Verify's way to lab hosts: all commands of a node in one ssh, several nodes at the same time."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from rackpin.checks import batch
from rackpin.checks.base import Command, Output
from rackpin.lab import ssh
from rackpin.lab.state import LabState


def asker(lab: LabState):  # type: ignore[no-untyped-def]
    """An Asker over ssh to the lab's hosts."""

    def one(name: str, commands: Sequence[Command]) -> dict[str, Output]:
        deadline = max(command.deadline_s for command in commands)

        def execute(script: str) -> str:
            line = [*ssh.argv(lab, lab.host(name), "-o", "BatchMode=yes"), "sh -s"]
            done = subprocess.run(
                line, input=script, capture_output=True, text=True, timeout=deadline + 30
            )
            return done.stdout

        budget = int(deadline) + 5
        script_of = batch.script

        def run(nonce: str) -> dict[str, Output]:
            return batch.split(execute(script_of(commands, nonce, budget)), nonce)

        try:
            return run("f" * 32)
        except (OSError, subprocess.SubprocessError):
            return {}

    def ask(wanted: Mapping[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
        with ThreadPoolExecutor(max(1, len(wanted))) as pool:
            return dict(zip(wanted, pool.map(one, wanted, wanted.values()), strict=True))

    return ask
