"""Which NCCL the processes of our units have mapped, and what version those files say they are.

Runs as root with the stack's Python, standard library only. A deleted file is still read, through
the process that holds it. Of a process's environment only paths that decide what is loaded are
read.
"""

from __future__ import annotations

import json
import mmap
import re
from pathlib import Path
from typing import Any

PARAMS = "{}"  # filled in when the script is sent: see rackpin.checks.nccl_mapped
MARK = "RACKPIN_JSON "
LIBRARY = re.compile(r"/libnccl[^/]*\.so[^/]*$")
LINE = re.compile(r"^([0-9a-f]+-[0-9a-f]+) \S+ \S+ (\S+ \d+) +(/.*)$")
VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")  # as it greets in its log
PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "VLLM_NCCL_SO_PATH", "NCCL_NET_PLUGIN")


def version(proc: Path, area: str, path: str) -> str | None:
    """The version in a mapped file; None when it can't be read or says none."""
    for place in (proc / "map_files" / area, proc / "root" / path.lstrip("/")):
        try:
            with place.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
                found = VERSION.search(text)
                return found[1].decode() if found else None
        except (OSError, ValueError):
            continue
    return None


def libraries(proc: Path, known: dict[str, str | None]) -> list[dict[str, Any]]:
    """Files called libnccl… that a process has mapped, each once. ``known``: versions so far."""
    found: dict[str, dict[str, Any]] = {}
    for line in (proc / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
        match = LINE.match(line)
        if not match:
            continue
        area, inode, shown = match[1], match[2], match[3]
        path = shown.removesuffix(" (deleted)")
        if not LIBRARY.search(path) or f"{inode} {path}" in found:
            continue
        if inode not in known:
            known[inode] = version(proc, area, path)
        found[f"{inode} {path}"] = {
            "path": path, "deleted": shown != path, "version": known[inode],
        }  # fmt: skip
    return list(found.values())


def main_of_unit(proc: Path) -> bool:
    """Started by systemd itself."""
    status = (proc / "status").read_text(encoding="utf-8", errors="replace")
    return re.search(r"(?m)^PPid:\s+1$", status) is not None


def environment(proc: Path) -> dict[str, str]:
    parts = (proc / "environ").read_bytes().decode("utf-8", "replace").split("\0")
    pairs = (part.partition("=") for part in parts)
    return {name: value for name, _, value in pairs if name in PATHS and value}


def main() -> None:
    pattern = re.compile(json.loads(PARAMS)["units"])
    known: dict[str, str | None] = {}
    procs, unread = [], 0
    for proc in sorted(Path("/proc").iterdir()):
        if not proc.name.isdigit():
            continue
        try:
            unit = pattern.search((proc / "cgroup").read_text(encoding="utf-8", errors="replace"))
            if not unit:
                continue
            procs.append(
                {
                    "pid": int(proc.name),
                    "unit": f"{unit[1]}.service",
                    "comm": (proc / "comm").read_text(encoding="utf-8", errors="replace").strip(),
                    "main": main_of_unit(proc),
                    "libraries": libraries(proc, known),
                    "environment": environment(proc),
                }
            )
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        except OSError:
            unread += 1
    print(MARK + json.dumps({"procs": procs, "unread": unread}))


if __name__ == "__main__":
    main()
