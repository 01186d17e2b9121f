"""Which way the data went, as NCCL's own log says it, and whether that is the right one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackpin.parse import nccl_log
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nccl_log import NcclLog
from rackpin.skus import Sku

_HCA = re.compile(r"^NET/[\w -]+?/(\d+)")  # NET/IB/3/GDRDMA, NET/IBext/5(9)/GDRDMA
WHOLE = "NCCL end"  # the last line of a node's part of the log
_LOCAL = ("P2P", "SHM", "direct")
LAYERS = {"InfiniBand": "IB", "Ethernet": "RoCE"}


@dataclass
class Ways:
    """``by_node``: the way in words; ``untold``: what the logs don't say and should."""

    by_node: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    on_sockets: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """One text where all nodes go the same way, else each node's."""
        distinct = list(dict.fromkeys(self.by_node.values()))
        if len(distinct) <= 1:
            return "".join(distinct)
        usual = max(distinct, key=list(self.by_node.values()).count)
        odd = [f"{node}: {way}" for node, way in self.by_node.items() if way != usual]
        return f"{usual}; but {'; '.join(odd[:4])}" + ("; …" if len(odd) > 4 else "")


def look(sku: Sku, kind: str, nodes: Sequence[str], said: Mapping[str, str]) -> Ways:
    """Judge the logs of a run's nodes (``log NODE`` → text). ``kind`` as a Measurement's.

    On a SKU with a fabric every node must use all its HCAs by GPUDirect RDMA; sockets are a
    fault. Without one any way is right. A log that isn't there tells nothing.
    """
    ways = Ways()
    for node in nodes:
        text = said.get(f"log {node}", "")
        whole = text.rstrip().endswith(WHOLE)
        try:
            log = nccl_log.read(text.replace(f"{WHOLE}\n", ""))
        except NotThisKind:
            ways.untold.append(f"which way {node}'s data went: there is no NCCL log of it")
            continue
        if not whole:
            ways.untold.append(f"all of the way of {node}'s data: its NCCL log came cut")
            continue
        _one(sku, kind, node, log, ways)
    return ways


def _one(sku: Sku, kind: str, node: str, log: NcclLog, ways: Ways) -> None:
    net = [via for via in log.transports if via.startswith("NET/")]
    used = sorted({int(match[1]) for via in net if (match := _HCA.match(via))})
    sockets = [via for via in net if via.startswith("NET/Socket")]
    on_sockets = bool(sockets) or (not net and log.network == "Socket")
    layers = {hca.split("/")[1] for n in used if n < len(log.hcas) for hca in [log.hcas[n]]}
    words = []
    if on_sockets:
        words.append("Socket")
    elif net or log.network:
        words.append(" and ".join(sorted(layers)) or log.network or net[0].split("/")[1])
        if net:
            direct = all("/GDRDMA" in via for via in net)
            words += ["GDRDMA" if direct else "no GDRDMA", f"{len(used)} HCAs"]
    if log.nvls and kind != "loop":
        words.append("NVLS")
    local = [via for via in log.transports if via.startswith(_LOCAL)]
    if kind == "loop" and local:
        ways.untold.append(f"what {node}'s HCAs give: some went by {local[0]}")
    if not words:
        words = [via.split("/")[0] for via in local[:1]]
    ways.by_node[node] = ", ".join(words)
    if sku.gpus.nvswitch and sku.gpus.fabric_state and kind != "loop" and log.nvls is False:
        ways.faults.append(
            f"{node} has no NVLS: see its fabric manager and its cards' fabric state"
        )
    if sku.hcas is None:
        return
    if on_sockets:
        ways.on_sockets.append(node)
        why = ": NCCL found no HCA" if log.no_ib_device else ""
        ways.faults.append(f"{node} goes by sockets, not by its HCAs{why}")
        return
    if not net:
        ways.untold.append(f"which way {node}'s data went: its log has no channel of the network")
        return
    if not all("/GDRDMA" in via for via in net):
        ways.faults.append(f"{node} goes without GPUDirect RDMA, through the host's memory")
    if len(used) < sku.hcas.count:
        ways.faults.append(f"{node} uses {len(used)} of {sku.hcas.count} HCAs")
    if (wanted := LAYERS[sku.hcas.link_layer]) and layers - {wanted}:
        ways.faults.append(f"{node} has HCAs that are {', '.join(sorted(layers))}, not {wanted}")
