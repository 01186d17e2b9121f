"""``rackpin drain``: an engine gets no new request; whatever runs on it comes to its end."""

from __future__ import annotations

import getpass
import time
from typing import NoReturn

import click

from rackpin.fleet.state import Drain, FleetState, FleetStateError, now
from rackpin.inventory import Fleet, Instance
from rackpin.inventory_open import Opened, OpenError, opened
from rackpin.options import inventory_data

REFUSED, WRONG = 1, 2
WAIT_S = 600
LINES = 25  # of a failed run of the stage, its last ones


def stop(message: str, code: int = WRONG) -> NoReturn:
    click.echo(f"rackpin drain: {message}", err=True)
    raise SystemExit(code)


@click.command("drain")
@click.argument("engine", required=False)
@click.option("-i", "--inventory", envvar="RACKPIN_INVENTORY",
              type=click.Path(exists=True, dir_okay=False),
              help="The inventory FILE.py of the fleet ($RACKPIN_INVENTORY).")  # fmt: skip
@inventory_data
@click.option("--undo", is_flag=True, help="Let the engine have requests again.")
@click.option("--reason", default="", help="Why, for whoever finds it.")
@click.option("--owner", default=getpass.getuser, help="Who may undo it (default: you).")
@click.option("--force", is_flag=True, help="Undo somebody else's; drain the last of a model.")
@click.option("--wait", "wait_s", default=WAIT_S, show_default=True, type=click.IntRange(min=0),
              help="Seconds until what is in flight must have ended; 0 doesn't wait.")  # fmt: skip
def drain_command(
    engine: str | None,
    inventory: str | None,
    data: tuple[str, ...],
    group_data: tuple[str, ...],
    undo: bool,
    reason: str,
    owner: str,
    force: bool,
    wait_s: int,
) -> None:
    """Take ENGINE out of the gateway and wait until nothing is in flight on it, or take it back.

    Without ENGINE, list who is drained. The engine itself goes on running, and after a reboot too.
    Exit status: 0 done, 1 refused, not told to every gateway, or still busy, 2 wrong usage.
    """
    from rackpin.fleet import quarantine
    from rackpin.gateway import drain

    try:
        found = opened(inventory, data, group_data)
        state = quarantine.state_of(found.fleet)
        if engine is None:
            if undo or reason:
                stop("which ENGINE?")
            show(state)
            return
        instance = change(found, state, engine, undo, Drain(
            owner=owner, reason=reason, since=now()), force)  # fmt: skip
        gateways = [node.name for node in found.fleet.gateways]
        told = drain.tell(found.file, data, group_data, gateways, state.turn)
        if not told.good:
            click.echo("\n".join(told.text.splitlines()[-LINES:]), err=True)
            stop(f"noted, but not every gateway ({', '.join(gateways)}) was told; see above, then "
                 "run it again", REFUSED)  # fmt: skip
        if undo or instance is None:
            click.echo(f"{engine} gets requests again from {', '.join(gateways)}")
            return
        click.echo(f"{engine} gets no new request from {', '.join(gateways)}")
        if wait_s:
            settle(found, instance, wait_s)
    except (OpenError, FleetStateError) as error:
        stop(str(error))


def show(state: FleetState) -> None:
    for name, entry in state.drained().items():
        click.echo(f"{name}: {entry}")
    if not state.drained():
        click.echo("no engine is drained")


def change(
    found: Opened, state: FleetState, name: str, undo: bool, wish: Drain, force: bool
) -> Instance | None:
    """Note it. None for an engine that the inventory doesn't have any more."""
    fleet = found.fleet
    entry = state.drained().get(name)
    instance = next((i for i in fleet.config.instances if i.name == name), None)
    if not fleet.gateways:
        stop("no node of the group `gateway` serves in this fleet: clients ask the engines "
             "themselves, and nobody could be told", REFUSED)  # fmt: skip
    if instance is None and not (undo and entry):
        names = ", ".join(i.name for i in fleet.config.instances) or "none"
        stop(f"{found.file}: has no engine {name}; it has {names}")
    if entry and entry.owner != wish.owner and not force:
        stop(f"{name} is drained by {entry}; only {entry.owner} changes that, or --force", REFUSED)
    if undo:
        state.drain(name, None)
        return instance
    if instance and not force and (last := last_of(fleet, instance)):
        stop(last, REFUSED)
    if entry is None or entry.owner != wish.owner or wish.reason not in ("", entry.reason):
        state.drain(name, wish.model_copy(update={"reason": wish.reason or "no reason given"}))
    return instance


def last_of(fleet: Fleet, instance: Instance) -> str:
    """Why draining it would leave a model without an engine; empty when it wouldn't."""
    from rackpin.gateway.routes import routes

    route = next(r for r in routes(fleet) if r.name == instance.served_name)
    others = [s.instance for s in route.active if s.instance != instance.name]
    if others:
        return ""
    return (
        f"{instance.name} is the last engine of {route.name} that gets requests: every client "
        "would get 502; --force if that is meant"
    )


def settle(found: Opened, instance: Instance, wait_s: int) -> None:
    from rackpin.gateway import drain
    from rackpin.verify.connect import Connections

    began = time.monotonic()
    with Connections(found.made) as connections:
        quiet, text = drain.wait_quiet(connections.ask, found.fleet, instance, wait_s, click.echo)
    took = time.monotonic() - began
    back = f"rackpin drain {instance.name} --undo"
    if not quiet:
        stop(f"{instance.name} is not quiet after {took:.0f} s: {text}. It stays drained; run it "
             f"again to wait on, or take it back: {back}", REFUSED)  # fmt: skip
    click.echo(f"{instance.name}: nothing in flight after {took:.1f} s ({text})")
    click.echo(f"Take it back with: {back}")
