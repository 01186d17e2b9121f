"""``nvidia-smi topo -m`` (and ``-mp``): which GPU reaches which GPU and NIC over what.

Source of the words in the cells: the legend that the tool prints below the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin.parse.cliques import complete_groups, connected
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.matrix import GPU, SELF, Matrix, matrices
from rackpin.parse.nvidia_smi_errors import Failure, failures
from rackpin.parse.text import ends_whole, lines, missing_tool

# Near to far. SOC is what older drivers call SYS.
DISTANCE = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}
_NVLINK = re.compile(r"NV\d+")
_NIC = re.compile(r"(?:^|[\s#>|])(NIC\d+):\s*([\w.:-]+)\s*$")
_P2P = {"OK", "CNS", "GNS", "TNS", "NS", "U", "DR"}


@dataclass(frozen=True)
class Nic:
    """A NIC's column; ``device`` is its name in the NIC legend, None without one."""

    name: str
    device: str | None


@dataclass(frozen=True)
class Closest:
    """The nearest NICs of a GPU, in column order; ``link`` None when its cells aren't there."""

    link: str | None
    nics: tuple[str, ...]


@dataclass(frozen=True)
class Topology:
    """One host's table. Lists "per GPU" are in the order of ``gpu_indices``.

    ``gpus`` is None when the tool failed before it could count. ``links[i][j]`` is the cell of two
    GPUs by place: ``X`` with itself, None where neither direction has it. ``link_counts`` counts
    each pair once, pairs whose cell is missing not at all. ``nvlink_shown`` is False for ``-mp``,
    whose table hides NVLink, None when the text doesn't tell. ``complete``: every cell is there.
    """

    gpus: int | None
    gpu_indices: tuple[int, ...] = ()
    nvlink_groups: tuple[tuple[int, ...], ...] = ()
    nvlink_connected: tuple[tuple[int, ...], ...] = ()
    nvlink_shown: bool | None = None
    link_counts: dict[str, int] = field(default_factory=dict)
    links: tuple[tuple[str | None, ...], ...] = ()
    nics: tuple[Nic, ...] = ()
    closest_nics: tuple[Closest, ...] = ()
    cpu_affinity: tuple[str | None, ...] = ()
    numa_affinity: tuple[str | None, ...] = ()
    gpu_numa_id: tuple[str | None, ...] = ()
    rows_missing: tuple[str, ...] = ()
    complete: bool = False
    error: str | None = None
    errors: tuple[str, ...] = ()


def read(text: str) -> Topology:
    """Read one table. Raises NotThisKind when there is none, or none of a GPU's cells."""
    found = lines(text)
    tables = [table for table in matrices(found, ends_whole(found)) if table.rows]
    said = failures(found)
    if not tables:
        return _failed(found, said)
    table = max(tables, key=_size)  # the first of the fullest
    if any(cell in _P2P for cells in table.rows.values() for cell in cells):
        raise NotThisKind("this is topo -p2p (kind nvlink), not topo -m")
    if not any(GPU.fullmatch(label) for label in table.rows):
        raise NotThisKind("the table has no GPU's row")
    errors = [failure.text for failure in said]
    if any(_differ(table, other) for other in tables):
        errors.append("a second, different table in the same text is not read")
    return _topology(table, found, errors, said)


def _failed(found: Sequence[str], said: Sequence[Failure]) -> Topology:
    if said:
        none = said[0].error == "no-devices"
        errors = tuple(failure.text for failure in said)
        return Topology(0 if none else None, error=said[0].error, errors=errors)
    if absent := missing_tool(found, "nvidia-smi"):
        raise NotThisKind(f"nvidia-smi did not run: {absent}")
    raise NotThisKind("no topology table: no line of GPU columns with rows below it")


