"""``nvidia-smi --query-gpu=… --format=csv`` and its like: the fields of ``forms/fields.form``.

A line there is ``name | unit | other name | first branch that has it | value``; a value is ``old //
new`` where the newer branches say something else, and begins with ``~`` where N/A has no brackets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rackpin.lab.hardware.drivers import NEW_FROM
from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.parts import STAMP
from rackpin.lab.hardware.smi_query import FORMS
from rackpin.lab.hardware.values import NONE, values

# option → table; in the order in which the last one that is given wins
QUERIES = {
    "--query-gpu": "gpu",
    "--query-compute-apps": "apps",
    "--query-remapped-rows": "remapped",
}

# no process uses a simulated card, so of these only the head is ever printed
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

# this table says 0 and 1 where --query-gpu says No and Yes
REMAPPED_FIELDS = {
    "timestamp": STAMP,
    "gpu_name": "{name}",
    "gpu_bus_id": "{bus}",
    "gpu_serial": "{serial}",
    "gpu_uuid": "{uuid}",
    "remapped_rows.correctable": "0",
    "remapped_rows.uncorrectable": "{remapped}",
    "remapped_rows.pending": "{remap_pending_bit}",
    "remapped_rows.failure": "0",
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


def columns(node: Node, table: str) -> dict[str, tuple[str, int]]:
    """Every name a field of a table may be asked for by → its heading, its place in ``rows``."""
    if table == "apps":
        return {name: (head, 0) for name, head in APP_FIELDS.items()}
    if table == "remapped":
        return {name: (name, place) for place, name in enumerate(REMAPPED_FIELDS)}
    return {
        name: (one.header, place)
        for place, one in enumerate(fields_of(node))
        for name in (one.name, *one.others)
    }


def rows(node: Node, table: str, units: bool) -> list[list[str]]:
    """All cells of a table, a row for each card."""
    if table == "apps":
        return []
    found = []
    for index in range(len(node.gpus)):
        known = values(node, index)
        if table == "remapped":
            cells = [form.format_map(known) for form in REMAPPED_FIELDS.values()]
            found.append([f"[{NONE}]" if cell == NONE else cell for cell in cells])
        else:
            found.append([one.cell(known, units) for one in fields_of(node)])
    return found
