"""``nvidia-smi -q``, also with -x and -d, from the forms in ``forms/query-*.form``.

A line of a form is ``label : XML tag : value : condition``; ``-`` for a label or tag means that
the other of the two outputs doesn't have it. Indentation is nesting, ``{name}`` a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rackpin.lab.hardware.drivers import NEW_FROM
from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.parts import NOW, Parts
from rackpin.lab.hardware.values import values

FORMS = Path(__file__).with_name("forms")
LABEL_COLUMNS = {535: 42, NEW_FROM: 55}  # where the colon stands

# What -d NAME shows of a card: labels of the first level (nvidia-smi -h)
SECTIONS = {
    "MEMORY": ["FB Memory Usage", "BAR1 Memory Usage", "Conf Compute Protected Memory Usage"],
    "UTILIZATION": ["Utilization"],
    "ECC": ["ECC Mode", "ECC Errors"],
    "TEMPERATURE": ["Temperature"],
    "POWER": ["GPU Power Readings", "GPU Memory Power Readings", "Module Power Readings"],
    "CLOCK": [
        *("Clocks", "Applications Clocks", "Default Applications Clocks", "Deferred Clocks"),
        *("Max Clocks", "Max Customer Boost Clocks", "Clock Policy"),
    ],
    "COMPUTE": ["Compute Mode"],
    "PIDS": ["Processes"],
    "PERFORMANCE": ["Performance State", "Clocks Event Reasons", "Sparse Operation Mode"],
    "PAGE_RETIREMENT": ["Retired Pages"],
    "ENCODER_STATS": ["Encoder Stats"],
    "FBC_STATS": ["FBC Stats"],
    "VOLTAGE": ["Voltage"],
    "ROW_REMAPPER": ["Remapped Rows"],
    "RESET_STATUS": ["GPU Reset Status"],
    "GSP_FIRMWARE_VERSION": ["GSP Firmware Version"],
}


@dataclass
class Line:
    """A label and its value, or a heading (value None) with lines below it."""

    label: str
    tag: str
    value: str | None
    below: list[Line] = field(default_factory=list)


def lines_of(node: Node, index: int) -> list[Line]:
    """Everything that -q knows of a card, as a tree."""
    known = values(node, index)
    hopper = node.card.architecture == "Hopper"
    ampere = node.card.architecture == "Ampere"
    holds = {"": True, "hopper": hopper, "other": not hopper, "ampere": ampere}
    holds["tlimit"] = not ampere
    top: list[Line] = []
    path: list[list[Line]] = [top]
    for depth, (label, tag, value, condition) in _form(535 if node.major < NEW_FROM else 590):
        if not holds[condition]:
            continue
        line = Line(label, tag, value.format_map(known) if value is not None else None)
        path[depth].append(line)
        path[depth + 1 :] = [line.below]
    return top


@cache
def _form(branch: int) -> list[tuple[int, tuple[str, str, str | None, str]]]:
    text = (FORMS / f"query-{branch}.form").read_text(encoding="utf-8")
    found = []
    for raw in text.splitlines():
        depth = (len(raw) - len(raw.lstrip())) // 2
        label, tag, *rest = (part.strip() for part in raw.strip().split(" : "))
        value = rest[0] if rest and rest[0] else None
        found.append((depth, (label, tag, value, rest[1] if len(rest) > 1 else "")))
    return found


def query(node: Node) -> Parts:
    """``nvidia-smi -q``."""
    column = LABEL_COLUMNS[535 if node.major < NEW_FROM else NEW_FROM]
    head = "\n==============NVSMI LOG==============\n\n"
    for label, value in (
        ("Timestamp", NOW),
        ("Driver Version", node.driver),
        ("CUDA Version", node.cuda),
    ):
        head += f"{label:<{column}}: {value}\n"
    head += f"\n{'Attached GPUs':<{column}}: {len(node.gpus)}\n"
    return Parts(head, [_card(node, i, column) for i in range(len(node.gpus))])


def _card(node: Node, index: int, column: int) -> str:
    out = [f"GPU {values(node, index)['bus']}"]

    def add(lines: list[Line], depth: int) -> None:
        for line in lines:
            if line.label == "-":
                continue
            label = "    " * depth + line.label
            if line.value is None:
                out.append(label)
            else:
                out.append(f"{label:<{column}}: {line.value}")
            add(line.below, depth + 1)

    add(lines_of(node, index), 1)
    return "\n".join(out) + "\n\n"


def only(card: str, sections: list[str]) -> str:
    """What is left of a card's text under ``-d``: its first line and the sections named."""
    wanted = {label for name in sections for label in SECTIONS[name]}
    kept, keep = [], True
    for line in card.splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            keep = line.partition(" : ")[0].strip() in wanted
        elif not line.startswith(" "):
            keep = True
        if keep:
            kept.append(line)
    return "\n".join(kept) + "\n"


def xml(node: Node) -> Parts:
    """``nvidia-smi -q -x``."""
    dtd = 12 if node.major < NEW_FROM else 13
    head = (
        '<?xml version="1.0" ?>\n'
        f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{dtd}.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>{NOW}</timestamp>\n"
        f"\t<driver_version>{node.driver}</driver_version>\n"
        f"\t<cuda_version>{node.cuda}</cuda_version>\n"
        f"\t<attached_gpus>{len(node.gpus)}</attached_gpus>\n"
    )
    return Parts(head, [_xml_card(node, i) for i in range(len(node.gpus))], "</nvidia_smi_log>\n")


def _xml_card(node: Node, index: int) -> str:
    out = [f'\t<gpu id="{values(node, index)["bus"]}">']

    def add(lines: list[Line], depth: int) -> None:
        tabs = "\t" * depth
        for line in lines:
            if line.tag == "-":
                continue
            if line.below or line.value is None:
                out.append(f"{tabs}<{line.tag}>")
                add(line.below, depth + 1)
                out.append(f"{tabs}</{line.tag}>")
            elif line.value == "None" and line.tag in ("processes", "accounted_processes"):
                out.append(f"{tabs}<{line.tag}>\n{tabs}</{line.tag}>")
            elif line.tag == "mig_devices":
                out.append(f"{tabs}<{line.tag}>\n{tabs}\t{line.value}\n{tabs}</{line.tag}>")
            else:
                bare = line.value.removeprefix("0x") if line.tag.startswith("pci_") else line.value
                out.append(f"{tabs}<{line.tag}>{bare}</{line.tag}>")

    add(lines_of(node, index), 2)
    return "\n".join([*out, "\t</gpu>\n"])
