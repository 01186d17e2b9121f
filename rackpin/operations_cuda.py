"""The cuda stage's operations."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from pyinfra import host

from rackpin import layout
from rackpin.facts_cuda import COMPAT, CudaFact
from rackpin.isolated import operation


@operation()
def toolkit_link(link: str, home: str) -> Iterator[Any]:
    """
    ``/usr/local/cuda`` leads to the pinned toolkit; by update-alternatives where that has it.

    + link: /usr/local/cuda
    + home: the toolkit's own directory
    """
    found = host.get_fact(CudaFact)
    if found is not None and found.link == home and found.choice in ("", home):
        host.noop(f"{link} is {home}")
        return
    if found is not None and found.choice:
        yield f"update-alternatives --set cuda {shlex.quote(home)}"
        return
    # Without such a group the link is somebody's own; a directory there is not ours to move.
    yield (
        f"if [ -e {link} ] && ! [ -L {link} ]; then "
        f"echo '{link} is a directory: move it away, then run again' >&2; exit 1; fi; "
        f"if update-alternatives --query cuda >/dev/null 2>&1; then "
        f"update-alternatives --set cuda {shlex.quote(home)}; "
        f"else ln -sfn {shlex.quote(home)} {link}; fi"
    )


@operation()
def compat_off(allowed: bool) -> Iterator[Any]:
    """
    Switch off linker entries for cuda-compat: its libcuda would be loaded instead of the driver's.

    + allowed: the lock itself has a cuda-compat

    The line becomes a comment; the file as it was is kept under /var/lib/rackpin/backup.
    """
    found = host.get_fact(CudaFact)
    files = sorted({file for file, _ in found.compat}) if found else []
    if allowed or not files:
        host.noop("no entry for cuda-compat that the lock doesn't ask for")
        return
    steps = ["set -e", "umask 022"]
    for file in files:
        path, backup = shlex.quote(file), shlex.quote(f"{layout.BACKUPS}{file}")
        steps += [
            f"mkdir -p $(dirname {backup})",
            f"cp -a --backup=numbered {path} {backup}",
            f"sed -i -E 's|({COMPAT}.*)|# switched off by rackpin: \\1|' {path}",
        ]
    yield "; ".join([*steps, "ldconfig"])
