"""Verify's way to lab hosts: all commands of a node in one ssh, several nodes at the same time."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from rackpin.checks import batch
from rackpin.checks.base import Command, Output
from rackpin.lab import ssh
from rackpin.lab.state import LabState
from rackpin.verify.asking import Asker


def asker(lab: LabState) -> Asker:
    """An Asker over ssh to the lab's hosts."""

    def one(name: str, commands: Sequence[Command]) -> dict[str, Output]:
        def execute(text: str, limit_s: float) -> str:
            line = [*ssh.argv(lab, lab.host(name), "-o", "BatchMode=yes"), "sh -s"]
            done = subprocess.run(
                line, input=text, capture_output=True, text=True, timeout=limit_s + 30
            )
            return done.stdout

        try:
            return batch.remote(execute)(commands)
        except (OSError, subprocess.SubprocessError):
            return {}

    def ask(wanted: Mapping[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
        with ThreadPoolExecutor(max(1, len(wanted))) as pool:
            return dict(zip(wanted, pool.map(one, wanted, wanted.values()), strict=True))

    return ask
