"""What this control machine lacks for a lab, and what to do about each."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rackpin.lab.cgroup import hierarchies
from rackpin.lab.state import state_root

# command -> apt package (Debian 12, Ubuntu 22.04 and later)
COMMANDS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def preflight() -> list[str]:
    """One line for each thing missing, each with what to do; empty when a lab can run here."""
    problems = _commands()
    if os.geteuid() != 0:
        return [*problems, "not root: run it with sudo (it mounts, and makes bridges and hosts)"]
    # without namespaces the other questions can't even be asked
    return problems + (_namespaces() or [*_overlay(), *_cgroups(), *_network()])


def _commands() -> list[str]:
    packages: dict[str, list[str]] = {}
    for command, package in COMMANDS.items():
        if shutil.which(command) is None:
            packages.setdefault(package, []).append(command)
    if not KEYRING.exists():
        packages["debian-archive-keyring"] = [str(KEYRING)]
    return [
        f"missing {', '.join(commands)}: apt-get install {package}"
        for package, commands in packages.items()
    ]


def _run(argv: list[str]) -> str:
    """Empty when the command works, else what it said."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (said or [f"exit {done.returncode}"])[0]


def _namespaces() -> list[str]:
    said = _run(["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "true"])
    if not said:
        return []
    return [
        f"no new namespaces ({said}): needs CAP_SYS_ADMIN; use a virtual machine or bare metal, "
        "or a container started with --privileged"
    ]


def _overlay() -> list[str]:
    root = state_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".overlay-") as name:
            top = Path(name)
            for part in ("lower", "upper", "work", "root"):
                (top / part).mkdir()
            options = f"lowerdir={top}/lower,upperdir={top}/upper,workdir={top}/work"
            # in a mount namespace of its own: nothing to unmount
            mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(top / "root")]
            said = _run(["unshare", "--mount", *mount])
    except OSError as error:
        return [f"{root} can't be written ({error.strerror}): set RACKPIN_LAB_STATE elsewhere"]
    if not said:
        return []
    return [
        f"overlayfs can't be mounted under {root} ({said}): `modprobe overlay`, or set "
        "RACKPIN_LAB_STATE to a directory on ext4 or xfs (not on an overlay)"
    ]


def _cgroups() -> list[str]:
    trees = hierarchies() if Path("/sys/fs/cgroup").is_dir() else []
    if trees and os.access(trees[0], os.W_OK) and not _read_only(trees[0]):
        return []
    return ["no writable control groups in /sys/fs/cgroup: mount them (`mount -o remount,rw …`)"]


def _read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _network() -> list[str]:
    if shutil.which("ip") is None or shutil.which("nft") is None:
        return []  # already listed
    problems = []
    probe = "ip link add rp-probe type bridge"
    said = _run(["unshare", "--net", "sh", "-c", probe])
    if said:
        problems.append(f"no bridges ({said}): `modprobe bridge`")
    rule = (
        "nft add table ip t && nft 'add chain ip t c { type nat hook postrouting priority 100; }'"
        " && nft add rule ip t c masquerade"
    )
    said = _run(["unshare", "--net", "sh", "-c", rule])
    if said:
        problems.append(f"no nftables masquerade ({said}): `modprobe nf_tables nft_masq nf_nat`")
    return problems
