"""``nvidia-smi --query-gpu=… --format=csv`` and its kin: one header line, or none (``noheader``).

nvidia-smi quotes nothing: a comma in a process's name is a comma.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin.parse.nvidia_smi_model import BUS_ID, Gpu, gpu, word

_TITLE = re.compile(r"[A-Za-z_][\w.]*(?: \[[^\[\],]+\])?$")
_KNOWN = re.compile(
    r"(?:timestamp|driver_version|count|index|name|gpu_name|uuid|gpu_uuid|serial|gpu_serial"
    r"|gpu_bus_id|pci\.\w+|pcie\.[\w.]+|memory\.\w+|utilization\.\w+|temperature\.[\w.]+"
    r"|power\.[\w.]+|clocks[\w.]*|ecc\.[\w.]+|mig\.mode\.\w+|compute_(?:mode|cap)|pstate"
    r"|persistence_mode|pid|process_name|used_(?:gpu_)?memory|vbios_version|fan\.speed"
    r"|retired_pages\.[\w.]+|remapped_rows\.[\w.]+|display_\w+|gpu_recovery_action|fabric\.\w+"
    r"|inforom\.\w+|gom\.\w+|accounting\.\w+|driver_model\.\w+|gsp\.[\w.]+|retired_pages\.address)"
    r"(?: \[[^\]]+\])?$"
)
_WIDE = ("process_name", "name", "gpu_name")  # the columns whose texts may have commas
_NAME = re.compile(
    r"(?:NVIDIA|Tesla|Quadro|GeForce|GRID) (?=\w)|A\d{2,3}\b|H\d{3}\b|Graphics Device"
)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}")
_STATES = {"Enabled", "Disabled"}
_UNIT = re.compile(r"\d+(?:\.\d+)? (?:MiB|W|MHz|%|us|KB/s)$")
_ENDS = re.compile(r"(?:\]| (?:MiB|W|MHz|%|us|KB/s)|^(?:Enabled|Disabled|Not Active|Default))$")
_DRIVER = re.compile(r"\d{3}\.\d{2,3}(?:\.\d{1,3})?$")
COLUMNS: dict[str, tuple[str, ...]] = {
    "index": ("index",),
    "name": ("name", "gpu_name"),
    "bus_id": ("pci.bus_id", "gpu_bus_id"),
    "uuid": ("uuid", "gpu_uuid"),
    "serial": ("serial", "gpu_serial"),
    "memory_used": ("memory.used",),
    "memory_total": ("memory.total",),
    "mig": ("mig.mode.current",),
    "mig_pending": ("mig.mode.pending",),
    "persistence": ("persistence_mode",),
    "performance_state": ("pstate",),
    "temperature": ("temperature.gpu",),
    "power": ("power.draw", "power.draw.average"),
    "power_limit": ("power.limit",),
    "fan": ("fan.speed",),
    "utilization": ("utilization.gpu",),
    "compute_mode": ("compute_mode",),
    "ecc": ("ecc.mode.current",),
    "ecc_uncorrected": ("ecc.errors.uncorrected.volatile.total",),
    "page_retirement_pending": ("retired_pages.pending",),
    "row_remap_pending": ("remapped_rows.pending",),
    "row_remap_failed": ("remapped_rows.failure",),
    "recovery_action": ("gpu_recovery_action",),
    "fabric_state": ("fabric.state",),
    "fabric_status": ("fabric.status",),
}


@dataclass(frozen=True)
class Csv:
    """``columns`` as printed, units included; none with ``noheader``. A row is its cells."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    gpus: tuple[Gpu, ...]
    driver: str | None
    same_width: bool
    notes: tuple[str, ...] = field(default=())


