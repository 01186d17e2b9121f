"""The short forms: ``nvidia-smi -L``, ``--version``, and ``/proc/driver/nvidia/version``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rackpin.parse.nvidia_smi_model import Gpu

DEVICE = re.compile(r"[\s#>]*GPU (\d{1,4}): (.+?)(?: \(UUID: ((?:GPU-)?[0-9a-fA-FxX-]+)\))?\s*$")
_MIG = re.compile(r"\s+MIG (\S+)\s+(?:Device\s+(\d+))?:? *\(UUID: (MIG-\S+)\)")
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


def devices(found: Sequence[str]) -> tuple[list[Gpu], list[MigInstance]]:
    """The GPUs of ``-L``, each once, and their MIG devices."""
    gpus: dict[int, Gpu] = {}
    instances: dict[str, MigInstance] = {}
    now = -1
    for line in found:
        if match := DEVICE.match(line):
            now = int(match[1])
            gpus.setdefault(now, Gpu(index=now, name=match[2].strip(), uuid=match[3]))
        elif now >= 0 and (match := _MIG.match(line)):
            device = int(match[2]) if match[2] else None
            instances[match[3]] = MigInstance(now, match[1], device, match[3])
    return list(gpus.values()), list(instances.values())


def versions(found: Sequence[str]) -> dict[str, str]:
    """``--version``: the value by ``nvidia-smi``, ``nvml``, ``driver``, ``cuda``."""
    names = {"kmd": "driver", "cuda umd": "cuda", "cuda driver": "cuda"}
    said = {}
    for line in found:
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
