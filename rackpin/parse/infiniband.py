"""What a host's tools say of its InfiniBand and RoCE ports."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from rackpin.parse import infiniband_ports as blocks
from rackpin.parse import infiniband_tables as tables
from rackpin.parse.infiniband_mlxlink import mlxlink
from rackpin.parse.infiniband_model import LAYERS, Infiniband
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.text import ends_whole, lines, missing_tool, unlabelled

TOOLS = (
    "ibstat",
    "ibstatus",
    "ibv_devinfo",
    "ibv_devices",
    "ibdev2netdev",
    "show_gids",
    "rdma",
    "mlxlink",
)
# Which tool a failure is of is rarely in its words; these have it.
_FAILED = (
    (re.compile(r"No IB devices found", re.I), "ibv_devinfo"),
    (
        re.compile(r"Failed to get IB devices? list|Couldn'?t get IB devices? list", re.I),
        "ibv_devinfo",
    ),
    (
        re.compile(r"No IB device '[^']*' found|IB device '[^']*' wasn'?t found", re.I),
        "ibv_devinfo",
    ),
    (
        re.compile(r"ibpanic: |ibwarn: .*(?:can'?t|cannot|fail|error|no such|unable)", re.I),
        "ibstat",
    ),
    (
        re.compile(r"ibstat: .*(?:can'?t|fail|error)|Can'?t (?:open|find|list) .*umad", re.I),
        "ibstat",
    ),
    (re.compile(r"Fatal error: |ERROR: .*(?:/sys/class/infiniband|mst )", re.I), "ibstatus"),
    (re.compile(r"-E- ", re.I), "mlxlink"),
    (re.compile(r"Failed to (?:open|query|query_device|get).*device", re.I), "ibv_devinfo"),
    (re.compile(r"(?:Error|RTNETLINK answers): .*|Wrong device name", re.I), "rdma"),
)
_WARNING = re.compile(r"ibwarn: |libibverbs: Warning|-W- ", re.IGNORECASE)
# How a last line that is whole can end without its newline: by the tools' own formats.
_CLOSED = (*LAYERS, ")", "}", "]")


def read(text: str) -> Infiniband:
    """Read one tool's output. Raises NotThisKind when it is none of these tools'."""
    found = lines(text)
    whole_end = ends_whole(found)
    errors, notes, tool = _failures(found)
    kept = found if whole_end else _without_cut_end(found)
    readers: tuple[Callable[[], Infiniband | None], ...] = (
        lambda: tables.rdma_json("\n".join(found)),
        lambda: blocks.ibstatus(kept),
        lambda: blocks.ibstat(kept),
        lambda: blocks.devinfo(kept),
        lambda: tables.ibdev2netdev(kept),
        lambda: tables.show_gids(found, whole_end),
        lambda: tables.rdma(found, whole_end),
        lambda: tables.sysfs(kept),
        lambda: tables.ibv_devices(kept),
        lambda: mlxlink(kept),
    )
    answers = [answer for reader in readers if (answer := reader())]
    if answers:
        answer, others = answers[0], sorted({one.tool for one in answers[1:]})
        notes = (*answer.notes, *notes, *(f"output of {tool} is not read" for tool in others))
        complete = False if errors else answer.complete
        return replace(answer, complete=complete, errors=errors, notes=notes)
    if errors:
        return Infiniband(tool, errors=errors, notes=notes)
    if absent := missing_tool(found, *TOOLS):
        raise NotThisKind(f"the tool did not run: {absent}")
    raise NotThisKind(f"no port in the form of any of {', '.join(TOOLS)}")


def _failures(found: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    errors: dict[str, str] = {}
    notes: dict[str, None] = {}
    for line in found:
        if len(line) > 1000:
            continue
        text = unlabelled(line.strip(" \t#>"))
        for words, tool in _FAILED:
            if words.match(line.strip()) or words.match(text):
                errors.setdefault(line.strip(), tool)
                break
        else:
            if _WARNING.match(line.strip()):
                notes[line.strip()] = None
    return tuple(errors), tuple(notes), next(iter(errors.values()), "")


def _without_cut_end(found: Sequence[str]) -> list[str]:
    kept = list(found)
    while kept and not kept[-1].strip():
        kept.pop()
    if kept and not kept[-1].rstrip().endswith(_CLOSED):
        kept.pop()
    return kept
