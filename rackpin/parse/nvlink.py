"""``nvidia-smi nvlink`` (``-s``, ``-e``, ``-c``, ``-R``, …) and ``nvidia-smi topo -p2p``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin.parse.kinds import NotThisKind
from rackpin.parse.matrix import matrices
from rackpin.parse.nvidia_smi_errors import OTHER, classify, failures, worst
from rackpin.parse.nvidia_smi_list import device
from rackpin.parse.nvlink_model import STATUS, Link, Nvlink, NvlinkGpu
from rackpin.parse.nvlink_p2p import p2p
from rackpin.parse.text import ends_whole, last_line, lines, missing_tool, number

_LINK = re.compile(r"[\s#>]*Link (?P<link>\d{1,3})(?P<mark>[:,]) *(?P<rest>.*?)\s*$")
_SPEED = re.compile(r"([\d.]+) ?GB/s$")
_ACTIVE = re.compile(r"<?active>?$", re.IGNORECASE)
_INACTIVE = re.compile(r"<?inactive>?$", re.IGNORECASE)
_COUNTER = re.compile(r"(?P<name>.*\S): *(?P<value>\d{1,20})(?: \w+)?$")
_CAPABLE = re.compile(r"(?P<name>.*\S): *(?P<value>true|false)$", re.IGNORECASE)
_REMOTE = re.compile(r"Remote Device|^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:")
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)
_NO_ANSWER = re.compile(
    r"not supported|does not (?:have|support)|Unable to (?:retrieve|get)|Unknown Error|GPU is lost"
    r"|Insufficient Permissions",
    re.IGNORECASE,
)
_SAME_LINE = re.compile(
    r"^([\s#>]*GPU \d{1,4}: .{1,120}?\(UUID: [^)]{1,80}\)) +(\S.*)$"
)  # some drivers
_GAP = re.compile(r"[\s#>]*\[?\.\.\.\]?\s*$")
_HEADLESS = -1  # links above any GPU's line


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
    tables = [table for table in matrices(found, ends_whole(found)) if table.rows]
    if tables:
        return p2p(max(tables, key=lambda table: sum(map(len, table.rows.values()))), errors)
    seen = _gpus(found, ends_whole(found))
    bare = seen and ends_whole(found) and not _has_more(found)
    if bare or any(one.links or one.message for one in seen):
        return _status(seen, found, errors, worst(said))
    if said:
        return Nvlink(STATUS, error=worst(said), errors=errors)
    if absent := missing_tool(found, "nvidia-smi"):
        raise NotThisKind(f"nvidia-smi did not run: {absent}")
    if seen:
        raise NotThisKind("GPUs, but no line of a link: cut above the links")
    raise NotThisKind("neither links of a GPU nor a P2P table")


def _has_more(found: Sequence[str]) -> bool:
    """Whether there is anything but GPUs' lines; GPUs without NVLink have nothing below theirs."""
    return any(line.strip() and device(line) is None for line in found)


def _gpus(found: Sequence[str], whole_end: bool) -> list[_Seen]:
    seen: dict[int, _Seen] = {}
    now: _Seen | None = None
    found = [part for line in found for part in _SAME_LINE.sub(r"\1\n\2", line).split("\n")]
    last = last_line(found)
    for place, line in enumerate(found):
        if one := device(line, cut=not whole_end and place == last):
            now = seen.setdefault(one[0], _Seen(NvlinkGpu(*one)))
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
    elif _ACTIVE.match(rest):
        active = True
    elif match := _CAPABLE.match(rest):
        capabilities[match["name"]] = match["value"].lower() == "true"
    elif _REMOTE.search(rest):
        remote = rest
    elif mark == ":" and (match := _COUNTER.match(rest)):
        counters[match["name"]] = int(match["value"])
    elif not rest:
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
