"""What a command prints on a simulated node, without any host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rackpin.lab.hardware import dcgmi, ib, kernel, lspci, nccl, smi
from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.parts import NOW, STAMP, Answer

BOOTED = datetime(2026, 1, 5, 6, 0, 0, tzinfo=UTC)
NEED_DRIVER = ("nvidia-smi", "dcgmi", "all_reduce_perf", "nv-fabricmanager")
PROC, SYS = "/proc/driver/nvidia/", "/sys/class/infiniband/"


def tools(node: Node) -> list[str]:
    """Programs that the node has: those of the driver only once it is installed."""
    found = ["lspci", "lsmod", "modinfo", "dmesg", *kernel.KEYED]
    found += [*(kernel.DISK if node.kernel else []), *(ib.TOOLS if node.nics else [])]
    return [*found, *(NEED_DRIVER if node.driver is not None else [])]


def answer(
    node: Node,
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    now: datetime = BOOTED,
    with_nodes: Sequence[Node] = (),
) -> Answer:
    """What ``argv`` prints on the node, and its exit code; 127 for a program it doesn't have.

    ``cat`` of a file below /proc/driver/nvidia, /sys/class/infiniband or of /proc/modules works
    too. ``with_nodes``: the others of an all_reduce_perf over several nodes. Raises Hangs for a
    program that would never end.
    """
    tool, words = argv[0].rpartition("/")[2], list(argv[1:])
    if tool == "cat" and len(words) == 1:
        return _cat(node, words[0])
    if tool not in tools(node):
        return Answer("", f"sh: 1: {tool}: not found\n", 127)
    if tool in kernel.KEYED:
        return kernel.KEYED[tool](node, words)
    if tool in kernel.DISK:
        return _disk(node, tool, words)
    if tool == "all_reduce_perf":
        return nccl.answer([node, *with_nodes], words, env or {})
    if tool in ib.TOOLS:
        return ib.TOOLS[tool](node, words)
    if tool == "nvidia-smi":
        found = smi.answer(node, words)
        stamp = f"{now:%Y/%m/%d %H:%M:%S.000}"
        text = found.stdout.replace(NOW, f"{now:%a %b {now.day:>2} %H:%M:%S %Y}")
        return found._replace(stdout=text.replace(STAMP, stamp))
    if tool == "lspci":
        return lspci.answer(node, words)
    if tool == "dcgmi":
        return dcgmi.answer(node, words)
    if tool == "nv-fabricmanager":
        return Answer("", kernel.fabric_log(node), 1 if node.fabric == "mismatch" else 0)
    return _kernel(node, tool, words)


def _disk(node: Node, tool: str, words: list[str]) -> Answer:
    """A host's own programs ask its disk; here it has nothing but the kernel that runs."""
    if tool == "uname":
        return Answer(f"{node.kernel}\n" if words == ["-r"] else "Linux\n", "", 0)
    module = words[-1] if words else ""
    where = f"/lib/modules/{node.kernel}"
    said = f"modprobe: FATAL: Module {module} not found in directory {where}\n"
    return Answer("", said, 1)


def _cat(node: Node, path: str) -> Answer:
    files = {f"{PROC}{name}": text for name, text in kernel.proc_driver(node).items()}
    files |= {f"{SYS}{name}": text for name, text in kernel.sys_infiniband(node).items()}
    files["/proc/modules"] = kernel.proc_modules(node)
    if path in files:
        return Answer(files[path], "", 0)
    return Answer("", f"cat: {path}: No such file or directory\n", 1)


def _kernel(node: Node, tool: str, words: list[str]) -> Answer:
    if tool == "lsmod":
        return kernel.lsmod(node)
    if tool == "dmesg":
        return dmesg(node, words)
    fields = kernel.modinfo(node)
    field = words[words.index("-F") + 1] if "-F" in words[:-1] else ""
    module = words[-1] if words else ""
    if module != "nvidia" or not fields:
        return Answer("", f"modinfo: ERROR: Module {module} not found.\n", 1)
    if field:
        return Answer(f"{fields[field]}\n" if field in fields else "", "", 0)
    return Answer("".join(f"{f'{key}:':<16}{text}\n" for key, text in fields.items()), "", 0)


def dmesg(node: Node, words: Sequence[str]) -> Answer:
    """``dmesg``, with -T for times of the day (here counted from BOOTED)."""
    out = ""
    for seconds, line in kernel.log(node):
        when = f"{seconds:12.6f}"
        if "-T" in words or "--ctime" in words:
            stamp = datetime.fromtimestamp(int(BOOTED.timestamp() + seconds), UTC)
            when = f"{stamp:%a %b {stamp.day:>2} %H:%M:%S %Y}"
        out += f"[{when}] {line}\n"
    return Answer(out, "", 0)
