"""``nvidia-smi topo -m``, ``topo -mp`` and ``topo -p2p``."""

from __future__ import annotations

from rackpin.lab.hardware.model import Node, Slot
from rackpin.lab.hardware.parts import Parts

UNDERLINE, PLAIN = "\x1b[4m", "\x1b[0m"  # printed also where the output is no terminal

LEGEND = {
    "X": "Self",
    "SYS": "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes"
    " (e.g., QPI/UPI)",
    "NODE": "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges"
    " within a NUMA node",
    "PHB": "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
    "PXB": "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
    "PIX": "Connection traversing at most a single PCIe bridge",
    "NV#": "Connection traversing a bonded set of # NVLinks",
}
P2P_LEGEND = {
    "X": "Self",
    "OK": "Status Ok",
    "CNS": "Chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "Topology not supported",
    "NS": "Not supported",
    "U": "Unknown",
}
P2P_KINDS = ("r", "w", "n", "a", "p")  # read, write, NVLink, atomics, PCIe


def near(one: Slot, other: Slot) -> str:
    """How PCIe joins two devices: PIX is nearest, SYS farthest."""
    if one.numa != other.numa:
        return "SYS"
    bridge, switch, port = one.path.split("/")
    other_bridge, other_switch, other_port = other.path.split("/")
    if bridge != other_bridge:
        return "NODE"
    if switch != other_switch:
        return "PHB"
    return "PIX" if port == other_port else "PXB"


def matrix(node: Node, nvlink: bool = True) -> Parts:
    """``topo -m``; without ``nvlink``: ``topo -mp``."""
    slots = [gpu.slot for gpu in node.gpus] + [nic.slot for nic in node.nics]
    cards = len(node.gpus)
    labels = [f"GPU{i}" for i in range(cards)] + [f"NIC{i}" for i in range(len(node.nics))]
    heads = [*labels, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    out = [f"\t{UNDERLINE}" + "\t".join(heads) + PLAIN]
    for i, label in enumerate(labels):
        cells = [_cell(node, slots, i, j, nvlink) for j in range(len(slots))]
        numa = slots[i].numa
        ends = [node.preset.cpus[numa], str(numa), "", "N/A"] if i < cards else ["", "", "", ""]
        out.append("\t".join([label, *cells, *ends]))
    out += ["", "Legend:", ""]
    out += [f"  {key:<4} = {text}" for key, text in LEGEND.items() if nvlink or key != "NV#"]
    if node.nics:
        out += ["", "NIC Legend:", ""]
        out += [f"  NIC{i}: {nic.device}" for i, nic in enumerate(node.nics)]
    return Parts("\n".join(out) + "\n\n")


def _cell(node: Node, slots: list[Slot], i: int, j: int, nvlink: bool) -> str:
    if i == j:
        return " X "
    if nvlink and max(i, j) < len(node.gpus):
        links = node.joined(i, j)
        if links:
            return f"NV{links}"
    return near(slots[i], slots[j])


def peers(node: Node, kind: str) -> Parts:
    """``topo -p2p KIND``: may two cards reach each other's memory."""
    numbers = range(len(node.gpus))
    out = [" \t" + "\t".join(f"GPU{i}" for i in numbers)]
    for i in numbers:
        cells = ["X" if i == j else _peer(node, i, j, kind) for j in numbers]
        out.append(f" GPU{i}\t" + "\t".join(cells))
    out += ["", "Legend:", ""]
    out += [f"  {key:<4} = {text}" for key, text in P2P_LEGEND.items()]
    return Parts("\n".join(out) + "\n")


def _peer(node: Node, i: int, j: int, kind: str) -> str:
    if kind == "n":
        return "OK" if node.joined(i, j) else "NS"
    # GeForce cards of this age do no peer-to-peer, whatever the chipset
    return "CNS" if node.card.brand == "GeForce" else "OK"
