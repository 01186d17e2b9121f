"""What is built where, and the script that builds it. Pure.

A build lies at a path that carries a digest of everything that makes it; so it is built once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Literal

from rackpin import deadlines, layout
from rackpin.bundle.contents import source_path
from rackpin.stack.environment import env_path
from rackpin.stack.items import Source
from rackpin.stack.lock import Lock, StackError

ROOT = f"{layout.ROOT}/nccl-tests"
SOURCE = "nccl-tests"
MPI_HOME = "/usr/lib/x86_64-linux-gnu/openmpi"
MPI_PACKAGE = "libopenmpi-dev"
HOST_LIBRARY = "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
_HERE = Path(__file__).resolve().parent
Kind = Literal["host", "engine"]


@dataclass(frozen=True)
class Build:
    """nccl-tests against one NCCL: ``nccl`` has its headers, ``library`` is the file itself."""

    kind: Kind
    source: Source
    url: str
    cuda: str  # /usr/local/cuda-12.2
    nccl: str
    library: str
    version: str  # of NCCL
    mpi: bool = False
    gencode: str = ""  # for nvcc; empty: what nccl-tests take for this toolkit
    root: str = ROOT

    @property
    def digest(self) -> str:
        """sha256 of what makes the programs (64 hex); where they are fetched from is not in it."""
        parts = [
            self.kind, self.source.sha256, self.cuda, self.library, self.version,
            self.mpi, self.gencode, (_HERE / "node_build.sh").read_text(encoding="utf-8"),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def place(self) -> str:
        return f"{self.root}/{self.kind}-{self.digest[:12]}"

    @property
    def mark(self) -> str:
        return f"{self.place}/.complete"

    @property
    def link(self) -> str:
        """Leads to the build in use: ``/opt/rackpin/nccl-tests/engine``."""
        return f"{self.root}/{self.kind}"


def builds(lock: Lock, os_key: str, bundle: str | None) -> tuple[list[Build], list[str]]:
    """Every build of this lock's nodes, and why one is not made."""
    cuda = lock.host.cuda
    if SOURCE not in lock.sources:
        return [], ["the lock has no source of nccl-tests"]
    if cuda is None:
        return [], ["the lock has no CUDA toolkit to build nccl-tests with"]
    try:
        source = lock.require_source(SOURCE)
    except StackError as error:
        return [], [str(error)]
    url = f"{bundle.rstrip('/')}/{source_path(SOURCE, source)}" if bundle else source.url
    mpi = any(package.name == MPI_PACKAGE for package in lock.packages.get(os_key, []))
    home = f"/usr/local/cuda-{cuda.minor}"
    made, notes = [], []
    if pin := lock.host.nccl.host:
        made.append(Build("host", source, url, home, "/usr", HOST_LIBRARY, pin.version, mpi))
    else:
        notes.append("the lock has no NCCL for the host; tests of the engine's count")
    wheel = next((n for n in lock.dists if n.startswith("nvidia-nccl-cu")), None)
    if wheel:
        nccl = f"{env_path(lock)}/lib/python{lock.python}/site-packages/nvidia/nccl"
        library = f"{nccl}/lib/libnccl.so.2"
        made.append(Build("engine", source, url, home, nccl, library, lock.dists[wheel], mpi))
    else:
        notes.append("the lock's environment has no NCCL: no tests of the engine's")
    return made, notes


def script(build: Build) -> str:
    """The POSIX sh script (run as root) that builds, or finds it built.

    Its last line is ``complete: PATH`` or ``built: PATH``. Nothing half built is left.
    """
    values = {
        "kind": build.kind,
        "root": build.root,
        "place": build.place,
        "digest": build.digest,
        "url": build.url,
        "sha256": build.source.sha256,
        "cuda": build.cuda,
        "nccl": build.nccl,
        "library": build.library,
        "mpi": str(int(build.mpi)),
        "mpi_home": MPI_HOME,
        "gencode": build.gencode,
        "lock_wait": str(deadlines.BUILD_S),
        "fetch_deadline": str(deadlines.FETCH_S),
    }
    head = "".join(f"{name}={quote(value)}\n" for name, value in values.items())
    body = (_HERE / "node_build.sh").read_text(encoding="utf-8")
    return f"#!/bin/sh\nset -eu\n{head}{body.replace('@FETCH@' + chr(10), fetch_program())}"


def fetch_program() -> str:
    """The Python program that fetches one file on a bare node and proves its sha256."""
    return (_HERE / "node_fetch.py").read_text(encoding="utf-8")
