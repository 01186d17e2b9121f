"""Where a lab keeps its things on the control machine, and what it says about itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rackpin.lab.errors import LabError
from rackpin.lab.process import read_pid
from rackpin.lab.supervisor import write_atomically

RUN = Path("/run/rackpin/lab")  # which labs this machine runs now, whatever their state dirs
DEFAULT_NAME = "rackpin"

HostPower = Literal["running", "booting", "off", "failed", "unsupervised"]


def state_root() -> Path:
    return Path(os.environ.get("RACKPIN_LAB_STATE") or "/var/lib/rackpin/lab")


def cache_root() -> Path:
    return Path(os.environ.get("RACKPIN_CACHE") or "/var/cache/rackpin")


class HostState(BaseModel):
    """One host of a lab. ``directory`` holds its disk, log and pidfiles."""

    model_config = ConfigDict(extra="forbid")

    name: str
    address: str
    fabric_address: str | None = None
    groups: list[str]
    sku: str
    hardware: str | None = None
    faults: list[str] = Field(default_factory=list)  # those of the description
    data: dict[str, Any] = Field(default_factory=dict)
    machine: str  # systemd-nspawn's name, unique on the control machine
    directory: Path

    @property
    def power(self) -> HostPower:
        """What the host does now, from its processes and not from memory."""
        if read_pid(self.directory / "supervisor.pid") is not None:
            alive = read_pid(self.directory / "nspawn.pid") is not None
            return "running" if alive else "booting"
        if read_pid(self.directory / "nspawn.pid") is not None:
            return "unsupervised"
        try:
            text = (self.directory / "state").read_text().strip()
        except FileNotFoundError:
            return "off"
        return "off" if text == "off" else "failed"


class LabState(BaseModel):
    """A lab as it runs: what inventories read. All paths and addresses are absolute."""

    model_config = ConfigDict(extra="forbid")

    name: str
    state: Literal["up", "down"]
    directory: Path
    base: Path
    bridge: str
    subnet: str
    control_address: str  # where the hosts reach the control machine
    fabric_bridge: str
    fabric_subnet: str
    nameservers: list[str] = Field(default_factory=list)  # empty: the control machine's own
    hosts: list[HostState]
    control_boot_id: str = ""  # a lab does not outlive the control machine's reboot

    @property
    def ssh_key(self) -> Path:
        return self.directory / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    def host(self, name: str) -> HostState:
        for host in self.hosts:
            if host.name == name:
                return host
        names = ", ".join(host.name for host in self.hosts)
        raise LabError(f"lab {self.name} has no host {name!r}; it has: {names}")

    def save(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self.directory / "lab.json", self.model_dump_json(indent=2) + "\n")


def control_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def lab_name(name: str | None = None) -> str:
    return name or os.environ.get("RACKPIN_LAB") or DEFAULT_NAME


def remembered(name: str, root: Path | None = None) -> LabState | None:
    """The lab's last state, also when it is down; None when there is none."""
    file = (root or state_root()) / name / "lab.json"
    try:
        return LabState.model_validate_json(file.read_text())
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise LabError(f"{file}: not readable: a lab is root's, use sudo") from error
    except ValidationError as error:
        raise LabError(
            f"{file}: not readable by this version: run `rackpin lab down --purge --name {name}`"
        ) from error


def load(name: str | None = None, root: Path | None = None) -> LabState:
    """The running lab ``name`` (default: $RACKPIN_LAB, or rackpin); LabError when it isn't up."""
    name = lab_name(name)
    lab = remembered(name, root)
    rebooted = lab is not None and lab.control_boot_id not in ("", control_boot_id())
    if lab is None or lab.state != "up" or rebooted:
        raise LabError(f"lab {name} is not up: run `rackpin lab up`")
    return lab
