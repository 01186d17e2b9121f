"""Names of RDMA adapters that stay with their slots, whatever order the kernel finds them in."""

from __future__ import annotations

from rackpin.fabric.model import Fabric, natural

Table = tuple[tuple[str, str], ...]  # slot and name, by slot


def table(fabric: Fabric) -> Table:
    """What is pinned stays, absent adapters' names too; new slots keep the name they came with.

    Nothing is renamed by this. A new adapter whose name is pinned for another slot is left out.
    """
    pinned = dict(fabric.names)
    taken = set(pinned.values())
    for hca in sorted(fabric.hcas, key=lambda hca: natural(hca.name)):
        if hca.slot and not hca.virtual and hca.slot not in pinned and hca.name not in taken:
            pinned[hca.slot] = hca.name
            taken.add(hca.name)
    return tuple(sorted(pinned.items()))


def notes(fabric: Fabric) -> list[str]:
    """Adapters that aren't called as pinned, or that are gone."""
    pinned = dict(fabric.names)
    owner = {name: slot for slot, name in fabric.names}
    there = {hca.slot: hca.name for hca in fabric.hcas if hca.slot and not hca.virtual}
    said = []
    for slot, name in sorted(pinned.items()):
        if slot not in there:
            said.append(f"{name} at {slot} is gone; its name stays free for the next one there")
        elif there[slot] != name:
            said.append(
                f"{there[slot]} at {slot} should be {name}: the next boot names it so; run again "
                "after it"
            )
    for slot, name in sorted(there.items()):
        if slot not in pinned and name in owner:
            said.append(
                f"{name} at {slot} has the name that is pinned for {owner[name]}: if that slot is "
                "gone for good, take its line out of /etc/rackpin/hca-names and run again"
            )
    return said
