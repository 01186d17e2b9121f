"""What a person chose for a stack: ``stacks/NAME/pins.yaml``, checked whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from datetime import date
from pathlib import Path
from typing import Any, Literal

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

PINS_FILE = "pins.yaml"


class StackError(Exception):
    """Something is wrong with a stack: the message names file, key and remedy."""


class Model(BaseModel):
    # strict: YAML reads 3.10 as the number 3.1, so versions must come quoted.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _version(value: str) -> str:
    try:
        Version(value)
    except InvalidVersion:
        raise ValueError(f"{value!r} is no exact version (a pin has no ranges)") from None
    return value


def _name(value: str) -> str:
    if canonicalize_name(value) != value:
        raise ValueError(f"write the package name as {canonicalize_name(value)!r}")
    return value


class OsPin(Model):
    """An operating system as /etc/os-release names it: ``ID`` and ``VERSION_ID``."""

    id: Literal["debian", "ubuntu"]
    version: str = Field(pattern=r"^\d+(\.\d+)?$")

    @property
    def key(self) -> str:
        """``debian-12``: how tables name this OS."""
        return f"{self.id}-{self.version}"


class EnginePin(Model):
    """The serving engine: the distribution to install and the module it is started by."""

    distribution: str
    version: str
    module: str = Field(pattern=r"^[a-z_][a-z0-9_]*$")

    check_name = field_validator("distribution")(_name)
    check_version = field_validator("version")(_version)


class DistPin(Model):
    """One distribution wanted by name, with the extras it needs."""

    version: str
    extras: list[str] = Field(default_factory=list)

    check_version = field_validator("version")(_version)


class Exclusion(Model):
    """A distribution that others ask for and that must not be installed."""

    name: str
    why: str = Field(min_length=10)

    check_name = field_validator("name")(_name)


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

    check_name = field_validator("name")(_name)
    check_version = field_validator("version")(_version)


class Pins(Model):
    """A stack as chosen; everything else follows from it in the lock."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    summary: str
    os: list[OsPin] = Field(min_length=1)
    arch: Literal["x86_64"] = "x86_64"
    python: str = Field(pattern=r"^3\.\d+$")
    engine: EnginePin
    dists: dict[str, DistPin]
    uv: str
    debs: dict[str, list[str]]
    exclude: list[Exclusion] = Field(default_factory=list)
    extra_index: list[ExtraIndex] = Field(default_factory=list)
    local_wheels: list[LocalWheel] = Field(default_factory=list)
    eol: dict[str, date] = Field(default_factory=dict)

    check_uv = field_validator("uv")(_version)

    @field_validator("dists")
    @classmethod
    def _dist_names(cls, value: dict[str, DistPin]) -> dict[str, DistPin]:
        for name in value:
            _name(name)
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
    def sha256(self) -> str:
        """Digest of what decides the lock: comments, layout, reasons and dates don't count."""
        words: Any = {"summary": True, "eol": True, "exclude": {"__all__": {"why"}}}
        data = self.model_dump(mode="json", exclude=words)
        content = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()


class _Loader(yaml.SafeLoader):
    """Refuses a key given twice, which YAML would let win silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: key {key!r} is given twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


_SAY = {
    "extra_forbidden": "unknown key; remove it or correct its spelling",
    "missing": "missing; add it",
}


def explain(error: ValidationError, file: Path, remedy: str) -> str:
    """Every mistake of one file, one a line, with its key."""
    lines = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"]) or "(whole file)"
        text = _SAY.get(item["type"], item["msg"].removeprefix("Value error, "))
        if item["type"] == "string_type" and isinstance(item["input"], int | float):
            text = f'must be text: write "{item["input"]}" in quotes'
        lines.append(f"  {key}: {text}")
    return f"{file}: {len(lines)} mistake(s)\n" + "\n".join(lines) + f"\n{remedy}"


def load_pins(directory: Path) -> Pins:
    """Read ``DIRECTORY/pins.yaml``; raises :class:`StackError` with every mistake at once."""
    file = directory / PINS_FILE
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)  # a SafeLoader
    except FileNotFoundError:
        raise StackError(f"{file}: missing; write it (docs/stacks.md shows how)") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StackError(f"{file}: not readable as YAML: {error}; correct it") from None
    try:
        pins = Pins.model_validate(data)
    except ValidationError as error:
        raise StackError(explain(error, file, "docs/stacks.md lists the keys.")) from None
    if pins.name != directory.name:
        raise StackError(f"{file}: name: is {pins.name!r}, but its directory is {directory.name!r}")
    return pins
