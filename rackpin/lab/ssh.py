"""Reaching the hosts: with the lab's key, against the host keys the lab made."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rackpin.lab.errors import LabError
from rackpin.lab.process import run
from rackpin.lab.state import HostState, LabState

BOOTED = "running", "degraded"
SETTLE_S = 20.0  # a host whose units wait for something is up all the same
PROBE_S = 15.0
PROBE = "cat /proc/sys/kernel/random/boot_id; systemctl is-system-running"


def argv(lab: LabState, host: HostState, *extra: str) -> list[str]:
    """The ssh command line up to the host; nothing of the user's own configuration counts."""
    options = {
        "UserKnownHostsFile": str(lab.known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "ConnectTimeout": "5",
        "LogLevel": "ERROR",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    key = ["-i", str(lab.ssh_key)]
    return ["ssh", "-F", "/dev/null", *key, *words, *extra, f"root@{host.address}"]


def ask(
    lab: LabState, host: HostState, command: str, deadline_s: float = 20.0, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a shell command on a host and give its output."""
    line = [*argv(lab, host, "-o", "BatchMode=yes"), command]
    return run(line, deadline_s=deadline_s, check=check)


def listens(host: HostState, timeout_s: float = 0.5) -> bool:
    """sshd accepts connections."""
    try:
        with socket.create_connection((host.address, 22), timeout=timeout_s):
            return True
    except OSError:
        return False


def boot_id(lab: LabState, host: HostState) -> str:
    return ask(lab, host, "cat /proc/sys/kernel/random/boot_id").stdout.strip()


@dataclass
class _Waiting:
    """A host that is not ready yet, and the question under way."""

    host: HostState
    said: str = "sshd does not answer"
    probe: subprocess.Popen[str] | None = None
    probe_began: float = 0.0
    answered_since: float | None = None
    boot_id: str = ""
    problem: str = ""

    def step(self, lab: LabState, not_this_boot: str) -> None:
        """Ask, or look at the answer; never blocks for long. Sets ``boot_id`` or ``problem``."""
        if self.host.power in ("off", "failed", "unsupervised"):
            self.problem = f"is {self.host.power} instead of booting:{_log_tail(self.host)}"
        elif self.probe is None:
            if listens(self.host, 0.1):
                line = [*argv(lab, self.host, "-o", "BatchMode=yes"), PROBE]
                self.probe_began = time.monotonic()
                self.probe = subprocess.Popen(
                    line,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
        elif self.probe.poll() is not None:
            words = self.finish().split()
            if len(words) != 2 or words[0] == not_this_boot:
                self.said = " ".join(words) or self.said
                return
            self.answered_since = self.answered_since or time.monotonic()
            self.said = f"systemd says {words[1]}"
            settled = time.monotonic() - self.answered_since > SETTLE_S
            if words[1] in BOOTED or (words[1] == "starting" and settled):
                self.boot_id = words[0]
        elif time.monotonic() - self.probe_began > PROBE_S:
            self.finish()

    def finish(self) -> str:
        """End the question; what was answered."""
        if self.probe is None:
            return ""
        if self.probe.poll() is None:
            self.probe.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            out, _ = self.probe.communicate(timeout=5)
            self.probe = None
            return out
        return ""


def _log_tail(host: HostState) -> str:
    log = host.directory / "console.log"
    lines = log.read_text(errors="replace").splitlines()[-4:] if log.exists() else []
    return "".join(f"\n      {line}" for line in lines) + f"\n      (all of it in {log})"


def wait_ready(
    lab: LabState,
    hosts: Sequence[HostState],
    deadline_s: float,
    before: Mapping[str, str] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, str]:
    """Wait until all hosts have booted; gives their boot ids by name.

    Ready means: sshd answers, and systemd is done (running or degraded) or has been starting
    for a while. ``before``: boot ids that are not enough, those before a reboot. Raises
    LabError with every host that isn't ready after ``deadline_s`` seconds.
    """
    end = time.monotonic() + deadline_s
    waiting = [_Waiting(host) for host in hosts]
    open_ones = list(waiting)
    try:
        while open_ones and time.monotonic() < end:
            for one in open_ones:
                one.step(lab, (before or {}).get(one.host.name, ""))
                if one.boot_id and say is not None:
                    say(f"{one.host.name} is ready ({one.said})")
            open_ones = [one for one in open_ones if not one.boot_id and not one.problem]
            time.sleep(0.05)
    finally:
        for one in waiting:
            one.finish()
    for one in open_ones:
        one.problem = f"was not ready within {deadline_s:g} s: {one.said}"
    problems = [f"{one.host.name} {one.problem}" for one in waiting if one.problem]
    if problems:
        raise LabError(f"lab {lab.name}: {len(problems)} host(s) not ready:", *problems)
    return {one.host.name: one.boot_id for one in waiting}
