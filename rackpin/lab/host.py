"""One host: its disk (an overlay over the base), its first files, its processes."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rackpin.lab import cgroup, supervisor
from rackpin.lab.errors import LabError
from rackpin.lab.process import read_pid, run, send, wait_until
from rackpin.lab.state import HostState

SPAWN_S = 30.0
ORDERLY_STOP_S = supervisor.STOP_DEADLINE_S + supervisor.SHUTDOWN_STUCK_S + 15

NSPAWN_RUN = Path("/run/systemd/nspawn")


def root_of(host: HostState) -> Path:
    return host.directory / "root"


def bridge_port(host: HostState) -> str:
    """The outer end of host0: its name, or where that is too long for one its alternative name."""
    return f"vb-{host.machine}"


def mounted(path: Path) -> bool:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return any(line.split()[1] == str(path) for line in lines)


def base_record(host: HostState) -> Path:
    """Names the base under a host's disk; written last, so it says the disk is complete."""
    return host.directory / "disk" / "base"


def mount(host: HostState, base: Path) -> Path:
    """Mount the host's disk, made first if there is none."""
    root, disk = root_of(host), host.directory / "disk"
    for path in (root, disk / "upper", disk / "work"):
        path.mkdir(parents=True, exist_ok=True)
    (disk / "upper").chmod(0o755)
    if not mounted(root):
        options = f"lowerdir={base},upperdir={disk}/upper,workdir={disk}/work"
        run(["mount", "-t", "overlay", "rackpin", "-o", options, str(root)])
    return root


def unmount(host: HostState) -> None:
    if mounted(root_of(host)):
        run(["umount", "-l", str(root_of(host))])


def delete_disk(host: HostState) -> None:
    unmount(host)
    disk = host.directory / "disk"
    if disk.exists():
        shutil.rmtree(disk)


def boot(host: HostState, bridge: str, fabric: Sequence[str]) -> None:
    """Start the host's supervisor; its disk is mounted. ``fabric``: (outer name, bridge) or ()."""
    root = root_of(host)
    command = [
        *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=pipe"),
        *("-D", str(root), f"--machine={host.machine}", f"--hostname={host.name}"),
        f"--network-bridge={bridge}",
        *([f"--network-veth-extra={fabric[0]}:fab0"] if fabric else []),
        *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--boot"),
    ]
    spec = {
        "command": command,
        "root": str(root),
        "fabric": list(fabric),
        "links": [bridge_port(host), *fabric[:1]],
        "cgroups": [str(path) for path in cgroup.groups_to_make(host.machine)],
    }
    supervisor.write_atomically(host.directory / "run.json", json.dumps(spec, indent=2) + "\n")
    (host.directory / "state").unlink(missing_ok=True)
    prefix = cgroup.scope_command(host.machine) if cgroup.under_systemd() else []
    pidfile = host.directory / "supervisor.pid"
    with signals_held():  # an interrupt now would lose sight of what was just started
        argv = [*prefix, sys.executable, "-I", supervisor.__file__, str(host.directory)]
        run(argv, deadline_s=SPAWN_S)
        started = wait_until(lambda: read_pid(pidfile) is not None, SPAWN_S, 0.02)
    if not started:
        raise LabError(f"{host.name}: no supervisor started, see {host.directory}/console.log")


@contextmanager
def signals_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop(hosts: Sequence[HostState], orderly: bool) -> None:
    """Power hosts off (or pull their plugs) and leave no process, mount or group of them."""
    pidfiles = [host.directory / "supervisor.pid" for host in hosts]
    if orderly:
        for pid in filter(None, map(read_pid, pidfiles)):
            send(pid, signal.SIGTERM)
        wait_until(lambda: not any(map(read_pid, pidfiles)), ORDERLY_STOP_S)
    for host in hosts:
        clean_up(host)


def clean_up(host: HostState) -> None:
    """End what is left of a host, also of one whose supervisor was killed."""
    for name in ("supervisor.pid", "nspawn.pid"):  # the supervisor first: it would boot again
        pid = read_pid(host.directory / name)
        if pid is not None:
            send(pid, signal.SIGKILL)
        (host.directory / name).unlink(missing_ok=True)
    cgroup.kill(host.machine)
    spec = host.directory / "run.json"
    if spec.exists():
        supervisor.unplug(json.loads(spec.read_text()).get("links", []))
    _remove_nspawn_files(host)
    unmount(host)
    if host.directory.is_dir():
        supervisor.write_atomically(host.directory / "state", "off\n")


def _remove_nspawn_files(host: HostState) -> None:
    """What systemd-nspawn leaves behind when it is killed."""
    propagate = NSPAWN_RUN / "propagate" / host.machine
    if propagate.is_dir():
        propagate.rmdir()
    root = root_of(host)
    if mounted(root):
        found = root.stat()
        inode = NSPAWN_RUN / "locks" / f"inode-{found.st_dev}:{found.st_ino}"
        inode.unlink(missing_ok=True)
    (host.directory / ".#root.lck").unlink(missing_ok=True)