def _topology(
    table: Matrix, found: Sequence[str], errors: list[str], said: Sequence[Failure]
) -> Topology:
    names = table.columns
    gpus = [place for place, name in enumerate(names) if GPU.fullmatch(name)]
    index = {place: int(names[place][3:]) for place in gpus}
    counts: Counter[str] = Counter()
    joined = []
    for k, one in enumerate(gpus):
        for other in gpus[k + 1 :]:
            there, back = table.cell(names[one], other), table.cell(names[other], one)
            if there and back and there != back:
                errors.append(f"{names[one]} to {names[other]} is {there}, and back {back}")
            elif link := there or back:
                counts[link] += 1
                if _NVLINK.fullmatch(link):
                    joined.append((index[one], index[other]))
    missing = tuple(n for n in names if len(table.rows.get(n, ())) < len(names))
    nics = [place for place in range(len(names)) if place not in index]
    devices = _legend(found)
    indices = tuple(index.values())
    shown = True if joined else _shown(found)
    return Topology(
        gpus=len(gpus),
        gpu_indices=indices,
        nvlink_groups=tuple(map(tuple, complete_groups(indices, joined))),
        nvlink_connected=tuple(map(tuple, connected(indices, joined))),
        nvlink_shown=shown,
        link_counts=dict(sorted(counts.items())),
        links=tuple(
            tuple(
                SELF
                if one == other
                else table.cell(names[one], other) or table.cell(names[other], one)
                for other in gpus
            )
            for one in gpus
        ),
        nics=tuple(Nic(names[place], devices.get(names[place])) for place in nics),
        closest_nics=tuple(_closest(table, place, nics) for place in gpus),
        cpu_affinity=_after(table, gpus, "CPU Affinity"),
        numa_affinity=_after(table, gpus, "NUMA Affinity"),
        gpu_numa_id=_after(table, gpus, "GPU NUMA ID"),
        rows_missing=missing,
        complete=not missing and not errors and table.headed,
        error=said[0].error if said else None,
        errors=tuple(errors),
    )


def _legend(found: Sequence[str]) -> dict[str, str]:
    """Devices by NIC. A last line without its end counts when the name is like another one."""
    rows = [(place, match) for place, line in enumerate(found) if (match := _NIC.search(line))]
    devices = {match[1]: match[2] for _, match in rows}
    if rows and rows[-1][0] == len(found) - 1:
        nic, name = rows[-1][1].groups()
        others = {device for other, device in devices.items() if other != nic}
        alike = {re.sub(r"\d+", "#", device) for device in others}
        if name in others or re.sub(r"\d+", "#", name) not in alike:
            del devices[nic]
    return devices


def _closest(table: Matrix, gpu: int, nics: Sequence[int]) -> Closest:
    names = table.columns
    links = {
        nic: link
        for nic in nics
        if (link := table.cell(names[gpu], nic) or table.cell(names[nic], gpu)) in DISTANCE
    }
    if not links or len(links) < len(nics):
        return Closest(None, ())  # a cell that isn't there might be the nearest
    nearest = min(DISTANCE[str(link)] for link in links.values())
    chosen = tuple(nic for nic, link in links.items() if DISTANCE[str(link)] == nearest)
    return Closest(links[chosen[0]], tuple(names[nic] for nic in chosen))


def _after(table: Matrix, gpus: Sequence[int], column: str) -> tuple[str | None, ...]:
    wanted = column.lower()
    texts = [
        {title.lower(): text for title, text in table.after.get(table.columns[gpu], {}).items()}
        for gpu in gpus
    ]
    return tuple(fields.get(wanted) for fields in texts)


def _shown(found: Sequence[str]) -> bool | None:
    """By the legend: it names NV# in -m only, as its last word; -mp's ends with PIX."""
    legend = [line.split("=", 1)[0].split() for line in found if "=" in line]
    words = {part[-1] for part in legend if part}
    if "NV#" in words:
        return True
    return False if {SELF, "PIX"} <= words else None


def _size(table: Matrix) -> int:
    return sum(map(len, table.rows.values()))


def _differ(one: Matrix, other: Matrix) -> bool:
    if one.columns != other.columns:
        return True
    both = [(one.rows[row], other.rows[row]) for row in one.rows if row in other.rows]
    return any(a != b for these, those in both for a, b in zip(these, those, strict=False))
