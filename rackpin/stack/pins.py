"""What a person chose for a stack: ``stacks/NAME/pins.yaml``, checked whole."""

from __future__ import annotations

import hashlib
import json
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from rackpin.stack.hostpins import (
    CudaPin,
    DebPin,
    DriverPin,
    EolPin,
    ImagePin,
    KernelPin,
    ModelPin,
    NcclPins,
    RdmaPin,
    SourcePin,
    Unproven,
)
from rackpin.stack.model import Model, StackError, dist_name, exact_version, explain, read_yaml

__all__ = ["Model", "StackError", "explain", "load_pins"]  # their old home

PINS_FILE = "pins.yaml"
PYTHON = r"^3\.\d+$"
SITE_PACKAGES = "{site_packages}"  # in engine_env: where the environment's wheels lie


class OsPin(Model):
    """An operating system as /etc/os-release names it: ``ID`` and ``VERSION_ID``."""

    id: Literal["debian", "ubuntu"]
    version: str = Field(pattern=r"^\d+(\.\d+)?$")
    python: str | None = Field(default=None, pattern=PYTHON)  # where it isn't the stack's

    @property
    def key(self) -> str:
        """``debian-12``: how tables name this OS."""
        return f"{self.id}-{self.version}"


class EnginePin(Model):
    """The serving engine: the distribution to install and the module it is started by."""

    distribution: str
    version: str
    module: str = Field(pattern=r"^[a-z_][a-z0-9_]*$")

    check_name = field_validator("distribution")(dist_name)
    check_version = field_validator("version")(exact_version)


class DistPin(Model):
    """One distribution wanted by name, with the extras it needs."""

    version: str
    extras: list[str] = Field(default_factory=list)

    check_version = field_validator("version")(exact_version)


class Exclusion(Model):
    """A distribution that others ask for and that must not be installed."""

    name: str
    why: str = Field(min_length=10)

    check_name = field_validator("name")(dist_name)


class ExtraIndex(Model):
    """A second package index, asked only for the packages named here."""

    url: str = Field(pattern=r"^https://")
    packages: list[str] = Field(min_length=1)


class LocalWheel(Model):
    """A wheel built from this repository by a reproducible script.

    The builder is run as ``python BUILDER OUT_DIR`` and must write the wheel there (others
    beside it are fine), with the same bytes each time.
    """

    name: str
    version: str
    builder: str = Field(pattern=r"^[a-z0-9_][a-z0-9_/.-]*\.py$")

    check_name = field_validator("name")(dist_name)
    check_version = field_validator("version")(exact_version)


class Pins(Model):
    """A stack as chosen; everything else follows from it in the lock."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,40}$")
    summary: str
    os: list[OsPin] = Field(min_length=1)
    arch: Literal["x86_64"] = "x86_64"
    gpus: list[str] = Field(default_factory=list)  # generations it is meant for: "h100"
    kernel: KernelPin | None = None
    driver: DriverPin | None = None
    cuda: CudaPin | None = None
    nccl: NcclPins = NcclPins()
    dcgm: DebPin | None = None
    container_toolkit: DebPin | None = None
    rdma: RdmaPin | None = None
    gdrcopy: SourcePin | None = None
    nccl_tests: SourcePin | None = None
    images: dict[str, ImagePin] = Field(default_factory=dict)
    models: dict[str, ModelPin] = Field(default_factory=dict)  # by the name they are served by
    python: str = Field(pattern=PYTHON)
    engine: EnginePin
    engine_env: dict[str, str] = Field(default_factory=dict)
    dists: dict[str, DistPin]
    exclude_newer: date | None = None  # resolve as on that day: nothing uploaded later
    uv: str
    debs: dict[str, list[str]]
    exclude: list[Exclusion] = Field(default_factory=list)
    extra_index: list[ExtraIndex] = Field(default_factory=list)
    local_wheels: list[LocalWheel] = Field(default_factory=list)
    eol: dict[str, EolPin] = Field(default_factory=dict)
    unproven: list[Unproven] = Field(default_factory=list)

    check_uv = field_validator("uv")(exact_version)

    @field_validator("dists")
    @classmethod
    def _dist_names(cls, value: dict[str, DistPin]) -> dict[str, DistPin]:
        for name in value:
            dist_name(name)
        return value

    @field_validator("engine_env")
    @classmethod
    def _env_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not name.replace("_", "A").isalnum() or name[0].isdigit() or name != name.upper():
                raise ValueError(f"{name!r} is no name of an environment variable")
            left = text.replace(SITE_PACKAGES, "")
            if "{" in left or "}" in left or "\n" in left:
                raise ValueError(f"{name}: only {SITE_PACKAGES} may stand in braces")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Pins:
        keys = {os.key for os in self.os}
        wrong = []
        if missing := keys - set(self.debs):
            wrong.append(f"debs has no list for {', '.join(sorted(missing))}")
        if unknown := set(self.debs) - keys:
            wrong.append(f"debs names {', '.join(sorted(unknown))}, which os does not list")
        wanted = {self.engine.distribution, *self.dists} | {w.name for w in self.local_wheels}
        if both := wanted & {e.name for e in self.exclude}:
            wrong.append(f"{', '.join(sorted(both))} is both pinned and excluded")
        if self.driver is None:
            under = {"cuda": self.cuda, "dcgm": self.dcgm, "nccl.host": self.nccl.host}
            if lonely := [name for name, pin in under.items() if pin]:
                wrong.append(f"{', '.join(lonely)} needs a driver, and none is pinned")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def requirements(self) -> list[str]:
        """The direct requirements for the resolver, sorted: ``ray[default]==2.60.0``."""
        wanted = {self.engine.distribution: f"=={self.engine.version}"}
        for name, pin in self.dists.items():
            extras = f"[{','.join(sorted(pin.extras))}]" if pin.extras else ""
            wanted[name] = f"{extras}=={pin.version}"
        return sorted(name + rest for name, rest in wanted.items())

    @property
    def pythons(self) -> list[str]:
        """Every Python that some OS of the stack uses; the stack's own first."""
        return list(dict.fromkeys([self.python, *(os.python for os in self.os if os.python)]))

    @property
    def sha256(self) -> str:
        """Digest of what decides the lock: comments, layout, reasons and dates don't count."""
        words: Any = {"summary": True, "eol": True, "unproven": True, "gpus": True}
        words["exclude"] = {"__all__": {"why"}}
        data = self.model_dump(mode="json", exclude=words, exclude_defaults=True)
        content = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()


def load_pins(directory: Path) -> Pins:
    """Read ``DIRECTORY/pins.yaml``; raises :class:`StackError` with every mistake at once."""
    file = directory / PINS_FILE
    data = read_yaml(file, "write it (docs/stacks.md shows how)")
    try:
        pins = Pins.model_validate(data)
    except ValidationError as error:
        raise StackError(explain(error, file, "docs/stacks.md lists the keys.", Pins)) from None
    if pins.name != directory.name:
        raise StackError(f"{file}: name: is {pins.name!r}, but its directory is {directory.name!r}")
    return pins
