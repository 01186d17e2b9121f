"""Which ports are the fabric of the cards: by link layer and nearness, never by a device's number.

Ports for storage or management stay out, whatever they are called (F073).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rackpin.fabric.model import Fabric, Hca, Near, Port, distance, natural

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
SLOWEST = 0.5  # of the fastest port: NCCL itself joins only ports of one speed


@dataclass(frozen=True)
class Rail:
    """One port that collectives may use."""

    hca: Hca
    port: Port


@dataclass(frozen=True)
class Choice:
    """The fabric of a node. ``layer`` is empty when no port can be used."""

    layer: str = ""
    rails: tuple[Rail, ...] = ()
    left: tuple[Rail, ...] = ()  # ports of adapters that are not the fabric
    near: tuple[tuple[str, Near], ...] = ()  # by card's slot: how far its nearest rail is
    notes: tuple[str, ...] = ()

    @property
    def farthest(self) -> Near | None:
        return max((near for _, near in self.near), default=None)


def choose(fabric: Fabric) -> Choice:
    """The rails of this node, in the order of their names. The facts' order doesn't count."""
    notes: list[str] = []
    rails: list[Rail] = []
    for hca in fabric.hcas:
        for port in hca.ports:
            if port.layer not in (INFINIBAND, ETHERNET):
                notes.append(
                    f"{hca.name}: link layer {port.layer or 'unknown'}: not for NCCL's verbs"
                )
            elif not hca.slot:
                notes.append(f"{hca.name} is on no PCI bus (software RDMA): left out")
            elif hca.virtual:
                notes.append(
                    f"{hca.name} is a virtual function of an adapter that is here: left out"
                )
            else:
                rails.append(Rail(hca, port))
    rails = [rail for rail in rails if not _spare(rail, rails)]
    rails.sort(key=lambda rail: (natural(rail.hca.name), rail.port.number))
    layers = sorted({rail.port.layer for rail in rails if rail.port.up})
    best = max(layers, key=lambda layer: _weight(fabric, rails, layer), default="")
    if not best:
        return Choice(left=tuple(rails), notes=(*sorted(set(notes)), *_down(rails)))
    chosen = _fast(_nearest(fabric, [r for r in rails if r.port.layer == best]))
    left = tuple(rail for rail in rails if rail not in chosen)
    near = tuple(
        (gpu.slot, min(distance(gpu, rail.hca) for rail in chosen))
        for gpu in sorted(fabric.gpus, key=lambda gpu: gpu.slot)
    )
    return Choice(best, tuple(chosen), left, near, (*sorted(set(notes)), *_down(chosen)))


def _down(rails: Iterable[Rail]) -> tuple[str, ...]:
    return tuple(
        f"{rail.hca.name} port {rail.port.number} is {rail.port.state}/{rail.port.physical}: "
        + _why_down(rail.port)
        for rail in rails
        if not rail.port.up
    )


def _why_down(port: Port) -> str:
    if port.physical == "LinkUp" and port.layer == INFINIBAND and not port.sm_lid:
        return "linked, but no subnet manager answers; start opensm or look at the switch"
    if port.physical == "Disabled":
        return "disabled; enable it, or take the adapter out"
    return "no link; look at its cable and switch port"


def _spare(rail: Rail, rails: Iterable[Rail]) -> bool:
    """A dead port beside a live one of the same card: nobody put a cable in."""
    card = rail.hca.slot.rpartition(".")[0]
    return not rail.port.up and any(
        other.port.up and other.hca.slot.rpartition(".")[0] == card for other in rails
    )


def _nearest(fabric: Fabric, rails: list[Rail]) -> list[Rail]:
    """Every rail that is nearest to some card; all of them where there is no card.

    A port that is down counts: its card must not fall to a storage port meanwhile, and NCCL
    itself passes over a dead port until it is back.
    """
    if not fabric.gpus:
        return rails
    wanted = set()
    for gpu in fabric.gpus:
        best = min(distance(gpu, rail.hca) for rail in rails)
        wanted |= {rail for rail in rails if distance(gpu, rail.hca) == best}
    return [rail for rail in rails if rail in wanted]


def _fast(rails: list[Rail]) -> list[Rail]:
    fastest = max(rail.port.rate_gbps for rail in rails)
    return [r for r in rails if not r.port.up or r.port.rate_gbps >= SLOWEST * fastest]


def _weight(fabric: Fabric, rails: list[Rail], layer: str) -> tuple[int, float, bool]:
    """How much of a fabric a link layer is: cards it is nearest to, then its speed."""
    mine = [rail for rail in rails if rail.port.layer == layer]
    nearest_to = sum(
        min(distance(gpu, r.hca) for r in mine) == min(distance(gpu, r.hca) for r in rails)
        for gpu in fabric.gpus
    )
    live = [r for r in _nearest(fabric, mine) if r.port.up]
    return nearest_to, sum(r.port.rate_gbps for r in live), layer == INFINIBAND
