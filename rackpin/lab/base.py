"""The base image: one bare Debian tree that every host's overlay starts from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from rackpin.lab.description import Base, LabDescription
from rackpin.lab.errors import LabError
from rackpin.lab.process import run
from rackpin.lab.state import cache_root, state_root

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
BUILD_DEADLINE_S = 900.0

# Run in the finished tree. Keys and ids belong to a host; networkd is the lab's, for its addresses.
CUSTOMIZE = """set -eu
chroot "$1" systemctl --quiet enable systemd-networkd
rm -f "$1"/etc/ssh/ssh_host_*
: > "$1"/etc/machine-id
rm -f "$1"/var/lib/dbus/machine-id "$1"/etc/resolv.conf "$1"/etc/hostname
"""


def base_path(base: Base) -> Path:
    """Where a base lies: another description, or another recipe here, is another directory."""
    text = json.dumps([base.model_dump(), CUSTOMIZE], sort_keys=True)
    return cache_root() / f"base-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def ensure_base(description: LabDescription, say: Callable[[str], None]) -> Path:
    """The directory of this description's base, built first if there is none."""
    path = base_path(description.base)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / ".base.lock"):
        if not path.is_dir():
            say(f"building the base image {path} (a minute or so, once)")
            _build(description.base, path)
    return path


def _build(base: Base, path: Path) -> None:
    for stale in path.parent.glob(".base-*.tmp"):  # we hold the lock: nobody builds these
        _delete(stale)
    fresh = path.parent / f".{path.name}.tmp"
    log = path.parent / "base.log"
    # Signed by Debian's keyring explicitly: Ubuntu's apt does not trust it by itself.
    sources = [line.replace("deb ", f"deb [signed-by={KEYRING}] ", 1) for line in base.sources()]
    hook = path.parent / ".customize.sh"
    hook.write_text(CUSTOMIZE)
    argv = [
        # its own mount namespace: nothing stays mounted when it is killed
        *("unshare", "--mount", "--propagation", "private"),
        *("mmdebstrap", "--variant=minbase", "--mode=root", f"--include={','.join(base.include)}"),
        f'--customize-hook=sh {hook} "$1"',
        *(base.suite, str(fresh), *sources),
    ]
    try:
        _run_logged(argv, log)
        (fresh / "etc/apt/sources.list").write_text("\n".join(base.sources()) + "\n")
        fresh.rename(path)
    finally:
        hook.unlink(missing_ok=True)
        if fresh.exists():
            _delete(fresh)


def _run_logged(argv: list[str], log: Path) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    with log.open("w") as out:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
        )
        try:
            code = child.wait(timeout=BUILD_DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"the base image took over {BUILD_DEADLINE_S:g} s, see {log}") from error
        finally:
            if child.poll() is None:  # interrupted or too late
                os.killpg(child.pid, signal.SIGKILL)
                child.wait(timeout=30)
    if code != 0:
        tail = log.read_text(errors="replace").strip().splitlines()[-5:]
        raise LabError(f"mmdebstrap ended with {code}, see {log}:", *tail)


def _delete(path: Path) -> None:
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for target in sorted((m for m in mounted if m.startswith(f"{path}/")), reverse=True):
        run(["umount", "-l", target])
    shutil.rmtree(path)


def bases() -> list[Path]:
    return sorted(p for p in cache_root().glob("base-*") if p.is_dir())


def purge_bases() -> list[Path]:
    """Delete every base that no host's disk was made over; gives what was deleted."""
    mounts = Path("/proc/self/mounts").read_text()
    needed = {file.read_text().strip() for file in state_root().glob("*/hosts/*/disk/base")}
    deleted = []
    if not cache_root().is_dir():
        return []
    with FileLock(cache_root() / ".base.lock"):
        for path in bases():
            if f"lowerdir={path}," not in mounts and str(path) not in needed:
                _delete(path)
                deleted.append(path)
        if not bases():
            (cache_root() / "base.log").unlink(missing_ok=True)
    return deleted
