"""The short forms: ``nvidia-smi -L``, ``--version``, and ``/proc/driver/nvidia/version``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rackpin.parse.nvidia_smi_model import Gpu
from rackpin.parse.text import last_line

_DEVICE = re.compile(r"[\s#>]*GPU (\d{1,4}): (.+?)(?: \(UUID: ([^)\s]{1,60})\))?\s*$")
_MIG = re.compile(r"\s+MIG (\S+)\s+(?:Device\s+(\d+))?:? *\(UUID: (MIG-[^\s)]+)\)")
_VERSION = re.compile(
    r"\s*(NVIDIA-SMI|NVML|DRIVER|KMD|CUDA(?: UMD| Driver)?) version\s*: *(\S+)", re.I
)
_KERNEL = re.compile(
    r"NVRM version: NVIDIA UNIX (?P<open>Open )?.*?Kernel Module.*?"
    r"\s(?P<version>\d{3}\.\d+(?:\.\d+)?)\s",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class MigInstance:
    """A MIG device of ``-L``: ``profile`` as ``1g.10gb``."""

    gpu: int
    profile: str
    device: int | None
    uuid: str


@dataclass(frozen=True)
class KernelModule:
    """The loaded module: its version, ``open`` or ``proprietary``."""

    version: str
    flavour: str


def device(line: str, cut: bool = False) -> tuple[int, str, str | None] | None:
    """Index, name and UUID of a GPU's line; ``cut``: it may end too early."""
    match = _DEVICE.match(line)
    if not match or (match[3] is None and (cut or "(UUID" in match[2])):
        return None
    return int(match[1]), match[2].strip(), match[3]


def devices(found: Sequence[str], whole_end: bool = True) -> tuple[list[Gpu], list[MigInstance]]:
    """The GPUs of ``-L``, each once, and their MIG devices."""
    gpus: dict[int, Gpu] = {}
    instances: dict[str, MigInstance] = {}
    now = -1
    end = last_line(found)
    for place, line in enumerate(found):
        if one := device(line, cut=not whole_end and place == end):
            now = one[0]
            gpus.setdefault(now, Gpu(index=now, name=one[1], uuid=one[2]))
        elif now >= 0 and (match := _MIG.match(line)):
            number_of = int(match[2]) if match[2] else None
            instances[match[3]] = MigInstance(now, match[1], number_of, match[3])
    return list(gpus.values()), list(instances.values())


def versions(found: Sequence[str], whole_end: bool = True) -> dict[str, str]:
    """``--version``: the value by ``nvidia-smi``, ``nvml``, ``driver``, ``cuda``."""
    names = {"kmd": "driver", "cuda umd": "cuda", "cuda driver": "cuda"}
    said = {}
    for line in found if whole_end else found[:-1]:
        if match := _VERSION.match(line):
            name = match[1].lower()
            said[names.get(name, name)] = match[2]
    return said if len(said) > 1 else {}


def kernel_module(found: Sequence[str]) -> KernelModule | None:
    """``/proc/driver/nvidia/version``, None when it isn't."""
    for line in found:
        if len(line) < 500 and (match := _KERNEL.search(line)):
            return KernelModule(match["version"], "open" if match["open"] else "proprietary")
    return None
