"""Kernel modules and what decides over them: modprobe, modinfo, mokutil, uname, loaded versions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_MODPROBE = re.compile(
    r"modprobe: (?:ERROR|FATAL): (?:"
    r"could not (?P<what>insert|remove) '(?P<name>[\w-]+)': (?P<why>[^\"\\\n]+)"
    r"|Module (?P<missing>[\w-]+) (?:not found(?: in directory \S+)?|is in use)\.?)"
)
_INSMOD = re.compile(r"insmod: ERROR: could not insert module \S*?([\w-]+)\.ko\S*: (.+)$")
_INSERT = re.compile(r"Failed to insert (?:module )?'([\w-]+)': (.+)$")
_VERMAGIC = re.compile(r"^vermagic:\s+(\S+)")
_FIELD = re.compile(
    r"^(filename|version|license|srcversion|description|signer|sig_id|depends):\s*(.*)$"
)
_SECURE_BOOT = re.compile(
    r"^SecureBoot (enabled|disabled)\b|^(This system doesn't support Secure Boot)"
)
_UNAME_ALONE = re.compile(r"^(\d+\.\d+\.\d+(?:-[\w.+~-]+)+)$")
_UNAME_ALL = re.compile(r"^Linux (\S+) (\d+\.\d+\S*) (#\d+\S*.*)$")
_NVRM = re.compile(
    r"^NVRM version: NVIDIA UNIX .*?(?:Kernel Module|Module)(?: for \w+)?\s+(\d+\.\d+(?:\.\d+)?)\s"
)
_VERSION_ALONE = re.compile(r"^(\d{3}\.\d{2,3}(?:\.\d{2})?)$")


@dataclass(frozen=True)
class Refused:
    """A module that modprobe, insmod or systemd could not load or remove, and why."""

    module: str
    action: str
    why: str


@dataclass(frozen=True)
class Modinfo:
    """Fields of ``modinfo``; ``kernel`` is the first word of vermagic."""

    filename: str | None = None
    version: str | None = None
    kernel: str | None = None
    signer: str | None = None
    license: str | None = None


@dataclass(frozen=True)
class Modules:
    """``loaded_version``: of the loaded NVIDIA module. ``secure_boot`` null when not told."""

    refused: tuple[Refused, ...]
    modinfo: Modinfo | None
    secure_boot: bool | None
    running_kernel: str | None
    loaded_version: str | None


def modules(lines: Sequence[str]) -> Modules:
    """What these lines say of modules."""
    refused: dict[Refused, None] = {}
    fields: dict[str, str] = {}
    secure_boot: bool | None = None
    running = loaded = None
    for line in lines:
        if found := _refused(line):
            refused[found] = None
        elif match := _VERMAGIC.match(line):
            fields["kernel"] = match[1]
        elif match := _FIELD.match(line):
            fields.setdefault(match[1], match[2])
        elif match := _SECURE_BOOT.match(line):
            secure_boot = match[1] == "enabled"
        elif match := _UNAME_ALL.match(line):
            running = match[2]
        elif match := _NVRM.match(line):
            loaded = match[1]
        elif match := _VERSION_ALONE.match(line):
            loaded = loaded or match[1]
        elif match := _UNAME_ALONE.match(line):
            running = running or match[1]
    return Modules(tuple(refused), _modinfo(fields), secure_boot, running, loaded)


def _modinfo(fields: dict[str, str]) -> Modinfo | None:
    if not ("filename" in fields or "kernel" in fields):
        return None
    wanted = ("filename", "version", "kernel", "signer", "license")
    return Modinfo(**{name: fields.get(name) or None for name in wanted})


def _refused(line: str) -> Refused | None:
    if match := _MODPROBE.search(line):
        if match["missing"]:
            why = "in use" if "in use" in match[0] else "not found"
            return Refused(match["missing"], "remove" if why == "in use" else "insert", why)
        return Refused(match["name"], match["what"], match["why"].strip())
    if match := _INSMOD.search(line) or _INSERT.search(line):
        return Refused(match[1], "insert", match[2].strip())
    return None
