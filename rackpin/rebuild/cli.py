"""``rackpin rebuild``: a node after a swap of hardware or a reinstall, back into service."""

from __future__ import annotations

import getpass
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from rackpin import deadlines
from rackpin.child import pyinfra_argv
from rackpin.options import inventory_data

REFUSED, WRONG, INTERRUPTED = 1, 2, 130


def stop(message: str, code: int = WRONG) -> NoReturn:
    click.echo(f"rackpin rebuild: {message}", err=True)
    raise SystemExit(code)


@click.command("rebuild")
@click.argument("node")
@click.option("-i", "--inventory", envvar="RACKPIN_INVENTORY",
              type=click.Path(exists=True, dir_okay=False),
              help="The inventory FILE.py of the fleet ($RACKPIN_INVENTORY).")  # fmt: skip
@inventory_data
@click.option("--dry", is_flag=True, help="Show all of it, change nothing anywhere.")
@click.option("--accept-host-key", "accept", default="", metavar="SHA256:…",
              help="The fingerprint of its new host key, compared at the console.")  # fmt: skip
@click.option("--stop", "stop_units", is_flag=True, help="Stop Ray and the engines that run on it.")
@click.option("--owner", default=getpass.getuser, help="Who keeps it out (default: you).")
@click.option("--force", is_flag=True, help="Put your quarantine in the place of somebody else's.")
def rebuild_command(
    node: str,
    inventory: str | None,
    data: tuple[str, ...],
    group_data: tuple[str, ...],
    dry: bool,
    accept: str,
    stop_units: bool,
    owner: str,
    force: bool,
) -> None:
    """Put NODE back after a swap of hardware or a reinstall.

    Quarantine, host key, what differs from its record, every stage, verify alone and in pairs,
    then Ray and the engines. Stops at what isn't good; a second call goes on from there.
    Exit status: 0 it is back (or was never away), 1 it is not, 2 wrong usage, 130 interrupted.
    """
    from filelock import FileLock, Timeout
    from rich.console import Console

    from rackpin.findings import Level
    from rackpin.fleet import quarantine
    from rackpin.fleet.state import FleetStateError
    from rackpin.gateway import drain
    from rackpin.inventory import Fleet
    from rackpin.inventory_open import OpenError, opened
    from rackpin.inventory_problems import InventoryError
    from rackpin.rebuild import hostkey
    from rackpin.rebuild.asking import Verdict, asked
    from rackpin.rebuild.begin import Refused
    from rackpin.rebuild.look import LookError
    from rackpin.rebuild.run import Rebuild
    from rackpin.report.store import ReportError
    from rackpin.verify.connect import Connections

    if not Path("deploys/rebuild.py").is_file():
        stop("deploys/rebuild.py is not below this directory; call it where pyinfra is called")
    try:
        found = opened(inventory, data, group_data, raw=True)
        if node not in found.fleet.nodes:
            stop(f"{found.file}: has no host {node}; it has {', '.join(found.fleet.nodes)}")
        state = quarantine.state_of(found.fleet)
        console = Console(stderr=True)

        def reach() -> Connections:
            return Connections(found.made)

        def key() -> hostkey.HostKey:
            with reach() as ways:
                names = (node, found.fleet.nodes[node].address)
                return hostkey.probe(ways.state.inventory.get_host(node).connector, names)

        def ask(fleet: Fleet, partner: str) -> Verdict:
            level: Level = "pair" if partner else "node"
            return asked(fleet, found.lock, node, reach, say, level, partner)

        def say(text: str) -> None:
            click.echo(text, err=True)

        def tell() -> drain.Told:
            gateways = [one.name for one in quarantine.applied(found.fleet).gateways]
            return drain.tell(found.file, data, group_data, gateways, state.turn)

        one = Rebuild(
            node, found.fleet, found.lock, found.file, state, reach, key,
            partial(deploy, found.file, node, data, group_data), ask, tell, owner, accept, force,
            stop_units, console,
        )  # fmt: skip
        if dry:
            raise SystemExit(one.dry())
        (state.directory / "nodes").mkdir(parents=True, exist_ok=True)
        with FileLock(state.directory / "nodes" / f".{node}.rebuild.lock", timeout=0):
            code = one.go()
    except Timeout:
        stop(f"{node} is being rebuilt by another rackpin just now", REFUSED)
    except (Refused, LookError, hostkey.HostKeyError, FleetStateError, ReportError) as error:
        stop(str(error), REFUSED)
    except (OpenError, InventoryError) as error:
        stop(str(error))
    except KeyboardInterrupt:
        stop(f"interrupted; rackpin rebuild {node} goes on from there", INTERRUPTED)
    raise SystemExit(code)


def deploy(
    file: str, node: str, data: Sequence[str], group_data: Sequence[str], name: str, *flags: str
) -> int:
    """One deploy of the project for this node only, its output passed through; its exit status."""
    words = pyinfra_argv(file, f"deploys/{name}.py", [node], data, group_data, flags)
    sys.stdout.flush()
    process = subprocess.Popen(words)
    try:
        return process.wait()
    except KeyboardInterrupt:
        # the terminal interrupted pyinfra too: it says what it did
        try:
            process.wait(deadlines.INTERRUPT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
