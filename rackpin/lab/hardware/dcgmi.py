"""``dcgmi``: discovery, the quick diagnostic, health."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.parts import Answer
from rackpin.lab.hardware.values import bus_id

VERSION = "3.3.9"
FAILED = 226  # a test of diag failed (-30: DCGM_ST_NVVS_ERROR)
NO_NVML = "Error: unable to establish a connection to the specified host: localhost\n"


def answer(node: Node, argv: Sequence[str]) -> Answer:
    """What ``dcgmi ARGV`` prints."""
    run: Callable[[Node], Answer]
    match list(argv):
        case ["-v"] | ["--version"]:
            return Answer(f"\nVersion : {VERSION}\n", "", 0)
        case ["discovery", "-l"] | ["discovery", "--list"]:
            run = _discovery
        case ["diag", "-r" | "--run", "1"]:
            run = _diag
        case ["health", "-c"] | ["health", "--check"]:
            run = _health
        case _:
            return Answer("", f"Parse error: {' '.join(argv)}: isn't simulated\n", 1)
    if not node.loaded or node.library is not None:
        return Answer(NO_NVML, "", 1)
    return run(node)


def _discovery(node: Node) -> Answer:
    rule = f"+--------+{'-' * 70}+"
    out = [f"{len(node.gpus)} GPUs found.", rule, f"| GPU ID |{' Device Information':<70}|", rule]
    for index, gpu in enumerate(node.gpus):
        for first, text in (
            (str(index), f"Name: {node.card.name}"),
            ("", f"PCI Bus ID: {bus_id(gpu.slot.bus)}"),
            ("", f"Device UUID: {gpu.uuid}"),
        ):
            out.append(f"| {first:<6} | {text:<68} |")
        out.append(rule)
    small = "+-----------+"
    out += [f"{len(node.preset.nvswitches)} NvSwitches found.", small, "| Switch ID |", small]
    out += [f"| {number:<9} |" for number in range(len(node.preset.nvswitches))]
    return Answer("\n".join([*out, small]) + "\n", "", 0)


def _diag(node: Node) -> Answer:
    remap = next((i for i, gpu in enumerate(node.gpus) if gpu.remap_pending), None)
    ids = ",".join(node.card.device_id for _ in node.gpus)
    rows = [
        ("-----  Metadata  ----------", None),
        ("DCGM Version", VERSION),
        ("Driver Version Detected", node.driver or ""),
        ("GPU Device IDs Detected", ids),
        ("-----  Deployment  --------", None),
        ("Denylist", "Pass"),
        ("NVML Library", "Pass"),
        ("CUDA Main Library", "Pass" if node.cuda_works else "Fail"),
        ("Permissions and OS Blocks", "Pass"),
        ("Persistence Mode", "Pass"),
        ("Environment Variables", "Pass"),
        ("Page Retirement/Row Remap", "Pass" if remap is None else "Fail"),
    ]
    if remap is not None:
        rows.append(("", f"Error: GPU {remap} has a row remap pending"))
    rows += [("Graphics Processes", "Pass"), ("Inforom", "Pass")]
    out = ["Successfully ran diagnostic for group.", _frame("-"), _row("Diagnostic", "Result")]
    out.append(_frame("="))
    for label, result in rows:
        out.append(f"|{label}+{'-' * 48}|" if result is None else _row(label, result))
    failed = any(result == "Fail" for _, result in rows)
    return Answer("\n".join([*out, _frame("-")]) + "\n", "", FAILED if failed else 0)


def _health(_node: Node) -> Answer:
    """Healthy: a row that waits for a reset doesn't count here (NVIDIA/DCGM issue 263)."""
    out = [_frame("-"), f"| {'Health Monitor Report':<75}|", _frame("=")]
    return Answer("\n".join([*out, _row("Overall Health", "Healthy"), _frame("-")]) + "\n", "", 0)


def _frame(dash: str) -> str:
    return f"+{dash * 27}+{dash * 48}+"


def _row(label: str, result: str) -> str:
    return f"| {label:<25} | {result:<46} |"


def argvs() -> list[list[str]]:
    """Every call the program on a host knows the answer to."""
    return [
        *(["-v"], ["--version"], ["discovery", "-l"], ["discovery", "--list"]),
        *(["diag", "-r", "1"], ["diag", "--run", "1"], ["health", "-c"], ["health", "--check"]),
    ]
