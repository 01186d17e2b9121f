"""What nvidia-smi says of one card, by name: the same words in -q, -x and --query-gpu."""

from __future__ import annotations

from rackpin.lab.hardware import identity
from rackpin.lab.hardware.model import Gpu, Node

NONE = "N/A"
OPERATING_C = 85  # at this temperature the clocks begin to fall (T.Limit 0)
HOT_C = 91
# °C of absolute limits, for cards that have no T.Limit (GA100: NVIDIA A100 product brief)
AMPERE_LIMITS = {"t_shutdown": 92, "t_slowdown": 89, "t_operating": 85, "t_memory_max": 95}
MARGINS = {"t_shutdown": -8, "t_slowdown": -2, "t_operating": 0, "t_memory_max": 0}
MIG_USED_MIB = 8


def bus_id(bus: str) -> str:
    """0000:3b:00.0 as nvidia-smi prints it."""
    return f"0000{bus}".upper()


def values(node: Node, index: int) -> dict[str, str]:
    """Card ``index`` of the node; every value is text, with its unit where -q has one with it."""
    gpu = node.gpus[index]
    return {
        **_card(node),
        **_identity(node, gpu),
        **_pci(node, gpu),
        **_state(node, gpu),
        **_temperature(node, gpu),
        **_fabric(node, gpu),
        "index": str(index),
        "count": str(len(node.gpus)),
        "driver": node.driver or "",
    }


def _yes(flag: bool) -> str:
    return "Yes" if flag else "No"


def _active(flag: bool) -> str:
    return "Active" if flag else "Not Active"


