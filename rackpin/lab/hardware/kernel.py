"""What the kernel shows of the hardware: its log, modules, /proc/driver/nvidia, sysfs."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.lab.hardware import ib
from rackpin.lab.hardware.model import Nic, Node
from rackpin.lab.hardware.parts import Answer
from rackpin.lab.hardware.values import bus_id

# module → size in bytes, who uses it (as lsmod shows them)
NVIDIA_MODULES = {
    "nvidia_uvm": (1523712, 0, ""),
    "nvidia_drm": (77824, 0, ""),
    "nvidia_modeset": (1306624, 1, "nvidia_drm"),
    "nvidia": (56827904, 2, "nvidia_uvm,nvidia_modeset"),
}
PEERMEM = {"nvidia_peermem": (16384, 0, "")}
NOUVEAU = {"nouveau": (2306048, 0, "")}
MLX5 = {
    "mlx5_ib": (397312, 0, ""),
    "ib_uverbs": (163840, 1, "mlx5_ib"),
    "ib_core": (401408, 2, "ib_uverbs,mlx5_ib"),
    "mlx5_core": (1630208, 1, "mlx5_ib"),
}
GCC = "gcc version 12.2.0 (Debian 12.2.0-14)"
BUILT = "Thu Oct 19 18:56:32 UTC 2023"


def log(node: Node) -> list[tuple[float, str]]:
    """Seconds after boot and line, in order: how drivers came up, then what broke."""
    lines: list[tuple[float, str]] = []
    for index, nic in enumerate(node.nics):
        at = 4.1 + index / 10
        lines.append((at, f"mlx5_core {nic.slot.bus}: firmware version: {nic.firmware}"))
    if node.driver is not None and not node.nouveau:
        flavour = f"NVIDIA UNIX x86_64 Kernel Module  {node.driver}  {BUILT}"
        lines += [
            (8.2, "nvidia: loading out-of-tree module taints kernel."),
            (8.4, "nvidia-nvlink: Nvlink Core is being initialized, major device number 236"),
            (8.9, f"NVRM: loading {flavour}"),
            (9.6, "nvidia-uvm: Loaded the UVM driver, major device number 234."),
        ]
    if node.nouveau:
        lines += [
            (7.0 + index / 10, f"nouveau {gpu.slot.bus}: vgaarb: deactivate vga console")
            for index, gpu in enumerate(node.gpus)
        ]
    return sorted([*lines, *node.kernel_log])


def modules(node: Node) -> dict[str, tuple[int, int, str]]:
    """Modules that are loaded, as in /proc/modules: size, count of users, users."""
    found: dict[str, tuple[int, int, str]] = {}
    if node.nouveau:
        found |= NOUVEAU
    elif node.driver is not None:
        found |= NVIDIA_MODULES | (PEERMEM if node.nics else {})
    return found | (MLX5 if node.nics else {})


def lsmod(node: Node) -> Answer:
    out = f"{'Module':<20}{'Size':>9}  Used by\n"
    for name, (size, count, users) in modules(node).items():
        out += f"{name:<20}{size:>9}  {count}{f' {users}' if users else ''}\n"
    return Answer(out, "", 0)


def proc_modules(node: Node) -> str:
    lines = [
        f"{name} {size} {count} {f'{users},' if users else '-'} Live 0x0000000000000000\n"
        for name, (size, count, users) in modules(node).items()
    ]
    return "".join(lines)


def modinfo(node: Node) -> dict[str, str]:
    """Fields of the module on disk: after an upgrade it is newer than the one that is loaded."""
    if node.driver is None:
        return {}
    version = node.library or node.driver
    return {
        "filename": "/lib/modules/updates/dkms/nvidia.ko",
        "alias": "char-major-195-*",
        "version": version,
        "supported": "external",
        "license": "NVIDIA",
        "firmware": f"nvidia/{version}/gsp_tu10x.bin",
        "name": "nvidia",
    }


def mokutil(node: Node, argv: Sequence[str]) -> Answer:
    """``mokutil --sb-state`` and ``--test-key FILE``."""
    match list(argv):
        case ["--sb-state"]:
            return Answer(f"SecureBoot {'enabled' if node.secure_boot else 'disabled'}\n", "", 0)
        case ["--test-key", file]:
            return Answer(f"{file} is not enrolled\n", "", 0)
    return Answer("", "Usage:\n  mokutil OPTIONS [ARGS...]\n", 1)


def detect_virt(_node: Node, _argv: Sequence[str]) -> Answer:
    """``systemd-detect-virt``: servers with this hardware are bare metal."""
    return Answer("none\n", "", 1)


KEYED = {"mokutil": mokutil, "systemd-detect-virt": detect_virt}
CALLS: dict[str, list[list[str]]] = {
    "mokutil": [["--sb-state"], ["--test-key", "@WORD@"]],
    "systemd-detect-virt": [[]],
}
DISK = ("uname", "modprobe")  # only where kernel and modules follow from the host's disk


def proc_driver(node: Node) -> dict[str, str]:
    """Files below /proc/driver/nvidia; none where the module isn't loaded."""
    if node.driver is None or node.nouveau:
        return {}
    flavour = f"NVIDIA UNIX x86_64 Kernel Module  {node.driver}  {BUILT}"
    files = {
        "version": f"NVRM version: {flavour}\nGCC version:  {GCC}\n",
        "params": "EnableMSI: 1\nNVreg_RestrictProfilingToAdminUsers: 1\n",
    }
    for gpu in node.gpus:
        lines = {
            "Model": f"\t\t {node.card.name}",
            "IRQ": "  \t\t 130",
            "GPU UUID": f"\t {gpu.uuid}",
            "Video BIOS": f"\t {gpu.vbios.lower()}",
            "Bus Type": "\t PCIe",
            "DMA Size": "\t 52 bits",
            "DMA Mask": "\t 0xfffffffffffff",
            "Bus Location": f"\t {gpu.slot.bus}",
            "Device Minor": f"\t {gpu.minor}",
            "GPU Firmware": f"\t {node.driver}",
            "GPU Excluded": "\t No",
        }
        text = "".join(f"{key}:{value}\n" for key, value in lines.items())
        files[f"gpus/{gpu.slot.bus}/information"] = text
    return files


