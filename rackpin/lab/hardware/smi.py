"""``nvidia-smi``: which answer to which arguments. A host's program follows the same tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rackpin.lab.hardware import smi_csv, smi_nvlink, smi_query, smi_table, smi_topo
from rackpin.lab.hardware.model import Gpu, Node
from rackpin.lab.hardware.parts import Answer, Hangs, Parts
from rackpin.lab.hardware.values import bus_id

USAGE = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"
NO_DEVICES = "No devices were found\n"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
# exit codes: nvidia-smi -h, RETURN VALUE; NVML's own errors beyond are 255
USAGE_CODE, NO_DEVICES_CODE, NO_DRIVER_CODE, MISMATCH_CODE = 2, 6, 9, 18
HANDLE = {
    "lost": ("GPU is lost. Reboot the system to recover this GPU", 15),
    "unknown": ("Unknown Error", 255),
}

# the arguments that are left without -i, -d and --query-*  →  which answer
KEYS = {
    "": "table",
    "-L": "list",
    "--list-gpus": "list",
    "-q": "query",
    "--query": "query",
    "-q -x": "xml",
    "-x -q": "xml",
    "-qx": "xml",
    "--query --xml-format": "xml",
    "topo -m": "topo",
    "topo --matrix": "topo",
    "topo -mp": "topo-pcie",
    **{f"topo -p2p {kind}": f"p2p-{kind}" for kind in smi_topo.P2P_KINDS},
    **{f"topo --p2pstatus {kind}": f"p2p-{kind}" for kind in smi_topo.P2P_KINDS},
    "nvlink -s": "nvlink",
    "nvlink --status": "nvlink",
    "nvlink -e": "nvlink-errors",
    "nvlink --errorcounters": "nvlink-errors",
    **{
        f"{word} {on}": "persistence"
        for word in ("-pm", "--persistence-mode")
        for on in ("1", "ENABLED")
    },
    "--version": "version",
    "-h": "help",
    "--help": "help",
}


def _list(node: Node) -> Parts:
    lines = [f"GPU {i}: {node.card.name} (UUID: {gpu.uuid})\n" for i, gpu in enumerate(node.gpus)]
    return Parts("", lines)


def _persistence(node: Node) -> Parts:
    lines = [f"Persistence mode is already Enabled for GPU {_bus(gpu)}.\n" for gpu in node.gpus]
    return Parts("", lines, "All done.\n")


def _version(node: Node) -> Parts:
    nvml = ".".join((node.driver or "").split(".")[:2])
    return Parts(
        f"NVIDIA-SMI version  : {node.driver}\nNVML version        : {nvml}\n"
        f"DRIVER version      : {node.driver}\nCUDA Version        : {node.cuda}\n"
    )


def _help(node: Node) -> Parts:
    known = "\n".join(f"    nvidia-smi {key}" for key in KEYS)
    return Parts(f"NVIDIA System Management Interface -- v{node.driver} (simulated)\n\n{known}\n")


MODES: dict[str, Callable[[Node], Parts]] = {
    "table": smi_table.table,
    "list": _list,
    "query": smi_query.query,
    "xml": smi_query.xml,
    "topo": smi_topo.matrix,
    "topo-pcie": partial(smi_topo.matrix, nvlink=False),
    **{f"p2p-{kind}": partial(smi_topo.peers, kind=kind) for kind in smi_topo.P2P_KINDS},
    "nvlink": smi_nvlink.status,
    "nvlink-errors": smi_nvlink.errors,
    "persistence": _persistence,
    "version": _version,
    "help": _help,
}


def _bus(gpu: Gpu) -> str:
    return bus_id(gpu.slot.bus)


def fatal(node: Node) -> Answer | None:
    """What every call ends with, where nvidia-smi can't talk to the driver at all."""
    if not node.loaded:
        return Answer(NO_DRIVER, "", NO_DRIVER_CODE)
    if node.library is not None:
        branch = ".".join(node.library.split(".")[:2])
        text = "Failed to initialize NVML: Driver/library version mismatch\n"
        return Answer(f"{text}NVML library version: {branch}\n", "", MISMATCH_CODE)
    if not node.gpus:
        return Answer(NO_DEVICES, "", NO_DEVICES_CODE)
    return None


