"""``all_reduce_perf`` of nccl-tests 2.13.9 and 2.19.6, with the bandwidth of the preset.

Time of a size: ``latency + size/peak + half/peak · size/(size + half)``, so that bus bandwidth
goes towards ``peak · size/(size + half)``. The program on a host computes the same in awk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.parts import Answer

TYPES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int8": 1, "uint8": 1, "int32": 4}
UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
KEPT_FREE = 1 << 30  # bytes a card keeps when nccl-tests sizes its buffers
ONE_RANK = 1000.0  # GB/s: a rank alone copies within its memory

# option → (other name, field); every other option takes a value that changes nothing here
OPTIONS = {
    "-b": ("--minbytes", "begin"),
    "-e": ("--maxbytes", "end"),
    "-i": ("--stepbytes", "step"),
    "-f": ("--stepfactor", "factor"),
    "-g": ("--ngpus", "gpus"),
    "-t": ("--nthreads", "threads"),
    "-n": ("--iters", "iters"),
    "-w": ("--warmup_iters", "warmup"),
    "-m": ("--agg_iters", "agg"),
    "-c": ("--check", "check"),
    "-d": ("--datatype", "datatype"),
    "-o": ("--op", "op"),
}
IGNORED = {
    *("-p", "--parallel_init", "-r", "--root", "-z", "--blocking", "-y", "--stream_null"),
    *("-T", "--timeout", "-G", "--cudagraph", "-C", "--report_cputime", "-a", "--average"),
    *("-R", "--local_register", "-x", "--cta_policy"),
}
SIZES = ("begin", "end", "step")


@dataclass(frozen=True)
class Wish:
    """The arguments; sizes in bytes."""

    begin: int = 32 << 20
    end: int = 32 << 20
    step: int = 1 << 20
    factor: int = 1
    gpus: int = 1
    threads: int = 1
    iters: int = 20
    warmup: int | None = None
    agg: int = 1
    check: int = 1
    datatype: str = "float"
    op: str = "sum"


def asked(argv: Sequence[str]) -> Wish | None:
    """The arguments; None where they can't be understood."""
    names = {name: one for short, (long, one) in OPTIONS.items() for name in (short, long)}
    kinds = {one.name: one.type for one in fields(Wish)}
    found: dict[str, int | str] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            name, value = word[:2], word[2:]
        if not value and not equals:
            if not words:
                return None
            value = words.pop(0)
        if name in IGNORED:
            continue
        if name not in names:
            return None
        one = names[name]
        number = _size(value) if one in SIZES else int(value) if value.isdigit() else None
        if kinds[one] == "str":
            found[one] = value
        elif number is None:
            return None
        else:
            found[one] = number
    wish = Wish(**found)  # type: ignore[arg-type]
    return wish if wish.datatype in TYPES else None