def read_csv(found: Sequence[str], whole_end: bool = True) -> Csv | None:
    """The first table in these lines; None without any. A last row that is cut is left out."""
    for place, line in enumerate(found):
        columns = _split(line)
        known = sum(bool(_KNOWN.match(title)) for title in columns)
        if known and known * 2 >= len(columns) and all(_TITLE.match(title) for title in columns):
            below = found[place + 1 :]
            if len(columns) == 1 and any(
                _KNOWN.match(line) and [line] != columns for line in below
            ):
                return None  # a list of fields, as --help-query-gpu has
            return _headed(columns, below, whole_end)
    return _headless(found, whole_end)


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")] if line.strip() else []


def _headed(columns: list[str], found: Sequence[str], whole_end: bool) -> Csv:
    plain = [title.split(" [")[0] for title in columns]
    wide = next((plain.index(name) for name in _WIDE if name in plain), None)
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    same = True
    for line in _body(found, whole_end):
        cells = _split(line)
        if cells == columns:
            continue  # the next round of a loop
        if not cells or (len(columns) > 1 and len(cells) == 1):
            break  # a prompt, a message: the table is over
        if wide is not None and len(cells) > len(columns):
            more = len(cells) - len(columns) + 1
            cells[wide : wide + more] = [", ".join(cells[wide : wide + more])]
        if len(cells) != len(columns):
            same = False
            notes.append(f"row {len(rows) + 1} has {len(cells)} cells of {len(columns)}")
        rows.append(tuple(cells))
    if not whole_end and rows and len(columns) > 1:
        rows[-1] = _uncut(rows)
    gpus: dict[object, Gpu] = {}
    for cells_of in rows:
        printed = dict(zip(columns, cells_of, strict=False))
        by_name = dict(zip(plain, cells_of, strict=False))
        texts = {
            attribute: next((by_name[name] for name in names if name in by_name), None)
            for attribute, names in COLUMNS.items()
        }
        one = gpu(texts, printed)
        known = any(part is not None for part in one.identity)
        key = one.identity if known else len(gpus)
        gpus.setdefault(key, one)
    place = plain.index("driver_version") if "driver_version" in plain else None
    drivers = {row[place] for row in rows if place is not None and place < len(row)}
    driver = word(drivers.pop()) if len(drivers) == 1 else None
    return Csv(tuple(columns), tuple(rows), tuple(gpus.values()), driver, same, tuple(notes))


def _uncut(rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The last row without its last cell, if that may be the beginning of a longer text."""
    row = rows[-1]
    whole = _ENDS.search(row[-1]) or any(other[-1:] == row[-1:] for other in rows[:-1])
    return row if whole else row[:-1]


def _body(found: Sequence[str], whole_end: bool) -> list[str]:
    body = list(found)
    while body and not body[-1].strip():
        body.pop()
    # A cut last row can't be told from a whole one by its width when the cut is in its last cell.
    if body and not whole_end and len(_split(body[-1])) < len(_split(body[0])):
        body.pop()
    return body


def _headless(found: Sequence[str], whole_end: bool) -> Csv | None:
    """Rows without a header, when every line has the same number of cells and some known ones."""
    rows = [_split(line) for line in _body(found, whole_end) if line.strip()]
    if not rows or len({len(cells) for cells in rows}) > 1:
        return None
    gpus = []
    for cells in rows:
        texts = {
            "name": next((cell for cell in cells if _NAME.match(cell)), None),
            "bus_id": next((cell for cell in cells if BUS_ID.fullmatch(cell)), None),
            "uuid": next((cell for cell in cells if _UUID.fullmatch(cell)), None),
        }
        driver = next((cell for cell in cells if _DRIVER.match(cell)), None)
        quantities = sum(bool(_UNIT.match(cell)) or cell in _STATES for cell in cells)
        if not any(texts.values()) and driver is None and quantities < 1:
            return None
        if len(cells) == 1 and ":" in cells[0] and not texts["bus_id"]:
            return None  # a sentence that begins like a name
        gpus.append(gpu(texts, {str(place): cell for place, cell in enumerate(cells)}))
    drivers = {cell for cells in rows for cell in cells if _DRIVER.match(cell)}
    return Csv(
        (), tuple(map(tuple, rows)), tuple(gpus), drivers.pop() if len(drivers) == 1 else None, True
    )