def handle(gpu: Gpu) -> Answer | None:
    """What a call that touches this card ends with, where the card can't be opened."""
    if not gpu.handle:
        return None
    why, code = HANDLE[gpu.handle]
    where = gpu.slot.bus
    return Answer(f"Unable to determine the device handle for GPU {where}: {why}\n", "", code)


@dataclass(frozen=True)
class Asked:
    """Arguments, sorted: ``key`` into KEYS, cards of -i, sections of -d, fields and format."""

    key: str
    cards: str | None = None
    sections: str | None = None
    fields: str | None = None
    table: str = ""
    format: str | None = None


OPTIONS = {
    "-i": "cards",
    "--id": "cards",
    "-d": "sections",
    "--display": "sections",
    **dict.fromkeys(smi_csv.QUERIES, "fields"),
    "--format": "format",
}


def asked(argv: Sequence[str]) -> Asked | None:
    """The arguments; None when an option lacks its value."""
    rest: list[str] = []
    found: dict[str, str] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name not in OPTIONS:
            rest.append(word)
            continue
        if not equals and not words:
            return None
        found[OPTIONS[name]] = value if equals else words.pop(0)
        if name in smi_csv.QUERIES:
            found["table"] = smi_csv.QUERIES[name]
    return Asked(" ".join(filter(None, rest)), **found)


def names_of(node: Node, index: int) -> list[str]:
    """What -i may call a card: index, bus ids, serial number, UUID."""
    gpu = node.gpus[index]
    names = [str(index), _bus(gpu), gpu.slot.bus, gpu.slot.bus.upper(), gpu.uuid]
    return [*names, gpu.serial] if node.card.serial else names


def answer(node: Node, argv: Sequence[str]) -> Answer:
    """What ``nvidia-smi ARGV`` prints on the node, times left as NOW and STAMP."""
    if node.hang:
        raise Hangs("nvidia-smi doesn't answer")
    wish = asked(argv)
    failed = fatal(node)
    if failed is not None:
        return failed
    if wish is None or wish.key not in KEYS:
        return Answer(USAGE, "", USAGE_CODE)
    chosen = _chosen(node, wish.cards)
    if chosen is None:
        return Answer(NO_DEVICES, "", NO_DEVICES_CODE)
    mode = KEYS[wish.key]
    for index in [] if mode in ("version", "help") else chosen:
        failed = handle(node.gpus[index])
        if failed is not None:
            return failed
    if wish.fields is not None:
        return _csv(node, wish, chosen)
    parts = MODES[mode](node)
    if wish.sections is not None and mode == "query":
        return _display(parts, wish.sections, chosen)
    return Answer(parts.text(chosen if parts.each else None), parts.stderr, parts.code)


def _chosen(node: Node, cards: str | None) -> list[int] | None:
    if cards is None:
        return list(range(len(node.gpus)))
    by_name = {name: i for i in range(len(node.gpus)) for name in names_of(node, i)}
    wanted = cards.split(",")
    if any(name not in by_name for name in wanted):
        return None
    return sorted({by_name[name] for name in wanted})


def _display(parts: Parts, sections: str, chosen: list[int]) -> Answer:
    wanted = sections.split(",")
    if any(name not in smi_query.SECTIONS for name in wanted):
        return Answer(USAGE, "", USAGE_CODE)
    cards = [smi_query.only(parts.each[i], wanted) for i in chosen]
    return Answer(parts.head + "".join(cards), "", 0)


def _csv(node: Node, wish: Asked, chosen: list[int]) -> Answer:
    form = (wish.format or "").split(",")
    if wish.key or form[0] != "csv" or not set(form[1:]) <= {"noheader", "nounits"}:
        return Answer(USAGE, "", USAGE_CODE)
    names = [name.strip() for name in (wish.fields or "").split(",")]
    known = smi_csv.columns(node, wish.table)
    for name in names:
        if name not in known:
            return Answer(f'Field "{name}" is not a valid field to query.\n\n', "", USAGE_CODE)
    out = [] if "noheader" in form else [", ".join(known[name][0] for name in names)]
    cells = smi_csv.rows(node, wish.table, "nounits" not in form)
    for row in [cells[index] for index in chosen] if cells else []:
        out.append(", ".join(row[known[name][1]] for name in names))
    return Answer("".join(f"{line}\n" for line in out), "", 0)
