"""What NCCL says of itself with ``NCCL_DEBUG=INFO`` or ``WARN``; RCCL speaks the same.

All forms since 2.2 are known: ``Bootstrap : Using`` and ``Bootstrap: Using``, ``WARN`` with and
without the word NCCL before it, locations with and without a function, plugins, wrapped lines.
What a text doesn't say is null; a number that touches a cut end is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rackpin.parse.kinds import NotThisKind
from rackpin.parse.loglines import Line, ends_whole, lines
from rackpin.parse.nccl_findings import Seen, advisory, derived_errors

_WHO = re.compile(r"^(?P<host>[\w.-]{1,120}):\d+:\d+ (?:\[(?P<device>\d+)\] )?")
_WARN = re.compile(
    r"^(?:\[\d+\] )?(?:(?P<where>[\w./-]{1,120}\.(?:cc|cu|c|h|cpp):\d+)(?: \([\w:]+\))? "
    r"|(?P<function>\S.{0,200}?:\d+) (?=NCCL WARN))?"
    r"(?:\[[\d-]+ [\d:]+\] )?(?:NCCL )?WARN\b ?(?P<text>.*)$"
)
_OURS = re.compile(
    r"\b(?:NCCL (?:INFO|WARN|TRACE|ERROR)|[NR]CCL version ?:? ?\d)|\] INFO |\] [\w./]+:\d+ WARN "
)
_TRACE = re.compile(r"^(?:\[\d+\] )?(?:NCCL )?INFO (?P<text>.*)$")
_VERSION = re.compile(
    r"[NR]CCL version ?:? ?(\d+\.\d+(?:\.\d+)?(?:\+(?:cuda|hip)[\d.]+\d)?)(?=[ \-:,)\]]|$)"
)
_VLLM_VERSION = re.compile(r"vLLM is using nccl==(\d+\.\d+(?:\.\d+)?)")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using (?:\[\d+\] ?)?([\w.@-]+):")
_USING = re.compile(r"^Using network (.+?)\s*$")
_INTERNAL = re.compile(r"^Using internal Network (\w+)")
_DEVICES = re.compile(r"^NET/([\w ]+?) ?: Using (\[0\].*)$")
_HCA = re.compile(r"\[\d+\] ?([\w.+-]+:\d+/(?:IB|RoCE)(?:/SHARP)?)(?=[ ;]|$)")
_P2P_PLUGIN = re.compile(r"^P2P plugin ([\w -]+)$")
_RANK = re.compile(r"\brank (\d+) n[rR]anks (\d+)\b")
_VIA = re.compile(r"(?:\]|\d) (?:\[(?:send|receive)\] )?via ([\w/() .-]{1,80}?)(?: comm \S.*)?$")
_GDR = re.compile(  # the second form is of 2.4 to 2.7
    r"GPU Direct RDMA (Enabled|Disabled) for (?:HCA \d+ '([^']+)'|GPU \S+ / (HCA \d+)\b)"
)
_INTERFACE = re.compile(r"^NET(?:/\w+)? ?: Using interface ([\w.@-]+):")
_LAST_ERROR = re.compile(
    r"^(?:Last error:|(?:[\w.-]{1,80}: )?(?:Test )?NCCL failure|.*\bNCCL [Ee]rror\b)"
)


@dataclass(frozen=True)
class NcclLog:
    """``hcas`` as printed (``mlx5_0:1/RoCE``); ``errors`` the first cause first, each once.

    ``gdr``: channels use GPUDirect RDMA (true), it is off or no network channel has it (false).
    ``init_complete``: true once a rank says so; a text never says that it didn't.
    ``warnings``: WARN lines that are only advice. ``transports``: what channels go through.
    """

    nccl_version: str | None
    cuda_driver: int | None
    network: str | None
    hcas: tuple[str, ...]
    gdr: bool | None
    bootstrap_interface: str | None
    nranks: int | None
    init_complete: bool | None
    errors: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    no_ib_device: bool = False
    nvls: bool | None = None
    gdr_disabled: tuple[str, ...] = ()
    plugin: str | None = None
    several_hosts: bool = False
    derived: dict[str, str] = field(default_factory=dict)


def read(text: str) -> NcclLog:
    """Read a log that may hold other programs' lines as well. Raises NotThisKind without any
    line of NCCL."""
    seen = Seen()
    found = False
    for who, message, warn, whole in _messages(text):
        found = True
        if warn:
            seen.add("warnings" if advisory(message) else "errors", message)
        _note(seen, who, message, whole)
    if not found:
        raise NotThisKind("no line of NCCL in it (NCCL INFO, NCCL WARN, NCCL version)")
    return _reading(seen)


def _reading(seen: Seen) -> NcclLog:
    networks = seen.list("using") or seen.list("plugin") or seen.list("transport")
    channels = seen.list("via")
    over_net = [via for via in channels if via.startswith("NET/")]
    gdr: bool | None = None
    if any("/GDRDMA" in via for via in over_net) or "Enabled" in seen.list("gdr"):
        gdr = True
    elif over_net or "Disabled" in seen.list("gdr"):
        gdr = False
    nvls = seen.list("nvls")
    derived = derived_errors(seen)
    return NcclLog(
        nccl_version=seen.first("version"),
        cuda_driver=int(driver) if (driver := seen.first("driver")) else None,
        network=networks[0] if networks else None,
        hcas=tuple(seen.list("hca")),
        gdr=gdr,
        bootstrap_interface=seen.first("bootstrap"),
        nranks=max(map(int, seen.list("nranks")), default=None),
        init_complete=True if seen.first("complete") else None,
        errors=(*seen.list("errors"), *derived.values()),
        derived=derived,
        several_hosts=len(seen.list("host")) > 1,
        warnings=tuple(seen.list("warnings")),
        versions=tuple(seen.list("version")),
        transports=tuple(channels),
        interfaces=tuple(seen.list("interface")),
        hosts=tuple(seen.list("host")),
        no_ib_device=bool(seen.first("no ib")),
        nvls=None if not nvls else "is available" in nvls,
        gdr_disabled=tuple(seen.list("gdr off")),
        plugin=seen.first("plugin"),
    )


def _messages(text: str) -> Iterator[tuple[str, str, bool, bool]]:
    """(host or "", message, whether it is a warning, whether its end is sure) of NCCL's lines."""
    all_lines = lines(text)
    sure = ends_whole(text)
    last = max((at for at, line in enumerate(all_lines) if line.text), default=-1)
    for at, line in enumerate(all_lines):
        who = _WHO.match(line.text)
        rest = line.text[who.end() :] if who else line.text
        host = who["host"] if who else ""
        whole = sure or at < last
        nccl = bool(_OURS.search(line.text)) or "vLLM is using nccl==" in rest
        if (warn := _WARN.match(rest)) and (nccl or who or warn["where"]):
            said = _wrapped(warn["text"].strip(), all_lines, at)
            place = f" ({warn['where']})" if warn["where"] else ""
            yield host, said + place, True, whole
        elif (info := _TRACE.match(rest)) and (nccl or who):
            yield host, info["text"].strip(), False, whole
        elif _LAST_ERROR.match(rest):
            following = all_lines[at + 1].text if at + 1 < len(all_lines) else ""
            said = f"{rest} {following}" if rest.endswith("Last error:") else rest
            yield host, said.strip(), True, whole
        elif nccl:
            yield host, rest, False, whole


