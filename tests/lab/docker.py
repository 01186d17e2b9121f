"""A Docker engine of a test's own, which leaves the machine's network and firewall alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 60
STOP_S = 60


def missing() -> str:
    """What this machine lacks for it, or ""."""
    for command in ("dockerd", "docker", "containerd", "runc"):
        if shutil.which(command) is None:
            return f"{command} is not installed (apt-get install docker.io iptables)"
    return ""


@contextmanager
def engine(directory: Path) -> Iterator[str]:
    """Run dockerd under ``directory``; gives the value of DOCKER_HOST. Leaves nothing behind."""
    socket = f"unix://{directory}/sock"
    directory.mkdir(parents=True)
    command = [
        "dockerd", "--host", socket, "--pidfile", str(directory / "pid"),
        "--data-root", str(directory / "data"), "--exec-root", str(directory / "exec"),
        # neither a bridge nor a rule: the lab's forwarding must stay as it is
        "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
        "--ip-masq=false", "--userland-proxy=false",
    ]  # fmt: skip
    log = directory / "log"
    with log.open("wb") as out:
        daemon = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_S
        while not _answers(socket):
            assert daemon.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < end, "dockerd does not answer"
            time.sleep(0.3)
        yield socket
    finally:
        _remove_containers(socket)
        daemon.terminate()
        try:
            daemon.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(timeout=STOP_S)
        _unmount(directory)
        shutil.rmtree(directory)


def _answers(socket: str) -> bool:
    asked = subprocess.run(["docker", "-H", socket, "info"], capture_output=True, timeout=START_S)
    return asked.returncode == 0


def _remove_containers(socket: str) -> None:
    listed = subprocess.run(
        ["docker", "-H", socket, "ps", "-aq"], capture_output=True, text=True, timeout=STOP_S
    ).stdout.split()
    if listed:
        argv = ["docker", "-H", socket, "rm", "--force", *listed]
        subprocess.run(argv, capture_output=True, timeout=STOP_S)


def _unmount(directory: Path) -> None:
    """containerd may leave a namespace's mount when it is ended."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{directory}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=True, timeout=STOP_S)


def processes_of(directory: Path) -> list[str]:
    """Command lines of processes that were started with a path under ``directory``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(directory) in text:
                found.append(text)
    return found
