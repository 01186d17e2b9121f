"""The fabric stage's operations: what files alone don't do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from rackpin import deadlines
from rackpin.desired import OWNED_MARK, Desired
from rackpin.fabric import kernel
from rackpin.fabric.gpudirect import PEERMEM
from rackpin.fabric.rebuild import needed
from rackpin.facts import ABSENT, Units
from rackpin.facts_fabric import FabricFact
from rackpin.gdrcopy.build import Build, complete, script
from rackpin.isolated import operation
from rackpin.operations import states
from rackpin.stack.hostpins import RdmaPin


@operation()
def gone(paths: tuple[str, ...], stage: Desired) -> Iterator[Any]:
    """
    Remove files of rackpin's own that this node doesn't need any more; others' files stay.

    + paths: every file that the stage may own
    + stage: the stage, whose files stay
    """
    wanted = {file.path for file in stage.files}
    now = states(stage)
    old = [
        path
        for path in paths
        if path not in wanted and OWNED_MARK in now.get(path, ABSENT).first_lines
    ]
    if not old:
        host.noop("no file of an earlier wish")
        return
    yield "rm -f -- " + " ".join(map(shlex.quote, old))


@operation()
def rebuilt(pin: RdmaPin | None) -> Iterator[Any]:
    """
    Build kernel modules again, and prove that they are there for the running kernel.

    + pin: the network's software of the lock

    What is loaded stays loaded: the new modules count from the next boot.
    """
    fabric = host.get_fact(FabricFact)  # packages of this run may have moved something
    todo = needed(fabric, pin) if fabric else []
    if not todo:
        host.noop("modules fit the running kernel")
        return
    for item in todo:
        if host.state.is_executing:
            host.log(f"fabric: {item.why}")
        log = "tail -n 30 /var/lib/dkms/*/*/build/make.log"
        prove = f"modinfo -k $(uname -r) {item.module} >/dev/null"
        text = f"({item.command}) && {prove} || {{ {log} >&2 2>/dev/null; exit 1; }}"
        yield StringCommand(text, _timeout=deadlines.DKMS_S)


@operation()
def gdrcopy_built(build: Build, stage: Desired) -> Iterator[Any]:
    """
    gdrcopy's module, by DKMS for the running kernel, and its library.

    + build: source, driver, compiler
    + stage: the stage whose paths include the mark of a complete build and the library's name
    """
    fabric = host.get_fact(FabricFact)  # a stage before may have brought the driver
    now = states(stage)
    marked = now.get(build.mark, ABSENT).kind == "file"
    if fabric and complete(build, fabric, marked, now.get(build.link, ABSENT).target):
        host.noop(f"gdrcopy {build.source.version} is built for {build.driver}/{build.version}")
        return
    yield StringCommand("sh", "-s", _stdin=script(build), _timeout=deadlines.DKMS_S)


@operation()
def peermem_loaded(wanted: bool) -> Iterator[Any]:
    """
    Load nvidia-peermem where it is the way into a card's memory and the driver is loaded.

    + wanted: it is the way on this node
    """
    fabric = host.get_fact(FabricFact)  # a stage before may have brought the driver
    modules = fabric.modules if fabric else frozenset()
    if not wanted or PEERMEM in modules or "nvidia" not in modules:
        host.noop("nvidia-peermem is loaded, or has nothing to do here")
        return
    yield "modprobe nvidia-peermem"


@operation()
def acs_off(unit: str) -> Iterator[Any]:
    """
    Run the unit again where bridges have access control on although it has run.

    + unit: its name
    """
    fabric = host.get_fact(FabricFact)
    bridges = kernel.acs_on(fabric) if fabric else []
    state = host.get_fact(Units, names=(unit,)).get(unit, {}).get("ActiveState")
    if not bridges or state != "active":
        host.noop("no bridge has ACS on, or the unit is only now started")
        return
    yield f"systemctl restart {shlex.quote(unit)}"
