#!/usr/bin/env python3
"""Build the lab's vLLM plugin wheel, with the same bytes on every machine and Python.

    build_wheel.py OUT_DIR

Prints ``NAME SHA256``. Only the standard library is used: a lock can hold the hash, because
nothing in the file depends on the clock, the zlib version or the build backend.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent / "vllm_cpu"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold
MODE = 0o100644 << 16


def metadata(project: dict[str, Any]) -> str:
    """Return core metadata 2.4 for a pyproject's ``project`` table."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Requires-Dist: {wanted}" for wanted in project["dependencies"]]
    return "\n".join(lines) + "\n"


def entry_points(project: dict[str, Any]) -> str:
    """Return ``entry_points.txt`` for a pyproject's ``project`` table."""
    blocks = []
    for group, names in sorted(project["entry-points"].items()):
        rows = [f"{name} = {target}" for name, target in sorted(names.items())]
        blocks.append("\n".join([f"[{group}]", *rows]) + "\n")
    return "\n".join(blocks)


def record_row(path: str, data: bytes) -> str:
    """Return one RECORD row: path, urlsafe base64 sha256 without padding, size in bytes."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}\n"


def wheel(source: Path) -> tuple[str, bytes]:
    """Return file name and content of the wheel of the project in ``source``.

    Raises:
        FileNotFoundError: the project or its package is not there.
        KeyError: the pyproject lacks a field that the metadata needs.
    """
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package = project["name"].replace("-", "_")
    info = f"{package}-{project['version']}.dist-info"
    modules = sorted((source / package).rglob("*.py"))
    if not modules:
        raise FileNotFoundError(f"{source / package} holds no Python module")
    files = {path.relative_to(source).as_posix(): path.read_bytes() for path in modules}
    files[f"{info}/METADATA"] = metadata(project).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: rackpin-lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/entry_points.txt"] = entry_points(project).encode()
    record = "".join(record_row(path, data) for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.create_system = 3  # Unix, whatever machine builds it
            entry.external_attr = MODE
            archive.writestr(entry, data)
    return f"{package}-{project['version']}-py3-none-any.whl", buffer.getvalue()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the lab's vLLM plugin wheel.")
    parser.add_argument("out", type=Path, help="directory to write the wheel to")
    out: Path = parser.parse_args(argv).out
    name, data = wheel(SOURCE)
    out.mkdir(parents=True, exist_ok=True)
    (out / name).write_bytes(data)
    print(name, hashlib.sha256(data).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
