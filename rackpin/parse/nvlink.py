"""``nvidia-smi nvlink`` (``-s``, ``-e``, ``-c``, ``-R``, …) and ``nvidia-smi topo -p2p``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin.parse.kinds import NotThisKind
from rackpin.parse.matrix import GPU, SELF, Matrix, matrices
from rackpin.parse.nvidia_smi_errors import OTHER, classify, failures, worst
from rackpin.parse.nvidia_smi_list import DEVICE
from rackpin.parse.text import ends_whole, lines, missing_tool, number

STATUS, P2P = "nvlink", "topo -p2p"
_LINK = re.compile(r"[\s#>]*Link (?P<link>\d{1,3})(?P<mark>[:,]) *(?P<rest>.*?)\s*$")
_SPEED = re.compile(r"([\d.]+) ?GB/s$")
_INACTIVE = re.compile(r"<?inactive>?$", re.IGNORECASE)
_COUNTER = re.compile(r"(?P<name>.*\S): *(?P<value>\d{1,20})(?: \w+)?$")
_CAPABLE = re.compile(r"(?P<name>.*\S): *(?P<value>true|false)$", re.IGNORECASE)
_REMOTE = re.compile(r"Remote Device|^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:")
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)
_NO_ANSWER = re.compile(
    r"not supported|Unable to (?:retrieve|get)|Unknown Error|GPU is lost|Insufficient Permissions",
    re.IGNORECASE,
)
_GAP = re.compile(r"[\s#>]*\[?\.\.\.\]?\s*$")
_HEADLESS = -1  # links above any GPU's line
STATES = {"OK", "CNS", "GNS", "TNS", "NS", "U", "DR"}  # by the legend of topo -p2p


@dataclass(frozen=True)
class Link:
    """One link: ``active`` None where only counters or capabilities are told, speed in GB/s."""

    link: int
    active: bool | None = None
    speed: int | float | None = None
    counters: dict[str, int] = field(default_factory=dict)
    capabilities: dict[str, bool] = field(default_factory=dict)
    remote: str | None = None


@dataclass(frozen=True)
class NvlinkGpu:
    """``active`` and ``inactive`` count links whose state is told, None when none's is.

    ``inactive`` is None, ``active`` 0 when the tool says only that all are inactive.
    ``speed_gbps``: GB/s of one link as printed, None when the links differ. ``complete``: False
    when a GPU of the same name lists more links or a ``...`` stands inside, None if nothing tells.
    """

    index: int | None  # None: its line is cut off
    name: str | None
    uuid: str | None = None
    active: int | None = None
    inactive: int | None = None
    speed_gbps: int | float | None = None
    links: tuple[Link, ...] = ()
    complete: bool | None = None
    message: str | None = None  # what the tool says instead of links


@dataclass(frozen=True)
class Nvlink:
    """``tool`` is ``nvlink``, ``nvlink -e``, ``-c`` or ``-R``, or ``topo -p2p``, which alone has
    ``matrix`` (state by row and column, in the order of ``gpus``) and ``pairs`` (pairs by state).
    """

    tool: str
    gpus: tuple[NvlinkGpu, ...] = ()
    matrix: tuple[tuple[str | None, ...], ...] | None = None
    pairs: dict[str, list[list[int]]] | None = None
    complete: bool | None = None
    error: str | None = None
    errors: tuple[str, ...] = ()


@dataclass
class _Seen:
    gpu: NvlinkGpu
    links: dict[int, Link] = field(default_factory=dict)
    message: str | None = None
    gap: bool = False


def read(text: str) -> Nvlink:
    """Read one output. Raises NotThisKind for a text without a GPU's links or a P2P table."""
    found = lines(text)
    said = failures(found)
    errors = tuple(failure.text for failure in said)
    tables = [table for table in matrices(found, ends_whole(text)) if table.rows]
    if tables:
        return _p2p(max(tables, key=lambda table: sum(map(len, table.rows.values()))), errors)
    seen = _gpus(found, ends_whole(text))
    if any(one.links or one.message for one in seen):
        return _status(seen, found, errors, worst(said))
    if said:
        return Nvlink(STATUS, error=worst(said), errors=errors)
    if absent := missing_tool(found, "nvidia-smi"):
        raise NotThisKind(f"nvidia-smi did not run: {absent}")
    if seen:
        raise NotThisKind("GPUs, but no line of a link: nvidia-smi -L, or cut above the links")
    raise NotThisKind("neither links of a GPU nor a P2P table")


def _gpus(found: Sequence[str], whole_end: bool) -> list[_Seen]:
    seen: dict[int, _Seen] = {}
    now: _Seen | None = None
    last = max((place for place, line in enumerate(found) if line.strip()), default=-1)
    for place, line in enumerate(found):
        if match := DEVICE.match(line):
            index = int(match[1])
            now = seen.setdefault(index, _Seen(NvlinkGpu(index, match[2].strip(), match[3])))
        elif match := _LINK.match(line):
            if now is None:
                now = seen.setdefault(_HEADLESS, _Seen(NvlinkGpu(None, None)))
            rest = match["rest"]
            if whole_end or place < last or _SPEED.match(rest) or _INACTIVE.match(rest):
                _take(now, int(match["link"]), match["mark"], rest)
        elif now is not None and _GAP.match(line):
            now.gap = True
        elif now is not None and _NO_ANSWER.search(line) and len(line) < 300:
            now.message = now.message or line.strip(" #>\t")
    return list(seen.values())


