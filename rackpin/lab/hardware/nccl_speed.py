"""How fast ``all_reduce_perf`` is on a node, how much memory it has, and why it can't run."""

from __future__ import annotations

from rackpin.lab.hardware.model import Node

KEPT_FREE = 1 << 30  # bytes a card keeps when nccl-tests sizes its buffers
SOCKETS = 1.1  # GB/s: 10 GbE TCP, its line rate less overhead
OF_THE_WIRE = 0.96  # 48 GB/s of a 400 Gb/s HCA: NVIDIA GTC S62129
ONE_RANK = 1000.0  # GB/s: a rank alone copies within its memory


def local_peak(node: Node, ranks: int, nvls: bool) -> float:
    """GB/s of bus bandwidth of the first ``ranks`` cards of one node."""
    model, used = node.preset.collective, node.gpus[:ranks]
    whole = all(node.joined(0, other) for other in range(1, len(used)))
    if model.nvlink and whole and node.card_links:
        if not nvls and model.ring is not None:
            peak = min(model.ring, _of(model.nvlink, ranks))
        else:
            peak = _of(model.nvlink, ranks)
        down = max((len(gpu.links_down) for gpu in used), default=0)
        peak *= (node.card_links - down) / node.card_links
    else:
        peak = model.pcie or model.network
    return peak * node.local_factor


def _of(table: dict[int, float], ranks: int) -> float:
    """The entry of ``ranks``, else of the next lower number that has one, else the lowest."""
    below = [count for count in table if count <= ranks]
    return table[max(below) if below else min(table)]


def network_peak(node: Node) -> float:
    """GB/s over several nodes."""
    if node.sockets:
        return min(SOCKETS, node.preset.collective.network)
    return node.preset.collective.network * node.network_factor


def loop_peak(node: Node) -> float:
    """GB/s within one node where every hop goes out of an HCA: cards share them evenly."""
    nics = node.preset.nics
    if node.sockets or not nics:
        return min(SOCKETS, node.preset.collective.network)
    share = min(1.0, len(nics) / len(node.preset.slots))
    return nics[0].rate / 8 * OF_THE_WIRE * share * node.network_factor


def broken(node: Node, ranks: int) -> str:
    """Why CUDA fails on the first ``ranks`` cards; empty when it works."""
    if not node.loaded:
        return "CUDA driver version is insufficient for CUDA runtime version"
    if node.library is not None:
        return "system has unsupported display driver / cuda driver combination"
    if not node.gpus:
        return "no CUDA-capable device is detected"
    if not node.cuda_works:
        return "system not yet initialized"
    if any(gpu.handle for gpu in node.gpus):
        return "unknown error"
    usable = sum(not gpu.mig for gpu in node.gpus)
    return "invalid device ordinal" if ranks > usable else ""


def memory_limit(node: Node, check: bool) -> int:
    """Bytes of one buffer at most: nccl-tests needs three of them when it checks data."""
    total = (node.card.memory - node.card.reserved) << 20
    return (total - KEPT_FREE) // (3 if check else 2)
