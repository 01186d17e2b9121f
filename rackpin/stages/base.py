"""base: kernel settings, limits, time, names."""

from __future__ import annotations

from fnmatch import fnmatch
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from rackpin import layout
from rackpin.alike import alike
from rackpin.desired import Desired, OwnedDir, Target, owned
from rackpin.fleet import quarantine
from rackpin.inventory import Fleet, Node, RayConfig
from rackpin.stack.share import SHARE

HOSTS_BEGIN = "# begin rackpin: nodes of this fleet"
HOSTS_END = "# end rackpin"
# Linked to /dev/null: nothing brings swap back at boot.
SWAP_MASK = "/etc/systemd/system/swap.target"


@lru_cache(maxsize=8)
def data(name: str) -> Any:
    """A table of ``rackpin/data/``."""
    return yaml.safe_load(files("rackpin").joinpath("data", name).read_text(encoding="utf-8"))


def sysctl_settings(fleet: Fleet) -> list[dict[str, Any]]:
    """Kernel settings with their reasons; the inventory's values win and are marked as such."""
    wanted = dict(fleet.config.sysctl)
    settings = [dict(item) for item in data("sysctl.yaml")]
    for item in settings:
        if item["key"] in wanted:
            item.update(value=wanted.pop(item["key"]), source="sysctl in the inventory")
    settings += [
        {"key": key, "value": value, "why": "asked for by the site", "source": "inventory"}
        for key, value in wanted.items()
    ]
    reserved = reserved_ports(fleet)
    settings.append(
        {
            "key": "net.ipv4.ip_local_reserved_ports",
            "value": ",".join(map(str, reserved)),
            "why": "no outgoing connection may take a port that a unit will listen on",
            "source": "ray.ports and instances in the inventory",
        }
    )
    skip = fleet.config.sysctl_skip
    return [{**item, "skipped": any(fnmatch(item["key"], p) for p in skip)} for item in settings]


def reserved_ports(fleet: Fleet) -> list[int]:
    fixed = fleet.config.ray.ports.fixed().values()
    return sorted({*fixed, *(instance.port for instance in fleet.config.instances)})


def hosts_file(current: str, fleet: Fleet, node: Node) -> str:
    """``/etc/hosts`` with this fleet's block; every line that somebody else wrote is kept.

    Only loopback lines that name this node are dropped: Debian's ``127.0.1.1 NAME`` makes
    Ray announce an address that no other node can reach (F106).
    """
    kept: list[str] = []
    inside = False
    for line in current.splitlines():
        if line == HOSTS_BEGIN:
            inside = True
        elif line == HOSTS_END:
            inside = False
        elif not inside and (other := _without_own_name(line, node.name)) is not None:
            kept.append(other)
    while kept and not kept[-1].strip():
        kept.pop()
    if not any(line.split()[:1] == ["127.0.0.1"] for line in kept):
        kept.insert(0, "127.0.0.1 localhost")
    block = [f"{n.address} {n.name}" for n in fleet.nodes.values()]
    block += [f"{address} {name}" for name, address in sorted(fleet.config.extra_hosts.items())]
    return "\n".join([*kept, "", HOSTS_BEGIN, *block, HOSTS_END, ""])


def _without_own_name(line: str, name: str) -> str | None:
    fields = line.split("#", 1)[0].split()
    if not fields or not (fields[0].startswith("127.") or fields[0] == "::1"):
        return line
    others = [f for f in fields[1:] if f != name and f.split(".")[0] != name]
    if len(others) == len(fields) - 1:
        return line
    return f"{fields[0]} {' '.join(others)}" if others else None


def common_env(ray: RayConfig) -> dict[str, str]:
    """Environment of Ray and the engines that is the same on every node and in every image."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_usage_threshold": f"{ray.memory_usage_threshold:g}",
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(ray.reconnect_timeout_s),
        # a unit that stops has nothing to wait for: who drains a node does it before
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        "RAY_ROTATION_MAX_BYTES": str(ray.log_max_bytes),
        "RAY_ROTATION_BACKUP_COUNT": str(ray.log_backups),
        "RAY_local_fs_capacity_threshold": f"{ray.spill_disk_max:g}",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",  # a start must not depend on a hub (F121)
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONNOUSERSITE": "1",  # a stray `pip install --user` must not shadow the lock (F108)
        "HOME": f"{layout.STATE}/home",
        "XDG_CACHE_HOME": f"{layout.STATE}/home/.cache",
        "XDG_CONFIG_HOME": layout.XDG_CONFIG,
    }


def own_env(fleet: Fleet, node: Node, interface: str = "") -> dict[str, str]:
    """What only this node's environment has: its address, its NIC, what the inventory adds."""
    nic = node.fabric_interface or interface
    env = {
        "VLLM_HOST_IP": node.address,
        "RAY_ADDRESS": f"{fleet.head.address}:{fleet.config.ray.ports.gcs}",
    }
    if nic:
        # "=" is an exact name: a bare value is a prefix and takes pkey children too (F071)
        env |= {"GLOO_SOCKET_IFNAME": nic, "NCCL_SOCKET_IFNAME": f"={nic}"}
    return env | node.env


def node_env(fleet: Fleet, node: Node, interface: str = "") -> dict[str, str]:
    """Environment of Ray and the engines: addresses from the inventory, never from host names."""
    return common_env(fleet.config.ray) | own_env(fleet, node, interface)


@alike
def packages(target: Target) -> tuple[str, ...]:
    """What every node has by name, with GPUs or without; other stages bring the rest."""
    every = target.lock.packages.get(target.os_key, [])
    return tuple(item.name for item in every if item.role in ("base", "environment"))


@alike
def desired(target: Target) -> Desired:
    fleet = target.fleet
    limits = fleet.config.limits
    memlock_kib = "unlimited" if limits.memlock == "infinity" else str(int(limits.memlock) // 1024)
    files = [
        owned(
            "etc/sysctl.d/90-rackpin.conf.j2",
            values={"settings": sysctl_settings(fleet)},
            triggers=("sysctl",),
        ),
        owned(
            "etc/security/limits.d/90-rackpin.conf.j2",
            values={"limits": limits, "memlock_kib": memlock_kib},
        ),
        owned(
            "etc/systemd/system.conf.d/90-rackpin.conf.j2",
            values={"limits": limits},
            triggers=("daemon-reexec",),
        ),
        owned("etc/systemd/journald.conf.d/90-rackpin.conf.j2", triggers=("journald",)),
        owned(
            "etc/tmpfiles.d/90-rackpin.conf.j2",
            values={
                "state": layout.STATE,
                "ray_temp": fleet.config.ray.temp_dir,
                "share": f"{layout.ROOT}/{SHARE}" if fleet.config.transfers.neighbours else None,
                "user": layout.USER,
            },
            triggers=("tmpfiles",),
        ),
        owned(
            "etc/chrony/conf.d/90-rackpin.conf.j2",
            values={"time_servers": fleet.config.time_servers},
            triggers=("chrony",),
        ),
    ]
    home = f"{layout.STATE}/home"
    return Desired(
        files=tuple(files),
        directories=(
            OwnedDir(layout.ROOT),
            OwnedDir(layout.ETC),
            OwnedDir(layout.LIB),
            OwnedDir(layout.STATE),
            OwnedDir(layout.BACKUPS, mode="700"),
            OwnedDir(home, mode="750", owner=layout.USER, group=layout.USER),
        ),
        packages=packages(target),
        foreign=("/etc/hosts", SWAP_MASK, quarantine.MARK),
    )
