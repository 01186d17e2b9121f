"""Keeps one host of a lab alive: boots it, boots it again on reboot, cleans up when it is off.

Run as a script with the standard library only, so that it starts in some 30 ms:
``python -I supervisor.py HOSTDIR``. HOSTDIR/run.json (written by :mod:`rackpin.lab.host`)
says what to run. The process detaches itself, writes HOSTDIR/supervisor.pid and logs to
HOSTDIR/console.log. SIGTERM shuts the host down in order, a second one at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

REBOOT = 133  # systemd-nspawn's exit code with --keep-unit when the host asked for a reboot
STOP_DEADLINE_S = 45.0  # an orderly shutdown by SIGTERM may take this long
SHUTDOWN_STUCK_S = 15.0  # systemd-shutdown waits 90 s for orphans that don't die
POLL_S = 0.1
MIN_UPTIME_S = 1.0  # a host that reboots faster than this is in a loop


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def cgroup_processes(cgroup: Path) -> list[int]:
    """Every process in a cgroup and below it."""
    found: list[int] = []
    for path, _, _ in os.walk(cgroup):  # unlike rglob it bears with groups that vanish
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in Path(path, "cgroup.procs").read_text().split()]
    return found


def unplug(links: list[str]) -> None:
    """Delete a host's links; unsent data in a dead host's sockets keeps them for minutes."""
    for link in links:
        shown = subprocess.run(
            ["ip", "link", "show", "dev", link], capture_output=True, timeout=10, check=False
        )
        if shown.returncode == 0:  # else gone with its host, as it should be
            subprocess.run(["ip", "link", "delete", link], timeout=10, check=False)


def own_cgroups() -> list[Path]:
    """The groups this process is in, in systemd's hierarchies."""
    mount = Path("/sys/fs/cgroup")
    unified = mount if (mount / "cgroup.controllers").exists() else mount / "unified"
    trees = {"name=systemd": mount / "systemd", "": unified}
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    groups = [trees[kind] / path.lstrip("/") for _, kind, path in lines if kind in trees]
    return [group for group in groups if (group / "cgroup.procs").exists()]


def divide(groups: list[Path]) -> list[Path]:
    """Move this process to ``supervisor`` in each group; gives ``host`` beside it.

    So whoever empties the whole group ends us too, and no child can slip out between.
    """
    for group in groups:
        for name in ("supervisor", "host"):
            (group / name).mkdir(parents=True, exist_ok=True)
        (group / "supervisor" / "cgroup.procs").write_text(str(os.getpid()))
    return [group / "host" for group in groups]


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file in one step; a secret is never readable for others in between."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)
    fresh.replace(path)


class Supervisor:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spec: dict[str, Any] = json.loads((directory / "run.json").read_text())
        # none given: systemd put us into a scope of our own
        self.cgroups = divide([Path(text) for text in self.spec["cgroups"]] or own_cgroups())
        self.stopping_since: float | None = None
        self.kill_now = False
        signal.signal(signal.SIGTERM, self.on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def log(self, text: str) -> None:
        print(f"{time.strftime('%FT%TZ', time.gmtime())} supervisor: {text}", flush=True)

    def on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        if self.stopping_since is None:
            self.stopping_since = time.monotonic()
        else:
            self.kill_now = True

    def run(self) -> None:
        self.write_state("booting")
        end = "failed"
        try:
            while True:
                began = time.monotonic()
                code = self.boot_once()
                if code != REBOOT or self.stopping_since is not None:
                    end = "off" if code in (0, REBOOT) or self.stopping_since else "failed"
                    self.log(f"systemd-nspawn ended with {code}: host is {end}")
                    return
                self.log("host asked for a reboot")
                self.write_state("booting")
                time.sleep(max(0.0, MIN_UPTIME_S - (time.monotonic() - began)))
        finally:
            self.kill_leftovers()
            self.unmount()
            self.write_state(end)
            (self.directory / "supervisor.pid").unlink(missing_ok=True)

    def write_state(self, state: str) -> None:
        write_atomically(self.directory / "state", state + "\n")

    def boot_once(self) -> int:
        """Boot the host, wait until it ends, give systemd-nspawn's exit code."""
        child = subprocess.Popen(
            self.spec["command"],
            stdin=subprocess.DEVNULL,
            preexec_fn=self.join_cgroups,
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
        )
        self.log(f"systemd-nspawn started, pid {child.pid}")
        write_atomically(self.directory / "nspawn.pid", f"{child.pid} {start_time(child.pid)}\n")
        try:
            return self.watch(child)
        finally:
            (self.directory / "nspawn.pid").unlink(missing_ok=True)
            unplug(self.spec["links"])

    def watch(self, child: subprocess.Popen[bytes]) -> int:
        fabric_waiting = bool(self.spec["fabric"])
        asked = False
        stuck_since: float | None = None
        verb = ""
        while (code := child.poll()) is None:
            if fabric_waiting:
                fabric_waiting = not self.attach_fabric()
            now = time.monotonic()
            verb = self.shutdown_verb(child.pid) or verb
            stuck_since = (stuck_since or now) if verb else None
            if self.stopping_since is not None:
                if not asked:
                    self.log("stop asked for: telling the host to power off")
                    child.send_signal(signal.SIGTERM)  # nspawn passes SIGRTMIN+3 on
                    asked = True
                if self.kill_now or now - self.stopping_since > STOP_DEADLINE_S:
                    return self.end_hard(child, "did not power off in time", verb)
            if stuck_since is not None and now - stuck_since > SHUTDOWN_STUCK_S:
                return self.end_hard(child, f"hangs in its {verb}", verb)
            time.sleep(POLL_S)
        return code

    def end_hard(self, child: subprocess.Popen[bytes], why: str, verb: str) -> int:
        """Pull the plug; what the host was about to do (``verb``) still counts."""
        self.log(f"host {why}: ending its processes")
        child.kill()
        self.kill_leftovers()
        child.wait(timeout=30)
        return REBOOT if verb == "reboot" else 0

    def shutdown_verb(self, nspawn: int) -> str:
        """``poweroff``, ``reboot``, … once the host's PID 1 is systemd-shutdown, else empty."""
        try:
            children = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split()
            words = Path(f"/proc/{children[0]}/cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            return ""
        is_shutdown = words[0].endswith(b"/systemd-shutdown") and len(words) > 1
        return words[1].decode() if is_shutdown else ""

    def attach_fabric(self) -> bool:
        """Plug the second interface into its bridge; True once that is done."""
        outside, bridge = self.spec["fabric"]
        if outside not in {name for _, name in socket.if_nameindex()}:
            return False
        done = subprocess.run(
            ["ip", "link", "set", outside, "master", bridge, "up"], timeout=10, check=False
        )
        return done.returncode == 0

    def join_cgroups(self) -> None:
        """In the child: its own group in each hierarchy, or hosts would share their slices."""
        for cgroup in self.cgroups:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    def kill_leftovers(self) -> None:
        end = time.monotonic() + 10
        while (pids := cgroup_processes(self.cgroups[0])) and time.monotonic() < end:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.spec["root"]], timeout=20, check=False)


def detach(log: Path) -> None:
    """Double fork: no terminal, no parent, output to the log."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o022)
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, null), (1, out), (2, out)):
        os.dup2(source, target)


def main() -> None:
    directory = Path(sys.argv[1])
    detach(directory / "console.log")
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # our parent held its signals back
    supervisor = Supervisor(directory)
    write_atomically(directory / "supervisor.pid", f"{os.getpid()} {start_time(os.getpid())}\n")
    supervisor.run()


if __name__ == "__main__":
    main()