COUNTERS = (  # of a port's errors, as mlx5 has them
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
    "port_rcv_remote_physical_errors", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "port_xmit_discards",
)  # fmt: skip


def sys_infiniband(node: Node) -> dict[str, str]:
    """Files below /sys/class/infiniband."""
    files: dict[str, str] = {}
    for nic in node.nics:
        physical = {"LinkUp": "5: LinkUp", "Polling": "2: Polling", "Disabled": "3: Disabled"}
        device = {
            "fw_ver": nic.firmware,
            "hca_type": nic.ca_type,
            "board_id": nic.board_id,
            "hw_rev": "0",
            "node_type": "1: CA",
            "node_guid": ib.grouped(nic.guid),
            "sys_image_guid": ib.grouped(nic.guid),
            "ports/1/state": "4: ACTIVE" if nic.state == "Active" else "1: DOWN",
            "ports/1/phys_state": physical[nic.physical],
            "ports/1/rate": f"{ib.rate(nic)} Gb/sec ({ib.SPEEDS[ib.rate(nic)]})",
            "ports/1/link_layer": nic.link_layer,
            "ports/1/lid": f"0x{nic.lid:x}",
            "ports/1/sm_lid": f"0x{ib.subnet_lid(nic):x}",
            "ports/1/lid_mask_count": "0",
            "ports/1/cap_mask": "0xa751e848" if nic.link_layer == "InfiniBand" else "0x00010000",
            **_gids(nic),
            "device/numa_node": str(nic.slot.numa),
            "device/uevent": f"DRIVER=mlx5_core\nPCI_SLOT_NAME={nic.slot.bus}",
        }
        device |= {f"ports/1/counters/{c}": str(nic.counters.get(c, 0)) for c in COUNTERS}
        files |= {f"{nic.device}/{name}": f"{text}\n" for name, text in device.items()}
    return files


def _gids(nic: Nic) -> dict[str, str]:
    """The port's addresses as show_gids lists them; on Ethernet each for RoCE v1 and v2."""
    if nic.link_layer == "InfiniBand":
        return {"ports/1/gids/0": ib.gid(nic)}
    found = {}
    for index, kind in enumerate(("IB/RoCE v1", "RoCE v2")):
        found[f"ports/1/gids/{index}"] = ib.gid(nic)
        found[f"ports/1/gid_attrs/types/{index}"] = kind
        found[f"ports/1/gid_attrs/ndevs/{index}"] = nic.netdev
    return found


def fabric_log(node: Node) -> str:
    """What fabric manager says when it starts."""
    if node.fabric == "mismatch":
        return (
            f"fabric manager NVIDIA GPU driver interface version {node.fabric_version} don't match "
            f"with driver version {node.driver}. Please update with matching NVIDIA driver "
            "package.\n"
        )
    seen = "\n".join(f"detected GPU {bus_id(gpu.slot.bus)} {gpu.uuid}" for gpu in node.gpus)
    return f"Fabric Manager version is : {node.fabric_version}\n{seen}\nSuccessfully configured\n"
