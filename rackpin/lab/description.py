"""What lab/lab.yaml may say: read whole, every mistake listed at once."""

from __future__ import annotations

import ipaddress
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyAddress,
    ValidationError,
    field_validator,
    model_validator,
)

from rackpin.lab.errors import DescriptionError, LabError
from rackpin.lab.hardware import presets

NAME = r"^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$"  # two of them are a machine name, of 64 at most
Group = Literal["head", "workers", "gateway", "monitoring"]

# Bare, but a host: what Debian's installer leaves behind, without Python or a compiler.
DEFAULT_PACKAGES = [
    *("systemd", "systemd-sysv", "systemd-timesyncd", "dbus", "libpam-systemd", "udev", "kmod"),
    *("procps", "openssh-server", "iproute2", "iputils-ping", "netbase", "ca-certificates"),
    *("sudo", "less", "apt-utils", "cron", "logrotate"),
]
NEEDED = {"systemd", "systemd-sysv", "dbus", "openssh-server", "iproute2"}
LAB_NETWORKS = ipaddress.IPv4Network("10.86.0.0/16")


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Base(Model):
    """The Debian system every host starts from."""

    suite: Literal["bookworm"] = "bookworm"
    mirror: str = Field("http://deb.debian.org/debian", pattern=r"^https?://\S+$")
    security_mirror: str = Field("http://deb.debian.org/debian-security", pattern=r"^https?://\S+$")
    components: list[str] = Field(
        ["main", "contrib", "non-free", "non-free-firmware"], min_length=1
    )
    include: list[str] = Field(DEFAULT_PACKAGES, min_length=1)

    @field_validator("include")
    @classmethod
    def bootable(cls, value: list[str]) -> list[str]:
        missing = sorted(NEEDED - set(value))
        if missing:
            raise ValueError(f"a host can't boot or be reached without {', '.join(missing)}")
        return value

    def sources(self) -> list[str]:
        """Lines of sources.list."""
        components = " ".join(self.components)
        return [
            f"deb {self.mirror} {self.suite} {components}",
            f"deb {self.mirror} {self.suite}-updates {components}",
            f"deb {self.security_mirror} {self.suite}-security {components}",
        ]


class Host(Model):
    """One host. ``hardware`` names a preset of lab/hardware/, None for none; ``faults`` of it."""

    name: str = Field(pattern=NAME)
    groups: list[Group] = Field(min_length=1)
    sku: str = "lab-cpu"
    hardware: str | None = None
    faults: list[str] = Field(default_factory=list)
    nics: Literal[1, 2] = 1
    data: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def hardware_there_is(self) -> Host:
        if self.hardware is None and self.faults:
            raise ValueError("faults: without hardware there is nothing to break")
        if self.hardware is not None:
            try:
                presets.node(self.name, self.hardware, self.faults)
            except LabError as error:
                raise ValueError("; ".join(error.problems or [str(error)])) from error
        return self


class LabDescription(Model):
    """A lab: its name, the base of its hosts, the subnet it would like, the hosts."""

    name: str = Field(pattern=NAME)
    base: Base = Base()
    subnet: str | None = None  # e.g. 10.86.7.0/24; None: chosen from the name
    nameservers: list[IPvAnyAddress] = Field(default_factory=list)  # empty: the control machine's
    # False: hosts reach one another and the control machine's address in the lab, nothing else.
    outbound: bool = True
    hosts: list[Host] = Field(min_length=1, max_length=200)

    @field_validator("subnet")
    @classmethod
    def a_lab_subnet(cls, value: str | None) -> str | None:
        if value is not None:
            network = ipaddress.IPv4Network(value)
            if network.prefixlen != 24 or not network.subnet_of(LAB_NETWORKS):
                raise ValueError("must be a /24 of 10.86.0.0/16")
        return value


def _key(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "(whole file)"


def _duplicates(raw: dict[str, Any]) -> list[str]:
    hosts = raw.get("hosts")
    names = [h.get("name") for h in hosts if isinstance(h, dict)] if isinstance(hosts, list) else []
    counted = Counter(name for name in names if isinstance(name, str))
    return [f"hosts: the name {name!r} is given {n} times" for name, n in counted.items() if n > 1]


def parse(text: str, file: str, name: str | None = None) -> LabDescription:
    """A description from YAML; ``name`` overrides the file's.

    DescriptionError lists every mistake with its key.
    """
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DescriptionError(f"{file}: not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise DescriptionError(f"{file}: must be a mapping with the keys name and hosts")
    if name is not None:
        raw = {**raw, "name": name}
    problems = _duplicates(raw)
    description = None
    try:
        description = LabDescription.model_validate(raw)
    except ValidationError as error:
        problems += [f"{_key(e['loc'])}: {e['msg']}" for e in error.errors()]
    if problems or description is None:
        raise DescriptionError(f"{file}: {len(problems)} mistake(s):", *problems)
    return description


def read(file: Path, name: str | None = None) -> LabDescription:
    """The description in a file; see :func:`parse`."""
    try:
        text = file.read_text()
    except OSError as error:
        raise DescriptionError(
            f"{file}: {error.strerror}: name the lab's description by --file"
        ) from error
    return parse(text, str(file), name)