def _take(now: _Seen, number_of: int, mark: str, rest: str) -> None:
    link = now.links.get(number_of, Link(number_of))
    counters, capabilities = dict(link.counters), dict(link.capabilities)
    active, speed, remote = link.active, link.speed, link.remote
    if match := _SPEED.match(rest):
        active, speed = True, number(match[1])
    elif _INACTIVE.match(rest):
        active = False
    elif match := _CAPABLE.match(rest):
        capabilities[match["name"]] = match["value"].lower() == "true"
    elif _REMOTE.search(rest):
        remote = rest
    elif mark == ":" and (match := _COUNTER.match(rest)):
        counters[match["name"]] = int(match["value"])
    else:
        return
    now.links[number_of] = Link(number_of, active, speed, counters, capabilities, remote)


def _status(
    seen: Sequence[_Seen], found: Sequence[str], errors: tuple[str, ...], error: str | None
) -> Nvlink:
    most: dict[str | None, int] = {}
    for one in seen:
        most[one.gpu.name] = max(most.get(one.gpu.name, 0), len(one.links))
    alone = {name for name in most if sum(one.gpu.name == name for one in seen) == 1}
    gpus = tuple(_gpu(one, most, one.gpu.name in alone) for one in seen)
    indices = [gpu.index for gpu in gpus if gpu.index is not None]
    between = any(_GAP.match(line) for line in found)
    gap = between or len(indices) < len(gpus)
    gap = gap or (len(indices) > 1 and indices != list(range(indices[0], indices[-1] + 1)))
    partly = [gpu.complete for gpu in gpus]
    messages = tuple(f"GPU {gpu.index}: {gpu.message}" for gpu in gpus if gpu.message)
    failed = [classify(text) for text in messages if classify(text) != OTHER]
    return Nvlink(
        tool=_tool(gpus),
        gpus=gpus,
        complete=False if gap or False in partly else (None if None in partly else True),
        error=error or next(iter(failed), None),
        errors=(*errors, *messages),
    )


def _gpu(one: _Seen, most: dict[str | None, int], alone: bool) -> NvlinkGpu:
    links = tuple(one.links[number_of] for number_of in sorted(one.links))
    told = [link for link in links if link.active is not None]
    speeds = {link.speed for link in links if link.speed is not None}
    complete: bool | None = None if alone else len(links) == most[one.gpu.name]
    if one.message and not links:
        complete = True
    if one.gap or [link.link for link in links] != list(range(len(links))):
        complete = False
    active: int | None = sum(bool(link.active) for link in told) if told else None
    if not told and one.message and _ALL_INACTIVE.search(one.message):
        active = 0
    return NvlinkGpu(
        one.gpu.index,
        one.gpu.name,
        one.gpu.uuid,
        active,
        len(told) - sum(bool(link.active) for link in told) if told else None,
        speeds.pop() if len(speeds) == 1 else None,
        links,
        complete,
        one.message,
    )


def _tool(gpus: Sequence[NvlinkGpu]) -> str:
    links = [link for gpu in gpus for link in gpu.links]
    if any(link.active is not None for link in links) or not links:
        return STATUS
    for option, there in (
        ("-e", any("Error" in name for link in links for name in link.counters)),
        ("-c", any(link.capabilities for link in links)),
        ("-R", any(link.remote for link in links)),
    ):
        if there:
            return f"{STATUS} {option}"
    return f"{STATUS} -g"


def _p2p(table: Matrix, errors: tuple[str, ...]) -> Nvlink:
    names = [name for name in table.columns if GPU.fullmatch(name)]
    cells = {cell for row in table.rows.values() for cell in row} - {SELF}
    if len(names) < len(table.columns) or table.extra or not cells <= STATES:
        raise NotThisKind("this is topo -m (kind topo), not topo -p2p")
    whole = all(len(table.rows.get(name, ())) == len(names) for name in names)
    pairs: dict[str, list[list[int]]] = {}
    for one, name in enumerate(names):
        for other in range(one + 1, len(names)):
            there, back = table.cell(name, other), table.cell(names[other], one)
            if there and back and there != back:
                errors += (f"{name} to {names[other]} is {there}, and back {back}",)
            elif state := there or back:
                pairs.setdefault(state, []).append([int(name[3:]), int(names[other][3:])])
    return Nvlink(
        P2P,
        tuple(NvlinkGpu(int(name[3:]), None) for name in names),
        tuple(tuple(table.cell(n, place) for place in range(len(names))) for n in names),
        dict(sorted(pairs.items())),
        whole and table.headed and not errors,
        errors=errors,
    )
