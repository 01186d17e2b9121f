"""The table that nvidia-smi prints without options: two lines for a GPU, three since MIG (450)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin.parse.nvidia_smi_model import BUS_ID, Gpu, gpu, is_bad, quantity, word

# Driver 610 calls them KMD Version and CUDA UMD Version; before 410 there is no CUDA version.
HEAD = re.compile(
    r"NVIDIA-SMI\s+\S+\s+(?:Driver|KMD) Version:\s*(?P<driver>[\w.-]+|ERR!)(?P<rest>.*)$"
)
_CUDA = re.compile(r"CUDA (?:UMD )?Version:\s*(\S+)[\s|]")
_TITLES = re.compile(r"\|\s*(?:GPU|Nb\.)\s+(?:Name|Fan)\b")
_FIRST = re.compile(r"\s*(\d{1,3})\.?\s+(\S.*?)\s*$")
_MODE = re.compile(r"(.*?)\s+(On|Off|N/A|WDDM|TCC|MCDM|ERR!|Unknown Error)$")
_STATE = re.compile(r"\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S.*?)\s*/\s*(\S.*?)\s*$")
_MEMORY = re.compile(r"\s*(?:\d+%\s+)?(\d+) ?M(?:i)?B\s*/\s*(\d+) ?M(?:i)?B\s*$")
_PROCESS = re.compile(
    r"\s*(\d+)\s+(?:(\d+|N/A)\s+(\d+|N/A)\s+)?(\d+)\s+([A-Z](?:\+[A-Z])*)\s+(\S.*?)\s+(\d+MiB|N/A)\s*$"
)
_DEVICE = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*$")


@dataclass(frozen=True)
class Process:
    """``gpu_memory`` in MiB, None where the system doesn't tell."""

    gpu: int
    pid: int
    type: str
    name: str
    gpu_memory: int | float | None


@dataclass(frozen=True)
class MigDevice:
    """One MIG device; memory in MiB."""

    gpu: int
    gpu_instance: int
    compute_instance: int
    device: int
    memory_used: int | None
    memory_total: int | None


@dataclass
class Table:
    """One snapshot. ``closed``: the rule below the last GPU is there; ``ended``: so is the table
    of processes, and no more GPUs can follow.
    """

    driver: str | None = None
    cuda: str | None = None
    gpus: list[Gpu] = field(default_factory=list)
    mig_devices: list[MigDevice] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    closed: bool = False
    ended: bool = False
    brief: bool = False  # of nvidia-smi vgpu: a GPU has a line, of name, bus and use


def tables(found: Sequence[str]) -> list[Table]:
    """All tables in these lines, in order."""
    made: list[Table] = []
    part, block = "", list[list[str]]()
    for line in found:
        if head := HEAD.search(line):
            made.append(_headed(head))
            part, block = "gpus", []
        elif _TITLES.search(line):
            if not made or made[-1].gpus:  # its first lines are cut off
                made.append(Table())
            made[-1].brief = "ECC" not in line
            part, block = "gpus", []
        elif not made:
            continue
        elif "MIG devices:" in line:
            part = "mig"
        elif "Processes:" in line:
            part = "processes"
            made[-1].ended = True
        elif part == "gpus":
            block = _gpu_line(line, made[-1], block)
        elif part == "mig":
            _mig_line(line, made[-1])
        elif part == "processes":
            _process_line(line, made[-1])
    for table in made[-1:]:
        _finish(table, block)
    return made


def _headed(head: re.Match[str]) -> Table:
    cuda = _CUDA.search(head["rest"])
    table = Table(driver=word(head["driver"]), cuda=word(cuda[1]) if cuda else None)
    for name, text in (("Driver", head["driver"]), ("CUDA", cuda[1] if cuda else "")):
        if is_bad(text):
            table.notes.append(f"{name} Version is {text}")
    if not head["rest"].rstrip().endswith("|") and not cuda:
        table.driver = table.driver if head["rest"][:1].isspace() else None  # may be cut
    return table


