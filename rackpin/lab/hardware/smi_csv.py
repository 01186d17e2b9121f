"""``nvidia-smi --query-gpu=… --format=csv``: the fields of ``forms/fields.form``.

A line there is ``name | unit | other name | first branch that has it | value``; a value is ``old //
new`` where the newer branches say something else, and begins with ``~`` where N/A has no brackets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rackpin.lab.hardware.drivers import NEW_FROM
from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.smi_query import FORMS
from rackpin.lab.hardware.values import NONE, values

# --query-compute-apps: no process uses a simulated card, so only the head is ever printed
APP_FIELDS = {
    "timestamp": "timestamp",
    "gpu_name": "gpu_name",
    "gpu_bus_id": "gpu_bus_id",
    "gpu_serial": "gpu_serial",
    "gpu_uuid": "gpu_uuid",
    "pid": "pid",
    "process_name": "process_name",
    "name": "process_name",
    "used_gpu_memory": "used_gpu_memory [MiB]",
    "used_memory": "used_gpu_memory [MiB]",
}


@dataclass(frozen=True)
class Field:
    """One column: its name and unit, other names it is asked for by, and its value's form."""

    name: str
    unit: str
    others: tuple[str, ...]
    value: str

    @property
    def header(self) -> str:
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def cell(self, known: dict[str, str], units: bool) -> str:
        """The cell for a card with these values."""
        bare = self.value.startswith("~")
        text = self.value.removeprefix("~").format_map(known)
        if text == NONE:
            return NONE if bare else f"[{NONE}]"
        number = text.removesuffix(f" {self.unit}") if self.unit else text
        return f"{number} {self.unit}" if self.unit and units and number[0] != "[" else number


@cache
def fields(new: bool) -> tuple[Field, ...]:
    """All fields that the older or the newer branches know."""
    found = []
    for line in (FORMS / "fields.form").read_text(encoding="utf-8").splitlines():
        name, unit, others, since, value = (part.strip() for part in line.split("|"))
        if since and not new:
            continue
        old, _, newer = value.partition(" // ")
        kept = newer if new and newer else old
        found.append(Field(name, unit, tuple(filter(None, others.split(","))), kept))
    return tuple(found)


def fields_of(node: Node) -> tuple[Field, ...]:
    return fields(node.major >= NEW_FROM)


def columns(node: Node) -> dict[str, int]:
    """Every name a field may be asked for by → its place in ``fields_of``."""
    return {
        name: place for place, one in enumerate(fields_of(node)) for name in (one.name, *one.others)
    }


def row(node: Node, index: int, units: bool) -> list[str]:
    """All cells of a card, in the order of ``fields_of``."""
    known = values(node, index)
    return [one.cell(known, units) for one in fields_of(node)]
