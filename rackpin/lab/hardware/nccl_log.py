"""NCCL's own log (``NCCL_DEBUG=INFO``) of one process of all_reduce_perf on a simulated node.

Rendered once for each kind of run, with marks where a run's own numbers stand: the program on a
host puts them in with awk, :func:`fill` does the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from rackpin.lab.hardware.model import Nic, Node

Kind = Literal["local", "loop", "network"]
KINDS: tuple[Kind, ...] = ("local", "loop", "network")
TID = 11  # threads of a process have numbers of their own


def kind_of(hosts: int, env: Mapping[str, str]) -> Kind:
    """Which way the data go: over the network, or out of one HCA into the next, or neither."""
    if hosts > 1:
        return "network"
    off = env.get("NCCL_P2P_DISABLE") == "1" and env.get("NCCL_SHM_DISABLE") == "1"
    return "loop" if off else "local"


def usable(node: Node) -> list[Nic]:
    """HCAs that NCCL takes: it leaves out ports that are down."""
    return [] if node.sockets else [nic for nic in node.nics if nic.state == "Active"]


def template(node: Node, kind: Kind) -> str:
    """Lines with @PID@, @RANKS@, @Rn@ (rank of card n) and @Nn@ (the rank it sends to)."""
    nics, cards = usable(node), range(len(node.gpus))
    major = node.cuda.split(".")
    lines: list[tuple[int, str]] = [
        (0, f"NCCL INFO cudaDriverVersion {int(major[0]) * 1000 + int(major[1]) * 10}"),
        (0, f"NCCL version {node.preset.nccl}+cuda{node.cuda}"),
    ]
    hopper = node.card.architecture == "Hopper" and node.fabric == "running"
    for card in cards:
        if nics:
            listed = " ".join(
                f"[{n}]{nic.device}:1/{'IB' if nic.link_layer == 'InfiniBand' else 'RoCE'}"
                for n, nic in enumerate(nics)
            )
            lines.append((card, f"NCCL INFO NET/IB : Using {listed} [RO]; OOB host0:<0>"))
            lines.append((card, "NCCL INFO Using network IB"))
        else:
            lines.append((card, "NCCL INFO NET/IB : No device found."))
            lines.append((card, "NCCL INFO NET/Socket : Using [0]host0:<0>"))
            lines.append((card, "NCCL INFO Using network Socket"))
        if node.card.architecture == "Hopper":
            word = "is" if hopper else "is not"
            lines.append((card, f"NCCL INFO NVLS multicast support {word} available on dev {card}"))
        lines.append(
            (card, f"NCCL INFO Channel 00/0 : @R{card}@[{card}] -> {_way(node, card, kind)}")
        )
        bus = node.gpus[card].slot.bus.replace(":", "").replace(".", "").lstrip("0")
        lines.append(
            (
                card,
                f"NCCL INFO comm 0x55d0c0de{card:04x} rank @R{card}@ nranks @RANKS@ cudaDev {card} "
                f"nvmlDev {card} busId {bus} commId 0x1f2e3d4c5b6a7988 - Init COMPLETE",
            )
        )
    return "".join(f"{node.name}:@PID@:@PID@{TID} [{card}] {text}\n" for card, text in lines)


def _way(node: Node, card: int, kind: Kind) -> str:
    nics = usable(node)
    if kind == "local":
        other = (card + 1) % len(node.gpus)
        way = "P2P/CUMEM/read" if node.joined(card, other) else "SHM/direct/direct"
        return f"@R{other}@[{other}] via {way}"
    if not nics:
        return f"@N{card}@[{card}] [send] via NET/Socket/0"
    number = card * len(nics) // len(node.gpus)
    return f"@N{card}@[{card}] [send] via NET/IB/{number}" + ("/GDRDMA" if node.gdr else "")


def fill(text: str, *, cards: int, rank: int, ranks: int, pid: int) -> str:
    """The log of the process whose first card has this rank, over its first ``cards``."""

    def number(match: re.Match[str]) -> str:
        card = int(match[2])
        one = rank + card
        return str(one if match[1] == "R" else (one + cards) % ranks)

    kept = [line for line in text.splitlines(keepends=True) if _card(line) < cards]
    text = "".join(kept).replace("@PID@", str(pid)).replace("@RANKS@", str(ranks))
    return re.sub(r"@([RN])(\d+)@", number, text)


def _card(line: str) -> int:
    match = re.search(r" \[(\d+)\] ", line)
    assert match is not None
    return int(match[1])
