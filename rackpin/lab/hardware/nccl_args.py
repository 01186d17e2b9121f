"""How ``all_reduce_perf`` is called: its options, and Open MPI's variables around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from rackpin.lab.hardware.model import Node

TYPES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int8": 1, "uint8": 1, "int32": 4}
UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

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
    return wish if wish.datatype in TYPES and wish.gpus * wish.threads else None


def _size(text: str) -> int | None:
    """8, 128M, 1.5G → bytes."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    digits = text[: len(text) - len(unit)]
    if unit not in UNITS or not digits.replace(".", "", 1).isdigit():
        return None
    return int(float(digits) * UNITS[unit])


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
