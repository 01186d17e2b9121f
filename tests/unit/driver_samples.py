"""What a node with GPUs answers to the driver's state script, in the tools' own formats."""

from __future__ import annotations

import base64
from dataclasses import replace

from rackpin.driver.state import DriverState, parse_state
from rackpin.driver.want import Want
from rackpin.parse.dkms import DkmsModule

KERNEL, OTHER = "6.5.0-45-generic", "6.5.0-44-generic"
VERSION = "535.129.03"
WANT = Want(
    version=VERSION,
    flavour="closed",
    source="nvidia",
    kernel=KERNEL,
    compiler="gcc-12",
    fabric_manager=True,
    nvswitch=True,
    gpus=2,
)

PCI = """\
0000:07:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)
0000:17:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
0000:18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
= 0"""
LSMOD = """\
Module                  Size  Used by
nvidia_uvm           1523712  0
nvidia              56827904  2 nvidia_uvm
mlx5_core            1630208  0
= 0"""
LOADED = (
    f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  Thu Oct 19 18:56:32 UTC 2023\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)"
)
DKMS = f"nvidia, {VERSION}, {KERNEL}, x86_64: installed\n= 0"
GRUB = """\
set default="0"
menuentry 'Ubuntu' {
	linux	/boot/vmlinuz-6.5.0-45-generic root=UUID=1 ro
}
"""
BUILT = "\n".join(
    f"/lib/modules/{KERNEL}/updates/dkms/{name}.ko|{VERSION}"
    for name in ("nvidia", "nvidia-modeset", "nvidia-uvm")
)


def text(**changes: str) -> list[str]:
    """The script's answer of a node as wished; a section is changed by its name."""
    sections = {
        "pci": PCI,
        "modules": LSMOD,
        "loaded": LOADED,
        "version": "",
        "params": 'EnableMSI: 1\nEnableGpuFirmware: 18\nRegistryDwords: ""',
        "secureboot": "SecureBoot disabled",
        "keys": "",
        "running": KERNEL,
        "boot": "0b6f2a30-0000-4000-8000-000000000001",
        "images": f"initrd.img-{KERNEL}\nvmlinuz-{KERNEL}",
        "headers": KERNEL,
        "built": BUILT,
        "dkms": DKMS,
        "grub": base64.b64encode(GRUB.encode()).decode(),
        "grubenv": "",
        "foreign": "",
        "engines": "",
        "holders": "812 nvidia-persiste\n990 nv-fabricmanage",
        "errors": "",
        "audit": "",
        "end": "",
    }
    assert not changes.keys() - sections.keys()
    lines = []
    for name, body in {**sections, **changes}.items():
        lines += [f"## {name}", *body.splitlines()]
    return lines


def state(**changes: str) -> DriverState:
    return parse_state(text(**changes))


SOUND = state()
# As a vendor delivers it: the OS's own kernel, nouveau on the cards, nothing of NVIDIA's.
BARE = replace(
    SOUND,
    modules=frozenset({"nouveau"}),
    loaded="",
    flavour="",
    params={},
    running=OTHER,
    kernels=(OTHER,),
    initrds=(OTHER,),
    headers=(),
    built={},
    dkms=(),
    next=OTHER,
)
# Everything installed and built, the node not rebooted yet.
READY = replace(
    BARE,
    kernels=(OTHER, KERNEL),
    initrds=(OTHER, KERNEL),
    headers=(KERNEL,),
    built=SOUND.built,
    dkms=SOUND.dkms,
    next=KERNEL,
)


def dkms(
    version: str, kernel: str, status: str = "installed", module: str = "nvidia"
) -> DkmsModule:
    return DkmsModule(module, version, kernel, "x86_64", status, 0, False)
