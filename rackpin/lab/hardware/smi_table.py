"""``nvidia-smi`` without arguments: the table, in the form of the driver's branch."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.lab.hardware.drivers import NEW_FROM, WIDE_FROM
from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.parts import NOW, Parts
from rackpin.lab.hardware.values import values

NAME_COLUMNS = 27  # longer names end in "..."


@dataclass(frozen=True)
class Form:
    """Widths of the table's cells, and how rules and process lines look in a branch."""

    middle: int  # characters of the second cell
    version: int  # of the driver's version in the head
    corner: str  # first character of the rule below the head
    gap: str  # between table and processes
    processes: tuple[str, str]

    @property
    def inside(self) -> int:
        return 41 + 1 + self.middle + 1 + 22


def _form(middle: int, version: int, corner: str, gap: str, pid: int, usage: int) -> Form:
    heads = (
        f"|  GPU   GI   CI{'PID':>{pid}}   Type   Process name{'GPU Memory':>{usage}} |",
        f"|        ID   ID{'Usage':>{pid + usage + 17}}      |",
    )
    return Form(middle, version, corner, gap, heads)


OLD = _form(22, 13, "|", " " * 89, 11, 38)
WIDE = _form(24, 15, "|", " " * 89, 11, 40)
NEW = _form(24, 15, "+", "", 17, 34)


def form(major: int) -> Form:
    return OLD if major < WIDE_FROM else WIDE if major < NEW_FROM else NEW


def table(node: Node) -> Parts:
    """``nvidia-smi``."""
    shape = form(node.major)
    head = [
        NOW + " " * 7,
        f"+{'-' * shape.inside}+",
        f"| NVIDIA-SMI {node.driver:<23}Driver Version: {node.driver:<{shape.version}}"
        f"CUDA Version: {node.cuda:<9}|",
        _rule(shape, "-", shape.corner),
        f"| GPU  Name                 Persistence-M | Bus-Id{'Disp.A':>{shape.middle - 8}} |"
        " Volatile Uncorr. ECC |",
        f"| Fan  Temp   Perf          Pwr:Usage/Cap |{'Memory-Usage':>{shape.middle - 1}} |"
        " GPU-Util  Compute M. |",
        f"|{' ' * 41}|{' ' * shape.middle}|               MIG M. |",
        _rule(shape, "=", "|"),
    ]
    cards = [_card(node, i, shape) for i in range(len(node.gpus))]
    tail = [*_mig(node, shape), shape.gap, *_processes(shape)]
    return Parts("\n".join(head) + "\n", cards, "\n".join(tail) + "\n")


def _rule(shape: Form, dash: str, corner: str) -> str:
    end = "|" if dash == "=" else "+"
    return f"{corner}{dash * 41}+{dash * shape.middle}+{dash * 22}{end}"


def _card(node: Node, index: int, shape: Form) -> str:
    known = values(node, index)
    gpu = node.gpus[index]
    name = known["name"]
    if len(name) > NAME_COLUMNS:
        name = f"{name[: NAME_COLUMNS - 3]}..."
    fan = known["fan"].replace(" ", "")
    power, limit = (int(float(known[key])) for key in ("power", "power_limit"))
    ecc = "On" if gpu.mig else known["ecc_count"] if gpu.ecc else "Off"
    use = known["utilization"].replace(" ", "")
    wide = shape.middle - 22
    used, total, cap = f"{known['used']}MiB", f"{known['memory']}MiB", f"{limit}W"
    lines = [
        f"|{index:>4}  {name:<31}On  | {' ' * wide}{known['bus']} Off |{ecc:>21} |",
        f"|{fan:>4}{known['temperature']:>5}C    {known['pstate']}{power:>{16 - wide // 2}}W / "
        f"{cap:>{4 + wide // 2}} |{used:>{10 + wide // 2}} / {total:>{8 + wide // 2}} |"
        f"{use:>8}      Default |",
        f"|{' ' * 41}|{' ' * shape.middle}|{known['mig']:>21} |",
        _rule(shape, "-", "+"),
    ]
    return "\n".join(lines) + "\n"


def _mig(node: Node, shape: Form) -> list[str]:
    """Cards in MIG mode have a table of their own; without instances it is empty."""
    if not any(gpu.mig for gpu in node.gpus):
        return []
    inside = shape.inside
    shared = 32 + shape.middle - 22
    share, units = (
        ("Shared ", "       Shared         ") if shape is NEW else ("", "     Shared           ")
    )
    engines = "CE ENC  DEC  OFA  JPG " if shape is NEW else "CE ENC DEC OFA JPG    "
    return [
        shape.gap,
        f"+{'-' * inside}+",
        f"| MIG devices:{' ' * (inside - 13)}|",
        f"+{'-' * 18}+{'-' * shared}+{'-' * 11}+{'-' * 23}+",
        f"| GPU  GI  CI  MIG |{f'{share}Memory-Usage':>{shared - 1}} |        Vol| {units}|",
        f"|      ID  ID  Dev |{f'{share}BAR1-Usage':>{shared - 1}} | SM     Unc| {engines}|",
        f"|{' ' * 18}|{' ' * shared}|        ECC|{' ' * 23}|",
        f"|{'=' * 18}+{'=' * shared}+{'=' * 11}+{'=' * 23}|",
        f"|  No MIG devices found{' ' * (inside - 22)}|",
        f"+{'-' * inside}+",
    ]


def _processes(shape: Form) -> list[str]:
    inside = shape.inside
    return [
        f"+{'-' * inside}+",
        f"| Processes:{' ' * (inside - 11)}|",
        *shape.processes,
        f"|{'=' * inside}|",
        f"|  No running processes found{' ' * (inside - 28)}|",
        f"+{'-' * inside}+",
    ]
