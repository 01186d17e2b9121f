"""One control group per host and hierarchy, so that hosts don't share their systemd's slices.

Where systemd runs the control machine, it makes that group (a scope, see ``scope_command``);
elsewhere we make groups of our own under ``rackpin``.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from rackpin.lab.errors import LabError
from rackpin.lab.process import run, wait_until
from rackpin.lab.supervisor import cgroup_processes

MOUNT = Path("/sys/fs/cgroup")
TOP = "rackpin"


def hierarchies() -> list[Path]:
    """Mounted cgroup trees, systemd's own first. cpuset (v1) is left out: it needs CPUs set."""
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    trees = [p for p in sorted(MOUNT.iterdir()) if (p / "cgroup.procs").exists()]
    trees = [p for p in trees if not p.is_symlink() and not (p / "cpuset.cpus").exists()]
    return sorted(trees, key=lambda p: p.name != "systemd")


def under_systemd() -> bool:
    return Path("/run/systemd/system").is_dir()


def scope(machine: str) -> str:
    return f"rackpin-lab-{machine}.scope"


def scope_command(machine: str) -> list[str]:
    """Prefix that runs a command in a scope whose groups are its own to divide."""
    name = f"--unit={scope(machine)}"
    return ["systemd-run", "--quiet", "--scope", "--collect", name, "--property=Delegate=yes", "--"]


def groups_to_make(machine: str) -> list[Path]:
    """A host's groups, one in each hierarchy; none where systemd makes the scope."""
    return [] if under_systemd() else [tree / TOP / machine for tree in hierarchies()]


def _groups(machine: str) -> list[Path]:
    trees = hierarchies()
    own = [tree / TOP / machine for tree in trees]
    return [*own, *(tree / "system.slice" / scope(machine) for tree in trees)]


def processes(machine: str) -> list[int]:
    """Every process of a host, its supervisor included."""
    return sorted({pid for group in _groups(machine) for pid in cgroup_processes(group)})


def kill(machine: str, deadline_s: float = 15.0) -> None:
    """End whatever runs in a host's groups, then remove them."""

    def gone() -> bool:
        pids = processes(machine)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    if not wait_until(gone, deadline_s, 0.05):
        raise LabError(f"processes of {machine} don't end: {processes(machine)}")
    if under_systemd():
        # it notices the empty scope a little later, and refuses a second one of that name
        run(["systemctl", "stop", scope(machine)], deadline_s=30, check=False)
    remove(machine)


def remove(machine: str) -> None:
    """Remove a host's empty groups, and ours above them when no other host has one."""
    for group in _groups(machine):
        for path, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):  # systemd may have been faster
                Path(path).rmdir()
    for tree in hierarchies():
        with contextlib.suppress(OSError):  # another host's group is in it
            (tree / TOP).rmdir()
