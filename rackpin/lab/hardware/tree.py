"""A node's hardware as files for a host without Python: texts, tables, and the programs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rackpin.lab.hardware import answer as answers
from rackpin.lab.hardware import (
    dcgmi,
    ib,
    kernel,
    lspci,
    nccl,
    nccl_args,
    nccl_log,
    nccl_speed,
    smi,
    smi_csv,
    smi_query,
)
from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.parts import Answer, Parts
from rackpin.lab.hardware.sysfs import Content, Link
from rackpin.lab.hardware.sysfs import files as sys_files

HOME = "/usr/lib/rackpin-lab"
PROGRAMS = Path(__file__).with_name("programs")
LEVELS = ("k", "v", "vv")
Files = dict[str, str]


def tree(node: Node, home: str = HOME) -> dict[str, Content]:
    """Path below ``current/`` → text, bytes or link. Files in ``bin/`` are programs."""
    below_sys = {f"sys/{name}": content for name, content in sys_files(node).items()}
    return {**_texts(node, home), **below_sys}


def write(file: Path, content: Content) -> None:
    """One file or link of a tree; its directory is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Link):
        file.symlink_to(content.target)
    else:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())


def _program(tool: str, node: Node) -> Path:
    """Where kernel and modules follow from the disk, programs look there."""
    places = [PROGRAMS / "disk" / tool] if node.kernel else []
    places += [PROGRAMS / tool, PROGRAMS / "keyed"]
    return next(place for place in places if place.is_file())


def _texts(node: Node, home: str) -> Files:
    files = {"tools": "".join(f"{tool}\n" for tool in answers.tools(node))}
    for tool in answers.tools(node):
        text = _program(tool, node).read_text(encoding="utf-8")
        files[f"bin/{tool}"] = text.replace("@HOME@", home)
    files |= _below("kernel", _kernel(node))
    files |= _below("lspci", _lspci(node))
    files |= _below("proc/driver/nvidia", kernel.proc_driver(node))
    for tool in kernel.KEYED:
        found = {" ".join(words): kernel.KEYED[tool](node, words) for words in kernel.CALLS[tool]}
        found["@WORD@"] = kernel.KEYED[tool](node, ["@WORD@"])
        files |= _below(f"keyed/{tool}", _keyed(found))
    if node.nics:
        for tool in ib.TOOLS:
            calls = [words for name, words in ib.argvs(node) if name == tool]
            calls += [["-d", "@WORD@"]] if tool == "ibv_devinfo" else []
            found = {" ".join(words): ib.TOOLS[tool](node, words) for words in calls}
            found["@WORD@"] = ib.TOOLS[tool](node, ["@WORD@"])
            files |= _below(f"keyed/{tool}", _keyed(found))
    if node.driver is not None:
        found = {" ".join(words): dcgmi.answer(node, words) for words in dcgmi.argvs()}
        found["@WORD@"] = dcgmi.answer(node, ["@WORD@"])
        files |= _below("keyed/dcgmi", _keyed(found))
        files |= _below("nvidia-smi", _smi(node))
        files |= _below("nccl", _nccl(node))
        if node.fabric != "none":
            files |= _below("fabric", _fabric(node))
    return files


def frame(home: str = HOME) -> Files:
    """Path below ``home`` → the programs that put a tree in force."""
    names = ("apply", "driver", "generator")
    return {
        name: (PROGRAMS / name).read_text(encoding="utf-8").replace("@HOME@", home)
        for name in names
    }


def _below(directory: str, files: Files) -> Files:
    return {f"{directory}/{name}": text for name, text in files.items()}


