"""NCCL's settings of one node, derived from what is there. Pure: same facts, same text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from rackpin.fabric.gpudirect import gpudirect
from rackpin.fabric.model import Fabric, Near
from rackpin.fabric.select import ETHERNET, Choice, Rail, choose

GID_CHOSEN_SINCE = Version("2.21")  # NVIDIA/nccl v2.21.5-1: NCCL_IB_GID_INDEX defaults to -1


@dataclass(frozen=True)
class Setting:
    name: str
    value: str
    why: str  # one line without "=": NCCL would read it as a setting


@dataclass(frozen=True)
class Derived:
    """What nccl.conf says, and what a person should know."""

    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, str]:
        return {setting.name: setting.value for setting in self.settings}


def derive(
    fabric: Fabric,
    interface: str,
    versions: Iterable[str] = (),
    traffic_class: int | None = None,
    site: Mapping[str, str] | None = None,
    flavour: str = "",
) -> Derived:
    """The settings of one node; none for a node without a card.

    ``interface`` carries what is not RDMA, ``versions`` are the NCCLs of the node, ``site`` the
    inventory's own variables, which win, ``flavour`` of the pinned driver's modules.
    """
    if not fabric.gpus:
        return Derived()
    choice = choose(fabric)
    settings: list[Setting] = []
    notes = list(choice.notes)
    if interface:
        why = "interface of the route to the other nodes, by its whole name"
        settings.append(Setting("NCCL_SOCKET_IFNAME", f"={interface}", why))
    if choice.rails:
        settings.append(_adapters(choice))
        if choice.layer == ETHERNET:
            more, said = _roce(choice, list(versions), traffic_class)
            settings += more
            notes += said
        more, said = _gdr_level(fabric, choice, flavour)
        settings += more
        notes += said
    elif fabric.hcas:
        notes.append("no adapter has a port that can be used: NCCL would take TCP")
    else:
        settings.append(Setting("NCCL_IB_DISABLE", "1", "this node has no RDMA adapter"))
    return Derived(tuple(_with_site(settings, site or {}, choice, notes)), tuple(notes))


def _adapters(choice: Choice) -> Setting:
    """``=mlx5_0,mlx5_3``: exact names, a port only where an adapter has several."""
    words = [
        rail.hca.name if len(rail.hca.ports) == 1 else f"{rail.hca.name}:{rail.port.number}"
        for rail in choice.rails
    ]
    why = f"{choice.layer} ports nearest to the cards, by their whole names"
    return Setting("NCCL_IB_HCA", "=" + ",".join(words), why)


def _roce(
    choice: Choice, versions: list[str], traffic_class: int | None
) -> tuple[list[Setting], list[str]]:
    settings, notes = [], []
    live = [rail for rail in choice.rails if rail.port.up]
    indices = {rail.hca.name: _indices(rail) for rail in live}
    common = set.intersection(*indices.values()) if indices else set()
    old = [v for v in versions if Version(v) < GID_CHOSEN_SINCE]
    for name in (name for name, found in indices.items() if not found):
        notes.append(f"{name} has no RoCE v2 address with IPv4: give its interface an address")
    index = min(common, default=0)  # 0 is the default of those releases
    if index and (old or not versions):
        why = "first RoCE v2 address with IPv4 on every port; this NCCL doesn't look for it"
        settings.append(Setting("NCCL_IB_GID_INDEX", str(index), why))
    elif old and not common and all(indices.values()):
        said = "; ".join(f"{name}: {', '.join(map(str, sorted(i)))}" for name, i in indices.items())
        notes.append(
            f"the ports have their RoCE v2 addresses at different places ({said}) and NCCL "
            f"{', '.join(old)} takes one index for all: give them the same addresses and VLANs"
        )
    set_there = {rail.port.traffic_class for rail in live} - {None}
    if traffic_class is not None:
        why = "roce_traffic_class of the inventory"
        settings.append(Setting("NCCL_IB_TC", str(traffic_class), why))
    elif len(set_there) > 1:
        words = ", ".join(map(str, sorted(c for c in set_there if c is not None)))
        notes.append(f"the adapters have different traffic classes ({words}): set one on all")
    elif not set_there:
        notes.append(
            "RoCE without a traffic class goes in the switch's lossy default: name the fabric's "
            "in roce_traffic_class (0 if the whole network is lossless)"
        )
    return settings, notes


def _indices(rail: Rail) -> set[int]:
    return {gid.index for gid in rail.port.gids if gid.version == "v2" and gid.ipv4}


def _gdr_level(fabric: Fabric, choice: Choice, flavour: str) -> tuple[list[Setting], list[str]]:
    far = choice.farthest
    way = gpudirect(fabric, flavour)
    if far is None or far <= Near.PXB:
        return [], []  # NCCL's own limit, PXB, is enough
    if not way.possible:
        return [], []  # nothing to limit
    slots = ", ".join(slot for slot, near in choice.near if near == far)
    if far == Near.PHB:
        why = f"cards and adapters meet at the CPU ({slots}); the default ends before it"
        return [Setting("NCCL_NET_GDR_LEVEL", "PHB", why)], []
    return [], [
        f"cards {slots} have adapters on the other CPU only: their traffic goes through host "
        "memory; set NCCL_NET_GDR_LEVEL in `env` once it was measured"
    ]


def _with_site(
    settings: Sequence[Setting], site: Mapping[str, str], choice: Choice, notes: list[str]
) -> list[Setting]:
    """The inventory's NCCL variables over ours; a contradiction is said."""
    own = {name: value for name, value in site.items() if name.startswith("NCCL_")}
    derived = {setting.name: setting.value for setting in settings}
    for name, value in sorted(own.items()):
        if name in derived and derived[name] != value:
            notes.append(f"{name}={value} of the inventory counts; found here: {derived[name]}")
    if own.get("NCCL_IB_DISABLE") == "1" and choice.rails:
        notes.append("NCCL_IB_DISABLE=1 of the inventory: the fabric that is here stays unused")
    merged = {setting.name: setting for setting in settings}
    merged |= {name: Setting(name, value, "`env` of the inventory") for name, value in own.items()}
    return [merged[name] for name in sorted(merged)]
