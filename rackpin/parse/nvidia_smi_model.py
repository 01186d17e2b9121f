"""What can be said of a GPU by any form of nvidia-smi's output, and how its cells are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rackpin.parse.nvidia_smi_errors import classify
from rackpin.parse.text import number

BUS_ID = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
_BAD = re.compile(
    r"\[?(?:ERR!|Unknown Error|GPU is lost|GPU requires reset|Insufficient Permissions"
    r"|Driver/library version mismatch|Timeout|Reset Required)\]?$",
    re.IGNORECASE,
)
_NONE = re.compile(
    r"\[?(?:N/?A|Not Supported|Not Found|Unknown|None|.* has been deprecated)\]?$", re.I
)
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d+)?) ?([A-Za-z%/]*)$")


@dataclass(frozen=True)
class Gpu:
    """None: the text doesn't say, or says that the GPU has no such thing.

    Memory in MiB, power in W, temperature in °C, ``fan`` and ``utilization`` in percent.
    ``bad`` names the fields in which an error stands instead of a value; ``fields`` has the
    texts as printed, by their names there.
    """

    index: int | None = None
    name: str | None = None  # as printed: tables cut it with "..."
    bus_id: str | None = None
    uuid: str | None = None
    serial: str | None = None
    memory_used: int | float | None = None
    memory_total: int | float | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    persistence: bool | None = None
    performance_state: str | None = None
    temperature: int | float | None = None
    power: int | float | None = None
    power_limit: int | float | None = None
    fan: int | float | None = None
    utilization: int | float | None = None
    compute_mode: str | None = None
    ecc: bool | None = None
    ecc_uncorrected: int | float | None = None  # volatile
    page_retirement_pending: bool | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    reset_required: bool | None = None
    recovery_action: str | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    bad: tuple[str, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.uuid, self.bus_id, None if self.uuid or self.bus_id else self.index)


_FLAGS = {
    "mig",
    "mig_pending",
    "persistence",
    "ecc",
    "page_retirement_pending",
    "row_remap_pending",
    "row_remap_failed",
    "reset_required",
}
_WORDS = {
    "name",
    "bus_id",
    "uuid",
    "serial",
    "performance_state",
    "compute_mode",
    "recovery_action",
    "fabric_state",
    "fabric_status",
}


def gpu(texts: Mapping[str, str | None], printed: Mapping[str, str]) -> Gpu:
    """A GPU from texts by the names of :class:`Gpu`; ``printed`` are all texts by printed name."""
    values: dict[str, Any] = {}
    for attribute in fields(Gpu):
        text = (texts.get(attribute.name) or "").strip()
        if not text or attribute.name in ("bad", "fields"):
            continue
        if attribute.name in _FLAGS:
            values[attribute.name] = flag(text)
        elif attribute.name == "recovery_action":
            values[attribute.name] = None if _BAD.match(text) or text.startswith("[") else text
        elif attribute.name in _WORDS:
            values[attribute.name] = word(text)
        elif attribute.name == "index":
            values["index"] = int(text) if re.fullmatch(r"\d{1,4}", text) else None
        else:
            values[attribute.name] = quantity(text)
    bad = tuple(name for name, text in printed.items() if is_bad(text))
    return Gpu(**values, bad=bad, fields=dict(printed))


def is_bad(text: str) -> bool:
    """Whether an error stands in a cell instead of a value."""
    return bool(_BAD.match(text.strip()))


def word(text: str) -> str | None:
    return None if _BAD.match(text) or _NONE.match(text) else text


def flag(text: str) -> bool | None:
    """Enabled, Yes, On: True; Disabled, No, Off: False; all else None."""
    plain = text.strip(" *[]").lower()
    if plain in ("enabled", "yes", "on", "true"):
        return True
    return False if plain in ("disabled", "no", "off", "false") else None


def quantity(text: str) -> int | float | None:
    """The number of ``143771 MiB``, ``78.28 W``, ``28C``, ``0 %``; None for any other text."""
    match = _QUANTITY.match(text.strip())
    return number(match[1]) if match else None


def error_class(texts: Iterable[str]) -> str | None:
    """The class of the errors in some cells, None without any."""
    found = {classify(text) for text in texts if is_bad(text)}
    for name in ("gpu-lost", "nvml-unknown", "insufficient-permissions", "library-mismatch"):
        if name in found:
            return name
    return "other" if found else None
