"""The verbs of a lab: up, down, reboot, reset. One at a time per lab."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rackpin.lab import assemble, host, registry, ssh
from rackpin.lab.base import ensure_base
from rackpin.lab.description import LabDescription
from rackpin.lab.errors import LabError
from rackpin.lab.hardware import place
from rackpin.lab.machine import preflight
from rackpin.lab.state import HostState, LabState, remembered, state_root

Say = Callable[[str], None]
Step = Callable[[LabState], None]
LOCK_WAIT_S = 300.0
READY_S = 90.0
REBOOT_S = 300.0  # units may take their stop timeouts before the host goes down


def _quiet(_text: str) -> None:
    return


def _nothing(_lab: LabState) -> None:
    return


class Progress:
    """Progress lines with the seconds since the start."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f}s  {text}")


def up(
    description: LabDescription,
    name: str | None = None,
    say: Say = _quiet,
    finish: Step = _nothing,
    undo: Step = _nothing,
) -> LabState:
    """Bring a lab up and wait until every host is ready. Running it again changes nothing.

    ``name`` overrides the description's; ``finish`` is a last step, ``undo`` its opposite.
    A failure or an interrupt, also in ``finish``, takes down what this call began and only
    that. Raises LabError with all that is missing on this control machine.
    """
    name = name or description.name
    say = Progress(say)
    missing = preflight()
    if missing:
        raise LabError("this machine can't run a lab:", *missing)
    with registry.exclusive(name, LOCK_WAIT_S, say):
        base = ensure_base(description, say)
        before = remembered(name)
        directory = state_root() / name
        preferred = [before.subnet] if before else []
        preferred += [description.subnet] if description.subnet else []
        with_fabric = any(h.nics == 2 for h in description.hosts)
        addresses, began = registry.claim(
            name, directory, preferred, with_fabric, description.outbound
        )
        lab = assemble.plan(description, name, directory, base, addresses)
        booted: list[HostState] = []
        try:
            _stop_others(lab, before, say)
            assemble.make_keys(lab)
            for one in lab.hosts:
                if one.power not in ("running", "booting"):
                    booted.append(one)
                    say(f"booting {one.name} at {one.address}")
                    fresh = assemble.boot(lab, one)
                    say(f"{one.name} boots " + ("bare" if fresh else "from its disk"))
            ssh.wait_ready(lab, lab.hosts, READY_S, say=say)
            for one in lab.hosts:
                if one not in booted and one.hardware is not None:
                    _put_hardware(lab, one, say)
            finish(lab)
            lab.save()
        except BaseException:
            say("failed or interrupted: taking down what was begun")
            if began:
                undo(lab)
            host.stop(booted, orderly=False)
            if began:
                registry.release(name)
                _mark_down(name)
            raise
    say(f"lab {name} is up, " + (f"{len(booted)} host(s) booted" if booted else "as it was"))
    return lab


def _stop_others(lab: LabState, before: LabState | None, say: Say) -> None:
    """Stop hosts that left the description, or whose address changed."""
    now = {(h.name, h.address, h.fabric_address) for h in lab.hosts}
    gone = [
        one
        for one in (before.hosts if before else [])
        if (one.name, one.address, one.fabric_address) not in now and one.power != "off"
    ]
    if gone:
        names = ", ".join(one.name for one in gone)
        say(f"stopping {names}: no longer described, or at another address")
        host.stop(gone, orderly=True)


def _put_hardware(lab: LabState, one: HostState, say: Say) -> None:
    """Let a running host show the hardware and faults it is to have."""
    if place.put(host.root_of(one), one):
        ssh.ask(lab, one, place.APPLY_NOW)
        shown = ", ".join(place.wished(one)) or "no fault"
        say(f"{one.name} has the hardware {one.hardware} with {shown}")


def fault(lab: LabState, one: HostState, faults: Sequence[str], say: Say = _quiet) -> None:
    """Give a host just these faults of its simulated hardware, at once and for later boots.

    LabError when one of them can't be had, or the host has no simulated hardware.
    """
    say = Progress(say)
    with registry.exclusive(lab.name, LOCK_WAIT_S, say):
        place.remember_faults(one, list(faults))
        if one.power == "running":
            _put_hardware(lab, one, say)
        else:
            say(f"{one.name} is {one.power}: it has them from its next boot on")


def _mark_down(name: str) -> None:
    try:
        lab = remembered(name)
    except LabError:  # another version's record: it says up to nobody, and `up` refuses it
        return
    if lab is not None:
        lab.model_copy(update={"state": "down"}).save()


def down(name: str, purge: bool = False, say: Say = _quiet) -> None:
    """Stop every host and leave no process, mount, link or rule. ``purge``: no disk either.

    Works from what is there, not from what was recorded; running it again is fine.
    """
    say = Progress(say)
    with registry.exclusive(name, LOCK_WAIT_S, say):
        directory = state_root() / name
        hosts = _hosts_on_disk(name, directory)
        if hosts:
            say(f"stopping {', '.join(h.name for h in hosts)}")
            host.stop(hosts, orderly=not purge)
        registry.release(name)
        _mark_down(name)
        if purge and directory.exists():
            shutil.rmtree(directory)
    say(f"lab {name} is down, its disks are " + ("deleted" if purge else "kept"))


def _hosts_on_disk(name: str, directory: Path) -> list[HostState]:
    """Every host that has a directory, described or not."""
    found = sorted((directory / "hosts").iterdir()) if (directory / "hosts").is_dir() else []
    return [
        HostState(
            name=path.name,
            address="",
            groups=[],
            sku="",
            machine=f"{name}-{path.name}",
            directory=path,
        )
        for path in found
    ]


def reboot(lab: LabState, one: HostState, say: Say = _quiet) -> str:
    """Reboot a host from the inside and wait until it is ready again; gives the new boot id."""
    say = Progress(say)
    before = ssh.boot_id(lab, one)
    say(f"{one.name}: systemctl reboot")
    # the connection may die before the command has answered
    ssh.ask(lab, one, "systemctl reboot", check=False)
    return ssh.wait_ready(lab, [one], REBOOT_S, {one.name: before}, say)[one.name]


def reset(
    lab: LabState, hosts: Sequence[HostState], new_hostkey: bool = False, say: Say = _quiet
) -> None:
    """Give hosts a fresh disk and boot them; their ssh host keys stay unless ``new_hostkey``."""
    say = Progress(say)
    with registry.exclusive(lab.name, LOCK_WAIT_S, say):
        say(f"wiping {', '.join(one.name for one in hosts)}")
        host.stop(hosts, orderly=False)
        for one in hosts:
            host.delete_disk(one)
            if new_hostkey:
                assemble.forget_host_key(lab, one)
        assemble.make_keys(lab)
        for one in hosts:
            assemble.boot(lab, one)
        ssh.wait_ready(lab, hosts, READY_S, say=say)