def _wrapped(text: str, all_lines: Sequence[Line], at: int) -> str:
    """A warning's text; the next line belongs to it where this one breaks off."""
    if at + 1 < len(all_lines) and (not text or text.endswith((",", " len"))):
        following = all_lines[at + 1].text
        if following and not _OURS.search(following) and not _WHO.match(following):
            return f"{text} {following}".strip()
    return text


def _note(seen: Seen, host: str, message: str, whole: bool) -> None:
    """Take down what one message says."""
    seen.add("host", host)
    for pattern in (_VERSION, _VLLM_VERSION):
        if (match := pattern.search(message)) and (whole or match.end() < len(message)):
            seen.add("version", match[1])
            seen.add(f"version of {host}", match[1])
    if match := re.match(r"cudaDriverVersion (\d+)\b", message):
        seen.add("driver", match[1] if whole or match.end() < len(message) else "")
    if match := _BOOTSTRAP.search(message):
        seen.add("bootstrap", match[1])
    if match := _INTERFACE.match(message):
        seen.add("interface", match[1])
        seen.add("lo on", host if match[1] == "lo" else "")
    if whole and (match := _USING.match(message) or _INTERNAL.match(message)):
        seen.add("using", match[1])
    if whole and (match := _P2P_PLUGIN.match(message)):
        seen.add("plugin", match[1])
    if match := _DEVICES.match(message):
        seen.add("transport", match[1].strip())
        for hca in _HCA.finditer(match[2]):
            seen.add("hca", hca[1] if whole or hca.end() < len(match[2]) else "")
    if match := _RANK.search(message):
        if whole or match.end() < len(message):
            seen.add("nranks", match[2])
            seen.add(f"ranks on {host}", match[1])
        seen.add("complete", "yes" if "Init COMPLETE" in message else "")
    if whole and (match := _VIA.search(message)):
        _transport(seen, match[1].strip())
    if match := _GDR.search(message):
        seen.add("gdr", match[1])
        sockets = message.startswith("NET/Socket")  # they never have it
        off = (match[2] or match[3]) if match[1] == "Disabled" and not sockets else ""
        seen.add("gdr off", off)
    if match := re.search(r"NVLS multicast support (is(?: not)? available)", message):
        seen.add("nvls", match[1])
    if re.match(r"NET/IB ?: No device found", message):
        seen.add("no ib", "yes")
    if match := re.match(r"(NET/Plugin ?|Bootstrap ?): ", message):
        seen.add(f"wording of {host}", match[1])


def _transport(seen: Seen, via: str) -> None:
    seen.add("via", via)
    if match := re.match(r"NET/([\w -]+?)/\d", via):
        seen.add("transport", match[1])