def _cells(line: str) -> list[str]:
    """The texts between the bars; of a line that is cut, those that have both their bars."""
    return line.split("|")[1:-1]


def _gpu_line(line: str, table: Table, block: list[list[str]]) -> list[list[str]]:
    bare = line.strip()
    if bare.startswith("+-") or (bare.startswith("|-") and "+" in bare):
        if block:
            _finish(table, block)
            table.closed = True
        return []
    if bare.startswith("|"):
        cells = _cells(line)
        if len(cells) == 3 and _FIRST.match(cells[0]) and _names_device(cells[1]):
            _finish(table, block)  # a copy may lack the rule between two GPUs
            table.closed = False
            return [cells]
        if len(cells) == 3 and block:
            return [*block, cells]
    return block


def _names_device(cell: str) -> bool:
    return bool(BUS_ID.search(cell)) or "ERR!" in cell or "Unknown Error" in cell


def _finish(table: Table, block: list[list[str]]) -> None:
    if not block:
        return
    texts: dict[str, str | None] = {}
    first = _FIRST.match(block[0][0])
    texts["index"] = first[1] if first else None
    named = first[2] if first else ""
    mode = _MODE.match(named)
    texts["name"], persistence = (mode[1], mode[2]) if mode else (named, None)
    texts["persistence"] = persistence
    bus = BUS_ID.search(block[0][1])
    texts["bus_id"] = bus[0] if bus else None
    texts["ecc_uncorrected"] = block[0][2].strip()
    printed = {"Name": texts["name"] or "", "Persistence-M": persistence or ""}
    printed |= {"Bus-Id": block[0][1].strip().rpartition(" ")[0], "Disp.A": block[0][1].split()[-1]}
    printed["Volatile Uncorr. ECC"] = block[0][2].strip()
    if table.brief:
        texts["utilization"] = texts.pop("ecc_uncorrected")
        printed["GPU-Util"] = printed.pop("Volatile Uncorr. ECC")
    elif len(block) > 1:
        texts |= _state(block[1], printed)
    if len(block) > 2 and not table.brief:
        texts["mig"] = printed["MIG M."] = block[2][2].strip()
    made = gpu(texts, printed)
    table.gpus.append(made)
    table.notes += [f"GPU {made.index}: {name} is {made.fields[name]}" for name in made.bad]


def _state(cells: list[str], printed: dict[str, str]) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    if state := _STATE.match(cells[0]):
        keys = ("fan", "temperature", "performance_state", "power", "power_limit")
        texts |= dict(zip(keys, state.groups(), strict=True))
        titles = ("Fan", "Temp", "Perf", "Pwr:Usage", "Pwr:Cap")
        printed |= dict(zip(titles, state.groups(), strict=True))
    else:
        printed["Fan Temp Perf Pwr"] = "ERR!" if "ERR!" in cells[0] else cells[0].strip()
    memory = _MEMORY.match(cells[1])
    texts["memory_used"], texts["memory_total"] = memory.groups() if memory else (None, None)
    printed["Memory-Usage"] = cells[1].strip()
    use, _, compute = cells[2].strip().partition(" ")
    texts["utilization"], texts["compute_mode"] = use, compute.strip()
    printed["GPU-Util"], printed["Compute M."] = use, compute.strip()
    return texts


def _mig_line(line: str, table: Table) -> None:
    cells = _cells(line)
    if len(cells) == 4 and (device := _DEVICE.match(cells[0])):
        memory = _MEMORY.match(cells[1])
        used, total = (int(memory[1]), int(memory[2])) if memory else (None, None)
        ids = [int(text) for text in device.groups()]
        table.mig_devices.append(MigDevice(ids[0], ids[1], ids[2], ids[3], used, total))


def _process_line(line: str, table: Table) -> None:
    cells = _cells(line)
    if len(cells) == 1 and (row := _PROCESS.match(cells[0])):
        table.processes.append(Process(int(row[1]), int(row[4]), row[5], row[6], quantity(row[7])))
