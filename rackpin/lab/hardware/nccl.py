"""``all_reduce_perf`` of nccl-tests 2.13.9 and 2.19.6, with the bandwidth of the preset.

Time of a size: ``latency + size/peak + half/peak · size/(size + half)``, so that bus bandwidth
goes towards ``peak · size/(size + half)``. The program on a host computes the same in awk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.nccl_args import TYPES, Place, Wish, asked, place
from rackpin.lab.hardware.nccl_log import fill, kind_of, template
from rackpin.lab.hardware.nccl_speed import (
    ONE_RANK,
    broken,
    local_peak,
    loop_peak,
    memory_limit,
    network_peak,
)
from rackpin.lab.hardware.parts import Answer, Hangs


def answer(nodes: Sequence[Node], argv: Sequence[str], env: Mapping[str, str]) -> Answer:
    """What ``all_reduce_perf ARGV`` prints on the first node, together with the others.

    With several nodes the slowest sets the pace. One node alone may still be told by Open MPI's
    variables in ``env`` that it is one of many.
    """
    node = nodes[0]
    if any(one.rank_hang for one in nodes):
        raise Hangs("all_reduce_perf")
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
    if env.get("NCCL_DEBUG") and not env.get("NCCL_DEBUG_FILE"):
        cuda = node.cuda
        out.append(f"NCCL version {node.preset.nccl}+cuda{cuda}\n")
    rows, mean, wrong = _rows(nodes, wish, where, end, env)
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
    nodes: Sequence[Node], wish: Wish, where: Place, end: int, env: Mapping[str, str]
) -> tuple[list[str], float, int]:
    """Lines of the table, mean of the bus bandwidths, number of wrong elements."""
    ranks = where.each * len(where.hosts)
    peaks = [_peak(one, ranks, len(where.hosts), env) for one in nodes]
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


def _peak(node: Node, ranks: int, hosts: int, env: Mapping[str, str]) -> float:
    kind = kind_of(hosts, env)
    if kind == "local":
        return local_peak(node, ranks, env.get("NCCL_NVLS_ENABLE") != "0")
    return network_peak(node) if kind == "network" else loop_peak(node)


def log(nodes: Sequence[Node], place: int, gpus: int, env: Mapping[str, str]) -> str:
    """What NCCL writes into its log on the node at that place, one process a node."""
    text = template(nodes[place], kind_of(len(nodes), env))
    pid = Place([], gpus).pid
    return fill(text, cards=gpus, rank=place * gpus, ranks=len(nodes) * gpus, pid=pid)


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
