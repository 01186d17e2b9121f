"""Texts of the system below the engines: recognise the tools in one, read each one's part.

People paste several outputs together, so each reader takes its own lines and leaves the rest;
``tools`` lists all that spoke, ``tool`` is the first in the order of ``_signs``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rackpin.parse.apt_output import Apt, apt_output
from rackpin.parse.dkms import DkmsModule, dkms_line
from rackpin.parse.fabric_manager import FabricManager, fabric_manager
from rackpin.parse.kernel_log import Kernel, Magic, Oom, Sxid, Symbol, Versions, Xid, kernel
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.limits import Limit, limits
from rackpin.parse.loglines import Line, ends_whole, lines
from rackpin.parse.lspci import Lspci, is_lspci, lspci
from rackpin.parse.modules import Modinfo, Modules, Refused, modules
from rackpin.parse.system_errors import errors_of
from rackpin.parse.system_form import form_of, kernel_lines
from rackpin.parse.units import Unit, units


@dataclass(frozen=True)
class SystemReading:
    """``tool``: dmesg, kmsg, journalctl, syslog, modprobe, mokutil, modinfo, uname, dkms, apt,
    apt-cache, lspci, fabricmanager, systemctl, limits. ``form`` tells its options or dress.
    What the text has nothing of is empty or null."""

    tool: str
    form: str
    tools: tuple[str, ...]
    xids: tuple[Xid, ...]
    sxids: tuple[Sxid, ...]
    mismatch: Versions | None
    oom: tuple[Oom, ...]
    symbols: tuple[Symbol, ...]
    faults: dict[str, int]
    lost_carrier: dict[str, int]
    iommu_faults: tuple[str, ...]
    version_magic: tuple[Magic, ...]
    refused: tuple[Refused, ...]
    modinfo: Modinfo | None
    secure_boot: bool | None
    running_kernel: str | None
    loaded_version: str | None
    dkms: tuple[DkmsModule, ...]
    apt: Apt | None
    lspci: Lspci | None
    fabric_manager: FabricManager | None
    units: tuple[Unit, ...]
    limits: tuple[Limit, ...]
    errors: tuple[str, ...]


def read(text: str) -> SystemReading:
    """Read a text of one tool or several. Raises NotThisKind when no known tool speaks in it."""
    every = _unfolded(_sure(lines(text), ends_whole(text)))
    texts = [line.text for line in every]
    shown = [line.shown for line in every]
    messages = kernel(every)
    mods = modules(texts)
    built = tuple(found for line in texts if (found := dkms_line(line)))
    packages = apt_output(shown)
    pci = lspci(shown) if any(is_lspci(line) for line in shown) else None
    fabric = fabric_manager(every)
    known_units, unit_errors = units(every)
    bounds = limits(shown)
    tools = _tools(every, messages, mods, built, packages, pci, fabric, known_units, bounds)
    if not tools:
        raise NotThisKind(
            "none of the known tools speaks in it (dmesg, journal, modprobe, modinfo, mokutil, "
            "uname, dkms, apt, lspci, fabric manager, systemctl, limits)"
        )
    return SystemReading(
        tool=tools[0],
        form=form_of(tools[0], every),
        tools=tools,
        xids=messages.xids,
        sxids=messages.sxids,
        mismatch=messages.mismatch,
        oom=messages.oom,
        symbols=messages.symbols,
        faults=messages.faults,
        lost_carrier=messages.lost_carrier,
        iommu_faults=messages.iommu_faults,
        version_magic=messages.version_magic,
        refused=mods.refused,
        modinfo=mods.modinfo,
        secure_boot=mods.secure_boot,
        running_kernel=mods.running_kernel,
        loaded_version=mods.loaded_version,
        dkms=built,
        apt=packages,
        lspci=pci,
        fabric_manager=fabric,
        units=known_units,
        limits=bounds,
        errors=errors_of(messages, mods, built, packages, fabric, unit_errors),
    )


def _unfolded(every: list[Line]) -> list[Line]:
    """The lines, and those that Ansible folds into the JSON of one line."""
    return [
        part
        for line in every
        for part in (
            [
                Line(line.number, text, text)
                for text in re.split(r'\\n|", "|": "', line.shown)
                if text
            ]
            if "=> {" in line.shown
            else [line]
        )
    ]


def _sure(every: list[Line], whole: bool) -> list[Line]:
    """The lines, without a number at a cut end: it may lack digits."""
    if whole or not every:
        return every
    last = every[-1]
    return [*every[:-1], Line(last.number, _uncut(last.text), _uncut(last.shown), last.level)]


def _uncut(text: str) -> str:
    """The text without its last word, if that has a digit."""
    rest, _, word = text.rpartition(" ")
    return rest.rstrip() if any(char.isdigit() for char in word) else text


def _tools(
    every: Sequence[Line],
    messages: Kernel,
    mods: Modules,
    built: tuple[DkmsModule, ...],
    packages: Apt | None,
    pci: Lspci | None,
    fabric: FabricManager | None,
    known_units: tuple[Unit, ...],
    bounds: tuple[Limit, ...],
) -> tuple[str, ...]:
    """The tools that speak, the one a reader would name first being first."""
    spoke_kernel = bool(
        messages.xids
        or messages.sxids
        or messages.mismatch
        or messages.symbols
        or messages.version_magic
    )
    dress = kernel_lines(every)
    cache = packages is not None and bool(packages.packages)
    apt_speaks = packages is not None and not cache
    signs = {
        "lspci": pci is not None and len(pci.devices) + pci.acs.lines > 0 and not fabric,
        "fabricmanager": fabric is not None,
        "dkms": bool(built),
        "apt": apt_speaks,
        "apt-cache": cache,
        "mokutil": mods.secure_boot is not None,
        "modprobe": bool(mods.refused) and not spoke_kernel,
        dress or "dmesg": bool(dress) or spoke_kernel or bool(messages.faults or messages.oom),
        "modprobe ": bool(mods.refused) and spoke_kernel,
        "modinfo": mods.modinfo is not None,
        "systemctl": bool(known_units),
        "limits": bool(bounds),
        "nvidia module": mods.loaded_version is not None,
        "uname": mods.running_kernel is not None,
    }
    return tuple(name.strip() for name, is_there in signs.items() if is_there)
