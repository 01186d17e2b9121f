"""``nvidia-smi -q -x``: read as far as it goes, so that a cut report still gives its whole GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from rackpin.parse.nvidia_smi_model import gpu
from rackpin.parse.nvidia_smi_query import Log, pick

_START = re.compile(r"<nvidia_smi_log\b")
_END = "</nvidia_smi_log>"
_DEEPEST = 12  # the real ones have five levels
# As the paths of nvidia_smi_query, by the element names of nvsmi_device_v5 … v12.dtd.
PATHS: dict[str, tuple[str, ...]] = {
    "name": ("product_name",),
    "uuid": ("uuid",),
    "serial": ("serial",),
    "memory_used": ("fb_memory_usage / used", "memory_usage / used"),
    "memory_total": ("fb_memory_usage / total", "memory_usage / total"),
    "mig": ("mig_mode / current_mig",),
    "mig_pending": ("mig_mode / pending_mig",),
    "persistence": ("persistence_mode",),
    "performance_state": ("performance_state",),
    "temperature": ("temperature / gpu_temp",),
    "power": (
        "gpu_power_readings / average_power_draw",
        "gpu_power_readings / power_draw",
        "power_readings / power_draw",
    ),
    "power_limit": ("gpu_power_readings / current_power_limit", "power_readings / power_limit"),
    "fan": ("fan_speed",),
    "utilization": ("utilization / gpu_util",),
    "compute_mode": ("compute_mode",),
    "ecc": ("ecc_mode / current_ecc",),
    "ecc_uncorrected": ("ecc_errors / volatile / dram_uncorrectable",),
    "page_retirement_pending": ("retired_pages / pending_blacklist", "retired_pages / pending"),
    "row_remap_pending": ("remapped_rows / remapped_row_pending",),
    "row_remap_failed": ("remapped_rows / remapped_row_failure",),
    "reset_required": ("gpu_reset_status / reset_required",),
    "recovery_action": ("gpu_recovery_action",),
    "fabric_state": ("fabric / state",),
    "fabric_status": ("fabric / status",),
}


def is_xml(text: str) -> bool:
    return bool(_START.search(text))


def logs(text: str) -> list[Log]:
    """All reports in a text, in order."""
    starts = [match.start() for match in _START.finditer(text)]
    return [_log(text[a:b]) for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]


def _log(text: str) -> Log:
    log = Log(complete=False)
    end = text.find(_END)
    parser: XMLPullParser[Element] = XMLPullParser(["end"])
    try:
        parser.feed(text if end < 0 else text[: end + len(_END)])
        for event in parser.read_events():
            if isinstance(element := event[-1], Element):
                _take(element, log)
    except ParseError:
        return log  # what was read before the fault stands
    log.complete = end >= 0 and log.attached in (None, len(log.gpus))
    return log


def _take(element: Element, log: Log) -> None:
    text = (element.text or "").strip()
    if element.tag == "gpu" and len(element):
        fields = dict(_flat(element, ""))
        texts = pick(fields, PATHS)
        texts["bus_id"] = element.get("id") or fields.get("pci / pci_bus_id")
        log.gpus.append(gpu(texts, fields))
    elif element.tag == "driver_version":
        log.driver = text or None
    elif element.tag == "cuda_version":
        log.cuda = text if text[:1].isdigit() else None
    elif element.tag == "attached_gpus" and re.fullmatch(r"\d{1,4}", text):
        log.attached = int(text)


def _flat(element: Element, parent: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    seen: dict[str, int] = {}
    for child in element:
        seen[child.tag] = seen.get(child.tag, 0) + 1
        path = parent + child.tag + (f" #{seen[child.tag]}" if seen[child.tag] > 1 else "")
        if len(child) and depth < _DEEPEST:
            yield from _flat(child, f"{path} / ", depth + 1)
        elif child.text and child.text.strip():
            yield path, child.text.strip()