def _table(rows: list[list[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def _keyed(found: dict[str, Answer]) -> Files:
    files = {"keys": _table([[key, str(number)] for number, key in enumerate(found)])}
    for number, one in enumerate(found.values()):
        files |= {f"{number}.out": one.stdout, f"{number}.err": one.stderr}
        files[f"{number}.code"] = f"{one.code}\n"
    return files


def _kernel(node: Node) -> Files:
    release = {"release": f"{node.kernel}\n"} if node.kernel else {}
    return {
        **release,
        "log": _table([[f"{seconds:.6f}", line] for seconds, line in kernel.log(node)]),
        "lsmod": kernel.lsmod(node).stdout,
        "modules": kernel.proc_modules(node),
        "modinfo": _table([[key, text] for key, text in kernel.modinfo(node).items()]),
    }


def _lspci(node: Node) -> Files:
    devices = lspci.devices(node)
    rows, files = [], {"usage": lspci.USAGE}
    for number, one in enumerate(devices):
        heads = [one.head(names, domain=True).partition(" ")[2] for names in ("", "n", "nn")]
        rows.append([one.bus, one.vendor, one.device, *heads])
        for level in LEVELS:
            lines = one.detail(level)
            files[f"detail/{number}.{level}"] = "".join(f"{line}\n" for line in lines)
    return {"devices": _table(rows), **files}


def _smi(node: Node) -> Files:
    cards = range(len(node.gpus))
    sections = [[name, one] for name, some in smi_query.SECTIONS.items() for one in some]
    files = {
        "usage": smi.USAGE,
        "keys": _table([[key, mode] for key, mode in smi.KEYS.items()]),
        "names": _table([[name, str(i)] for i in cards for name in smi.names_of(node, i)]),
        "all": "".join(f"{i}\n" for i in cards),
        "sections": _table(sections),
    }
    for table in smi_csv.QUERIES.values():
        known = smi_csv.columns(node, table)
        heads = [[name, head, str(place + 1)] for name, (head, place) in known.items()]
        files[f"csv/{table}.columns"] = _table(heads)
        files[f"csv/{table}.cells"] = _table(smi_csv.rows(node, table, units=True))
        files[f"csv/{table}.plain"] = _table(smi_csv.rows(node, table, units=False))
    if node.hang:
        files["hang"] = ""
    failed = smi.fatal(node)
    if failed is not None:
        files |= {"fatal": failed.stdout, "fatal.code": f"{failed.code}\n"}
    for index, gpu in enumerate(node.gpus):
        bad = smi.handle(gpu)
        if bad is not None:
            files |= {f"bad/{index}": bad.stdout, f"bad/{index}.code": f"{bad.code}\n"}
    for mode, render in smi.MODES.items():
        files |= _below(f"modes/{mode}", _parts(render(node)))
    return files


def _parts(parts: Parts) -> Files:
    each = {f"each/{number}": text for number, text in enumerate(parts.each)}
    return {"head": parts.head, "tail": parts.tail, **each}


def _fabric(node: Node) -> Files:
    files = {"log": kernel.fabric_log(node), "code": "1\n" if node.fabric == "mismatch" else "0\n"}
    return files if node.fabric == "off" else {**files, "enabled": ""}


def _nccl(node: Node) -> Files:
    model = node.preset.collective
    conf = {
        "version": node.preset.nccl_tests,
        "library": nccl.library(node),
        "nccl": node.preset.nccl,
        "cuda": node.cuda,
        "name": node.name,
        "card": node.card.name,
        "network": repr(nccl_speed.network_peak(node)),
        "loop": repr(nccl_speed.loop_peak(node)),
        "cards": str(len(node.gpus)),
        "why": nccl_speed.broken(node, len(node.gpus)),
        "half": str(model.half),
        "latency": repr(model.latency),
        "one_rank": repr(nccl_speed.ONE_RANK),
        "wrong": str(node.wrong),
        "limit_checked": str(nccl_speed.memory_limit(node, check=True)),
        "limit": str(nccl_speed.memory_limit(node, check=False)),
    }
    ranks = [
        [
            str(count),
            *(repr(nccl_speed.local_peak(node, count, nvls)) for nvls in (True, False)),
            nccl_speed.broken(node, count),
        ]
        for count in range(1, len(node.gpus) + 2)
    ]
    devices = []
    for gpu in node.gpus:
        domain, bus, device = gpu.slot.bus.partition(".")[0].split(":")
        devices.append([f"{domain}:{bus}:{device}", f"0x{bus}"])
    options = [
        [name, one] for short, (long, one) in nccl_args.OPTIONS.items() for name in (short, long)
    ]
    options += [[name, ""] for name in sorted(nccl_args.IGNORED)]
    defaults = {
        key: "" if value is None else str(value) for key, value in asdict(nccl_args.Wish()).items()
    }
    return {
        "conf": _table([[key, value] for key, value in conf.items()]),
        "ranks": _table(ranks),
        "devices": _table(devices),
        "options": _table(options),
        "defaults": _table([[key, value] for key, value in defaults.items()]),
        "units": _table([[unit, str(size)] for unit, size in nccl_args.UNITS.items()]),
        "types": _table([[name, str(size)] for name, size in nccl_args.TYPES.items()]),
        "columns": "#\n" + "".join(nccl.columns(node.preset.nccl_tests != "2.13.9")),
        "program.awk": (PROGRAMS / "all_reduce_perf.awk").read_text(encoding="utf-8"),
        "peers.pl": (PROGRAMS / "peers.pl").read_text(encoding="utf-8"),
        **{f"log.{kind}": nccl_log.template(node, kind) for kind in nccl_log.KINDS},
        **({"hang": ""} if node.rank_hang else {}),
    }
