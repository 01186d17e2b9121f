"""What of gdrcopy is built on a node, and the script that builds it. Pure.

The library lies at a path that carries a digest of everything that makes it and the module; the
module's source in /usr/src, where DKMS looks when a kernel comes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from rackpin import deadlines, layout
from rackpin.bundle.contents import source_path
from rackpin.driver.table import table
from rackpin.fabric.model import Fabric
from rackpin.fabric.rebuild import status
from rackpin.nccltests.build import fetch_program
from rackpin.stack.items import Source
from rackpin.stack.lock import Lock, StackError

ROOT = f"{layout.ROOT}/gdrcopy"
SOURCE = "gdrcopy"
MODULE = "gdrdrv"
LIBRARIES = "/usr/local/lib"  # the loader looks there by itself
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Build:
    """gdrcopy for one driver: ``driver`` and ``version`` are DKMS's words for it."""

    source: Source
    url: str
    driver: str  # nvidia-current
    version: str  # 535.261.03
    compiler: str = ""  # gcc-12; empty: the OS's default
    root: str = ROOT
    libraries: str = LIBRARIES
    usr_src: str = "/usr/src"

    @property
    def digest(self) -> str:
        """sha256 of what makes module and library (64 hex); not where the source comes from."""
        parts = [
            self.source.sha256, self.source.version, self.driver, self.version, self.compiler,
            self.libraries, (_HERE / "node_build.sh").read_text(encoding="utf-8"),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def place(self) -> str:
        return f"{self.root}/{self.digest[:12]}"

    @property
    def mark(self) -> str:
        return f"{self.place}/.complete"

    @property
    def link(self) -> str:
        """What NCCL opens by name, by way of the loader's own directory."""
        return f"{self.libraries}/libgdrapi.so.{self.source.version.split('.')[0]}"


def build_of(lock: Lock, bundle: str | None) -> tuple[Build | None, str]:
    """The build of this lock's nodes, or why none is made; neither where gdrcopy isn't pinned."""
    pin = lock.host.driver
    if SOURCE not in lock.sources:
        return None, ""
    if pin is None:
        return None, "the lock has gdrcopy and no driver to build it for"
    try:
        source = lock.require_source(SOURCE)
    except StackError as error:
        return None, str(error)
    url = f"{bundle.rstrip('/')}/{source_path(SOURCE, source)}" if bundle else source.url
    kernel = lock.host.kernel
    module = str(table()["module"][pin.source][pin.flavour])
    return Build(source, url, module, pin.version, kernel.compiler if kernel else ""), ""


def complete(build: Build, fabric: Fabric, marked: bool, linked: str) -> bool:
    """Whether nothing is to be built: mark, library, and the module for the running kernel.

    ``linked``: where the library's name leads to. Any other version that DKMS knows is too many.
    """
    rows = [row for row in status(fabric.dkms.status) if row[0] == MODULE]
    mine = (MODULE, build.source.version, fabric.kernel, "installed")
    others = [row for row in rows if row[1] != build.source.version]
    return marked and linked.startswith(f"{build.place}/") and mine in rows and not others


def script(build: Build) -> str:
    """The POSIX sh script (run as root) that builds for the running kernel; last line ``built``."""
    values = {
        "root": build.root,
        "place": build.place,
        "digest": build.digest,
        "url": build.url,
        "sha256": build.source.sha256,
        "version": build.source.version,
        "driver": build.driver,
        "driver_version": build.version,
        "compiler": build.compiler or "gcc",
        "libraries": build.libraries,
        "usr_src": build.usr_src,
        "backups": layout.BACKUPS,
        "lock_wait": str(deadlines.DKMS_S),
        "fetch_deadline": str(deadlines.FETCH_S),
    }
    head = "".join(f"{name}={quote(value)}\n" for name, value in values.items())
    body = (_HERE / "node_build.sh").read_text(encoding="utf-8")
    return f"#!/bin/sh\nset -eu\n{head}{body.replace('@FETCH@' + chr(10), fetch_program())}"
