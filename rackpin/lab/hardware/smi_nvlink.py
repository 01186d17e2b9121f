"""``nvidia-smi nvlink -s`` and ``nvlink -e``."""

from __future__ import annotations

from collections.abc import Callable

from rackpin.lab.hardware.model import Gpu, Node
from rackpin.lab.hardware.parts import Parts

COUNTERS = ("Replay Errors", "Recovery Errors", "CRC Errors")


def status(node: Node) -> Parts:
    """``nvlink -s``: the speed of every link."""
    link = node.preset.nvlink
    speed = link.gbps if link else ""

    def lines(gpu: Gpu, number: int) -> list[str]:
        shown = "<inactive>" if number in gpu.links_down else f"{speed} GB/s"
        return [f"\t Link {number}: {shown}"]

    return _each(node, lines)


def errors(node: Node) -> Parts:
    """``nvlink -e``: counters of every link that is up."""

    def lines(gpu: Gpu, number: int) -> list[str]:
        if number in gpu.links_down:
            return []
        return [*(f"\t Link {number}: {counter}: 0" for counter in COUNTERS), ""]

    return _each(node, lines)


def _each(node: Node, lines: Callable[[Gpu, int], list[str]]) -> Parts:
    cards = []
    for index, gpu in enumerate(node.gpus):
        out = [f"GPU {index}: {node.card.name} (UUID: {gpu.uuid})"]
        if gpu.mig:
            out.append("Nvlink queries are not supported for Devices in MIG mode")
        elif not node.card_links:
            out.append("NVML: Unable to retrieve NVLink information as all links are inActive")
        else:
            for number in range(node.card_links):
                out += lines(gpu, number)
        cards.append("\n".join(out) + "\n")
    return Parts("", cards)
