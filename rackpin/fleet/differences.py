"""What differs between a node as it was recorded and as it is; and what follows from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from rackpin.fleet.identity import MEMORY_STEP_KIB, Card, Identity

NONE = "–"
CARD = "another card: verify the node, pairs with a known-good node included"
ADAPTER = "another adapter: tell its GUID to the subnet manager's owner, derive NCCL's list again"
AGAIN = "derive names and NCCL's settings again: run site.py for this node"
BOARD = {  # the file in /sys/class/dmi/id → what a person calls it
    "product_serial": "serial number of the system",
    "product_uuid": "UUID of the system",
    "board_serial": "serial number of the board",
    "sys_vendor": "vendor",
    "product_name": "product",
    "board_name": "board",
    "bios_version": "BIOS",
}


class Difference(BaseModel):
    """One thing that is otherwise now. ``binding``: the node must be verified again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    part: str  # gpu, hca, nic, pci, board, os, memory, disk, host key
    what: str
    was: str
    now: str
    binding: bool = True
    follows: str = ""  # what has to be done because of it

    def __str__(self) -> str:
        return f"{self.part} {self.what}: {self.was} → {self.now}"


@dataclass
class _Found:
    """Collects differences; a value that one side doesn't know is none."""

    all: list[Difference] = field(default_factory=list)

    def add(
        self, part: str, what: str, was: str, now: str, follows: str, binding: bool = True
    ) -> None:
        if was and now and was != now:
            self.all.append(
                Difference(part=part, what=what, was=was, now=now, binding=binding, follows=follows)
            )

    def each(
        self,
        part: str,
        was: Mapping[str, Any],
        now: Mapping[str, Any],
        fields: Sequence[str],
        follows: str,
        binding: bool = True,
    ) -> None:
        """By name: what came, what went, each field of what stayed. The first field names one."""
        for name in sorted({*was, *now}):
            before, after = was.get(name), now.get(name)
            if before is None or after is None:
                left, right = (
                    str(getattr(one, fields[0]) or "there") if one else NONE
                    for one in (before, after)
                )
                self.add(part, name, left, right, follows, binding)
                continue
            for one in fields:
                old, new = (str(getattr(side, one) or "") for side in (before, after))
                self.add(part, f"{name} {one}", old, new, follows, binding)


def differences(was: Identity, now: Identity) -> list[Difference]:
    """What changed, cards first. What one of the two doesn't know is no difference."""
    found = _Found()
    if was.driver and now.driver:
        _cards(found, was.gpus, now.gpus)
    _adapters(found, was, now)
    found.each("nic", was.nics, now.nics, ("mac", "slot"), AGAIN)
    for slot in sorted({*was.pci, *now.pci}):
        found.add("pci", slot, was.pci.get(slot, NONE), now.pci.get(slot, NONE), AGAIN)
    for key, name in BOARD.items():
        text = "BIOS was changed" if key == "bios_version" else "another board"
        found.add("board", name, was.board.get(key, ""), now.board.get(key, ""), text)
    text = "the host was installed anew: run site.py for this node"
    found.add("os", "machine-id", was.machine_id, now.machine_id, text)
    if abs(was.memory_kib - now.memory_kib) >= MEMORY_STEP_KIB:
        left, right = (f"{kib / 2**20:.1f} GiB" for kib in (was.memory_kib, now.memory_kib))
        less = now.memory_kib < was.memory_kib
        found.add("memory", "size", left, right, "a DIMM is missing" if less else "more memory")
    found.each("disk", was.disks, now.disks, ("serial", "model", "sectors"), "", binding=False)
    left, right = (", ".join(one.host_keys) for one in (was, now))
    text = "put the new key into known_hosts, after comparing it at the console"
    found.add("host key", "ssh", left, right, text, binding=False)
    return found.all


def _cards(found: _Found, was: Mapping[str, Card], now: Mapping[str, Card]) -> None:
    for slot in sorted({*was, *now}):
        before, after = was.get(slot), now.get(slot)
        if before is None or after is None:
            text = CARD if after else "a card is missing: see gpu.count and the kernel's log"
            found.add("gpu", slot, _card(before), _card(after), text)
            continue
        for one in ("uuid", "serial", "vbios", "model"):
            text = "its VBIOS was changed: verify the node" if one == "vbios" else CARD
            found.add("gpu", f"{slot} {one}", getattr(before, one), getattr(after, one), text)


def _card(card: Card | None) -> str:
    if card is None:
        return NONE
    return " ".join(word for word in (card.model, card.serial or card.uuid) if word) or "a card"


def _adapters(found: _Found, was: Identity, now: Identity) -> None:
    """By GUID first: adapters that changed their names are in another order, not others."""
    names = {one.guid: name for name, one in was.hcas.items() if one.guid}
    moved = {
        name: names[one.guid] for name, one in now.hcas.items() if names.get(one.guid, name) != name
    }
    text = "rackpin-hca-names.service gives adapters their names back; derive NCCL's list again"
    for name, old in sorted(moved.items()):
        found.add("hca", f"{now.hcas[name].guid} name", old, name, text)
    known = {one.guid for name, one in now.hcas.items() if name in moved}
    before = {name: one for name, one in was.hcas.items() if one.guid not in known}
    after = {name: one for name, one in now.hcas.items() if name not in moved}
    found.each("hca", before, after, ("guid", "slot", "board", "firmware"), ADAPTER)