def _card(node: Node) -> dict[str, str]:
    card = node.card
    hopper = card.architecture == "Hopper"
    application = card.brand != "GeForce"
    return {
        "name": card.name,
        "brand": card.brand,
        "architecture": card.architecture,
        "compute_capability": card.compute_capability,
        "display_mode": "Enabled" if application else "Disabled",
        "addressing": "HMM" if card.brand == "GeForce" else "None",
        "board_part": card.board_part or NONE,
        "gpu_part": card.gpu_part,
        "inforom_image": card.inforom_image,
        "inforom_oem": card.inforom_oem,
        "inforom_ecc": card.inforom_ecc,
        "gsp": NONE if card.brand == "GeForce" else node.driver or NONE,
        "gsp_mode": "Disabled" if card.brand == "GeForce" else "Enabled",
        "c2c": "Disabled" if hopper else NONE,
        "sparse": "Disabled" if hopper else NONE,
        "memory": str(card.memory),
        "reserved": str(card.reserved),
        "bar1": str(card.bar1),
        "bar1_free": str(card.bar1 - 1),
        "power_limit": f"{card.power_limit:.2f}",
        "power_min": f"{card.power_min:.2f}",
        "memory_power": f"{card.power_idle * 0.6:.2f} W" if hopper else NONE,
        "clock_memory": str(card.clock_memory),
        "clock_video": str(card.clock_video),
        "clock_video_idle": str(card.clock_video // 2),
        "clock_max": str(card.clock_graphics),
        "clock_boost": f"{card.clock_graphics} MHz" if application else NONE,
        "clock_app": f"{card.clock_graphics} MHz" if application else NONE,
        "clock_app_memory": f"{card.clock_memory} MHz" if application else NONE,
        "remap_max": str(card.remap_banks),
    }


def _identity(node: Node, gpu: Gpu) -> dict[str, str]:
    return {
        "serial": gpu.serial if node.card.serial else NONE,
        "uuid": gpu.uuid,
        "pdi": f"0x{identity.guid('pdi', gpu.uuid):016x}",
        "minor": str(gpu.minor),
        "module": str(gpu.minor + 1),
        "vbios": gpu.vbios,
    }


def _pci(node: Node, gpu: Gpu) -> dict[str, str]:
    domain, bus, rest = gpu.slot.bus.split(":")
    device = rest.partition(".")[0]
    card = node.card
    vendor, subsystem = card.subsystem.split(":")
    return {
        "bus": bus_id(gpu.slot.bus),
        "pci_bus": f"0x{bus.upper()}",
        "pci_device": f"0x{device.upper()}",
        "pci_domain": f"0x{domain.upper()}",
        "pci_subclass": f"0x{int(card.pci_class[2:], 16):X}",
        "pci_id": f"0x{card.device_id.upper()}10DE",
        "pci_subsystem": f"0x{subsystem.upper()}{vendor.upper()}",
        "board_id": f"0x{int(bus, 16):x}{device}",
        "pcie_gen": str(card.pcie.generation),
        "pcie_gen_now": "1" if node.asleep(gpu) else str(card.pcie.generation),
        "pcie_width_max": str(card.pcie.width),
        "pcie_width": str(gpu.width),
    }


def _state(node: Node, gpu: Gpu) -> dict[str, str]:
    card = node.card
    used = MIG_USED_MIB if gpu.mig else 0
    ecc = "Enabled" if gpu.ecc else "Disabled"
    clock = card.clock_graphics // 2 if gpu.hot else card.clock_idle
    return {
        "mig": NONE if not card.mig else "Enabled" if gpu.mig else "Disabled",
        "reset": _yes(gpu.remap_pending),
        "drain": _yes(gpu.remap_pending) if card.brand != "GeForce" else NONE,
        "recovery": "Reset" if gpu.remap_pending else "None",
        "fan": NONE if card.fan is None else f"{card.fan} %",
        "pstate": "P8" if node.asleep(gpu) else "P0",
        "idle": _active(not gpu.hot),
        "slowdown": _active(gpu.hot),
        "reasons": "0x0000000000000048" if gpu.hot else "0x0000000000000001",
        "used": str(used),
        "free": str(card.memory - card.reserved - used),
        "utilization": NONE if gpu.mig else "0 %",
        "ecc": ecc,
        "ecc_count": "0" if gpu.ecc else NONE,
        "ecc_no": "No" if gpu.ecc else NONE,
        "remapped": str(gpu.remapped),
        "remap_pending": _yes(gpu.remap_pending),
        "remap_pending_bit": str(int(gpu.remap_pending)),
        "remap_max": str(card.remap_banks - gpu.remapped),
        "power": f"{card.power_limit / 2 if gpu.hot else card.power_idle + 0.37 * gpu.minor:.2f}",
        "clock": str(clock),
        "voltage": NONE if card.architecture == "Ampere" else "670.000 mV",
    }


def _temperature(node: Node, gpu: Gpu) -> dict[str, str]:
    ampere = node.card.architecture == "Ampere"
    now = HOT_C if gpu.hot else node.card.temperature + gpu.minor % 4
    limits = AMPERE_LIMITS if ampere else MARGINS
    memory = node.card.architecture == "Hopper" or ampere
    found = {name: f"{celsius} C" for name, celsius in limits.items()}
    found["tlimit"] = NONE if ampere else f"{OPERATING_C - now} C"
    found["t_memory"] = f"{now + 9} C" if memory else NONE
    plain = {f"{name}_plain": found[name].removesuffix(" C") for name in ("tlimit", "t_memory")}
    return {
        **plain,
        **found,
        "temperature": str(now),
        "t_target": "84 C" if node.card.brand == "GeForce" else NONE,
        "t_memory_max": found["t_memory_max"] if memory else NONE,
    }


def _fabric(node: Node, gpu: Gpu) -> dict[str, str]:
    """A100 has NVSwitches but no fabric state: that came with Hopper."""
    if node.fabric == "none" or node.card.architecture != "Hopper":
        return dict.fromkeys(("fabric_state", "fabric_status", "fabric_clique"), NONE) | {
            "fabric_cluster": NONE
        }
    running = node.fabric == "running"
    return {
        "fabric_state": "Completed" if running else "In Progress",
        "fabric_status": "Success" if running else NONE,
        "fabric_clique": "0" if running else NONE,
        "fabric_cluster": gpu.fabric_id if running else NONE,
    }
