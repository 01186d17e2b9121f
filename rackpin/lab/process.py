"""Processes of the control machine: run with a deadline, recognise again, end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rackpin.lab.errors import LabError
from rackpin.lab.supervisor import start_time


def run(
    argv: Sequence[str], *, deadline_s: float = 20.0, stdin: str = "", check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command of the control machine; :class:`LabError` when it fails or takes too long."""
    shown = " ".join(argv)
    try:
        done = subprocess.run(
            list(argv), input=stdin, capture_output=True, text=True, timeout=deadline_s, check=False
        )
    except FileNotFoundError as error:
        raise LabError(f"command not found: {argv[0]} (needed for: {shown})") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{shown}` took longer than {deadline_s:g} s") from error
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise LabError(f"`{shown}` ended with {done.returncode}: {said}")
    return done


def run_json(argv: Sequence[str], *, deadline_s: float = 20.0) -> Any:
    """Run a command and read its JSON; an empty answer is an empty list."""
    return json.loads(run(argv, deadline_s=deadline_s).stdout or "[]")


def wait_until(condition: Callable[[], bool], deadline_s: float, interval_s: float = 0.1) -> bool:
    """True as soon as ``condition()`` holds; False when ``deadline_s`` seconds went by."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(interval_s)
    return True


def read_pid(pidfile: Path) -> int | None:
    """The process a pidfile (``PID START_TIME``) names, if that very process still runs."""
    try:
        pid, started = (int(word) for word in pidfile.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return pid if start_time(pid) == started else None


def send(pid: int, sig: signal.Signals) -> None:
    """Signal a process that may have ended meanwhile."""
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return