def _size(text: str) -> int | None:
    """8, 128M, 1.5G → bytes."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    digits = text[: len(text) - len(unit)]
    if unit not in UNITS or not digits.replace(".", "", 1).isdigit():
        return None
    return int(float(digits) * UNITS[unit])


def local_peak(node: Node, ranks: int, nvls: bool) -> float:
    """GB/s of bus bandwidth of the first ``ranks`` cards of one node."""
    model, used = node.preset.collective, node.gpus[:ranks]
    whole = all(node.joined(0, other) for other in range(1, len(used)))
    if model.nvlink and whole and node.card_links:
        if not nvls and model.ring is not None:
            peak = min(model.ring, _of(model.nvlink, ranks))
        else:
            peak = _of(model.nvlink, ranks)
        down = max(len(gpu.links_down) for gpu in used)
        peak *= (node.card_links - down) / node.card_links
    else:
        peak = model.pcie or model.network
    return peak * node.local_factor


def _of(table: dict[int, float], ranks: int) -> float:
    """The entry of ``ranks``, else of the next lower number that has one, else the lowest."""
    below = [count for count in table if count <= ranks]
    return table[max(below) if below else min(table)]


def network_peak(node: Node) -> float:
    return node.preset.collective.network * node.network_factor


def broken(node: Node, ranks: int) -> str:
    """Why CUDA fails on the first ``ranks`` cards; empty when it works."""
    if not node.loaded:
        return "CUDA driver version is insufficient for CUDA runtime version"
    if node.library is not None:
        return "system has unsupported display driver / cuda driver combination"
    if not node.cuda_works:
        return "system not yet initialized"
    if any(gpu.handle for gpu in node.gpus):
        return "unknown error"
    usable = sum(not gpu.mig for gpu in node.gpus)
    return "invalid device ordinal" if ranks > usable else ""


def memory_limit(node: Node, check: bool) -> int:
    """Bytes of one buffer at most: nccl-tests needs three of them when it checks data."""
    total = (node.card.memory - node.card.reserved) << 20
    return (total - KEPT_FREE) // (3 if check else 2)


@dataclass(frozen=True)
class Place:
    """Which ranks there are: hosts in order, ranks on each, and which of them this one is."""

    hosts: Sequence[str]
    each: int
    rank: int = 0
    pid: int = 4242


def place(node: Node, env: Mapping[str, str], local: int) -> Place:
    """From Open MPI's environment; other hosts' names come from RACKPIN_LAB_HOSTS, else nodeN."""
    size = int(env.get("OMPI_COMM_WORLD_SIZE", "1"))
    local_size = int(env.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"))
    rank = int(env.get("OMPI_COMM_WORLD_RANK", "0"))
    count = max(1, size // local_size)
    known = env.get("RACKPIN_LAB_HOSTS", "").split(",") if env.get("RACKPIN_LAB_HOSTS") else []
    hosts = [known[i] if i < len(known) else f"node{i}" for i in range(count)]
    if not known:
        hosts[rank // local_size] = node.name
    return Place(hosts, local_size * local, rank)


def answer(nodes: Sequence[Node], argv: Sequence[str], env: Mapping[str, str]) -> Answer:
    """What ``all_reduce_perf ARGV`` prints on the first node, together with the others.

    With several nodes the slowest sets the pace. One node alone may still be told by Open MPI's
    variables in ``env`` that it is one of many.
    """
    node = nodes[0]
    wish = asked(argv)
    if wish is None:
        return Answer("", "USAGE: all_reduce_perf -b -e -i -f -g -t -n -w -m -c -d -o\n", 1)
    where = place(node, env, wish.gpus * wish.threads)
    if len(nodes) > 1:
        where = Place([one.name for one in nodes], where.each, 0)
    if where.rank:
        return Answer("", "", 0)
    new = node.preset.nccl_tests != "2.13.9"
    out = _head(node, wish, new)
    for one in nodes:
        why = broken(one, where.each)
        if why:
            return Answer("".join(out + _cuda_failure(one.name, why, where.pid, new)), "", 2)
    out += _devices(nodes, where, new)
    limit = min(memory_limit(one, wish.check > 0) for one in nodes)
    end = min(wish.end, limit)
    if end < wish.end:
        out.append(f"#\n# Reducing maxBytes to {end} due to memory limitation\n")
    if env.get("NCCL_DEBUG"):
        cuda = node.cuda
        out.append(f"NCCL version {node.preset.nccl}+cuda{cuda}\n")
    rows, mean, wrong = _rows(nodes, wish, where, end, env.get("NCCL_NVLS_ENABLE") != "0")
    out += ["#\n", *columns(new), *rows]
    verdict = "OK" if not wrong else "FAILED"
    out.append(f"# Out of bounds values : {wrong} {verdict}\n")
    out.append(f"# Avg bus bandwidth    : {mean:g} \n#\n")
    if new:
        out.append("# Collective test concluded: all_reduce_perf\n#\n")
    return Answer("".join(out), "", 1 if wrong else 0)


def library(node: Node) -> str:
    """2.19.3 → 21903, as NCCL_VERSION_CODE."""
    major, minor, patch = (int(part) for part in node.preset.nccl.split("."))
    return f"{major * 10000 + minor * 100 + patch}"


def _head(node: Node, wish: Wish, new: bool) -> list[str]:
    step = f"{wish.factor}(factor)" if wish.factor > 1 else f"{wish.step}(bytes)"
    warmup = wish.warmup if wish.warmup is not None else 1 if new else 5
    out = []
    if new:
        code = library(node)
        version = f"# nccl-tests version {node.preset.nccl_tests}"
        out.append(f"{version} nccl-headers={code} nccl-library={code}\n")
        out.append("# Collective test starting: all_reduce_perf\n")
    out.append(
        f"# nThread {wish.threads} nGpus {wish.gpus} minBytes {wish.begin} maxBytes {wish.end} "
        f"step: {step} warmup iters: {warmup} iters: {wish.iters} agg iters: {wish.agg} "
        f"validation: {wish.check} graph: 0{' unalign: 0' if new else ''}\n#\n# Using devices\n"
    )
    return out


def _cuda_failure(host: str, why: str, pid: int, new: bool) -> list[str]:
    at, then = ("util.cu:674", "common.cu:1454") if new else ("common.cu:894", "common.cu:844")
    return [
        f"{host}: Test CUDA failure {at} '{why}'\n",
        f" .. {host} pid {pid}: Test failure {then}\n",
    ]


def _devices(nodes: Sequence[Node], where: Place, new: bool) -> list[str]:
    out = []
    for number, host in enumerate(where.hosts):
        node = nodes[number] if len(nodes) > 1 else nodes[0]
        for index in range(where.each):
            domain, bus, device = node.gpus[index].slot.bus.partition(".")[0].split(":")
            at = f"[{domain}:{bus}:{device}]" if new else f"[0x{bus}]"
            out.append(
                f"#  Rank {number * where.each + index:2d} Group  0 Pid {where.pid:6d} on "
                f"{host:>10} device {index:2d} {at} {node.card.name}\n"
            )
    return out


def columns(new: bool) -> list[str]:
    """The three lines above the rows."""
    wrong, gap, end = (" #wrong", " ", " ") if new else ("#wrong", "", "")
    half = f"    time   algbw   busbw {wrong}"
    return [
        f"#{' ' * 62}out-of-place{' ' * 23}in-place{' ' * 10}\n",
        f"#       size         count      type   redop    root {half} {half}{end}\n",
        f"#        (B)    (elements){' ' * 31}(us)  (GB/s)  (GB/s) {gap}"
        f"           (us)  (GB/s)  (GB/s)  {gap}     {end}\n",
    ]


def _rows(
    nodes: Sequence[Node], wish: Wish, where: Place, end: int, nvls: bool
) -> tuple[list[str], float, int]:
    """Lines of the table, mean of the bus bandwidths, number of wrong elements."""
    ranks = where.each * len(where.hosts)
    many = len(where.hosts) > 1
    peaks = [network_peak(one) if many else local_peak(one, ranks, nvls) for one in nodes]
    peak, model = min(peaks), nodes[0].preset.collective
    new = nodes[0].preset.nccl_tests != "2.13.9"
    out, total, count, size = [], 0.0, 0, wish.begin
    wrong = max(one.wrong for one in nodes) if wish.check else 0
    while size <= end:
        following = size * wish.factor if wish.factor > 1 else size + wish.step
        last = following > end
        line = f"{size:>12}  {size // TYPES[wish.datatype]:>12}  {wish.datatype:>8}"
        line += f"  {wish.op:>6}      -1"
        for place_, factor in ((0, 7), (1, 5)):
            ripple = 1 + ((count * factor + 3) % 11 - 5) / 2000
            time, alg, bus = _measure(size, ranks, peak, model.half, model.latency, ripple)
            total += bus
            bad = "N/A" if not wish.check else str(wrong if last and not place_ else 0)
            line += f"  {shown_time(time, new)}  {alg:6.2f}  {bus:6.2f}  {bad:>{6 if new else 5}}"
        out.append(line + "\n")
        count += 1
        size = following if following > size else end + 1
    return out, total / (2 * count) if count else 0.0, wrong if count else 0


def _measure(
    size: int, ranks: int, peak: float, half: int, latency: float, ripple: float
) -> tuple[float, float, float]:
    """µs, GB/s of algorithm bandwidth and of bus bandwidth."""
    factor = 2 * (ranks - 1) / ranks
    alg_peak = peak / factor if factor else ONE_RANK
    time = latency + (size + half * size / (size + half)) / (alg_peak * 1000)
    time *= ripple
    alg = size / (time * 1000)
    return time, alg, alg * factor


def shown_time(time: float, new: bool) -> str:
    """Seven characters, as each version of nccl-tests spends them."""
    if new:
        digits = 2 if time < 1e4 else 1 if time < 1e5 else 0
    else:
        digits = 2 if time < 100 else 1 if time < 1e4 else 0
    return f"{time:7.{digits}f}"
