"""``rackpin quarantine``: who is kept out, by whom and why."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click

from rackpin.fleet.state import FleetStateError, Quarantine, now
from rackpin.inventory_open import Opened, OpenError, opened
from rackpin.options import inventory_data

if TYPE_CHECKING:
    from rackpin.gateway.drain import Told

REFUSED, WRONG = 1, 2
LINES = 25  # of a failed run of the gateway stage, its last ones


def stop(message: str, code: int = WRONG) -> NoReturn:
    click.echo(f"rackpin quarantine: {message}", err=True)
    raise SystemExit(code)


@click.command("quarantine")
@click.argument("node", required=False)
@click.option("-i", "--inventory", envvar="RACKPIN_INVENTORY",
              type=click.Path(exists=True, dir_okay=False),
              help="The inventory FILE.py of the fleet ($RACKPIN_INVENTORY).")  # fmt: skip
@inventory_data
@click.option("--reason", help="Why the node is kept out; needed to put it in.")
@click.option("--owner", default=getpass.getuser, help="Who may lift it (default: you).")
@click.option("--evidence", default="", help="A report, a ticket, a line of a log.")
@click.option("--lift", is_flag=True, help="Let the node in again.")
@click.option("--force", is_flag=True, help="Lift somebody else's, or put it in twice.")
def quarantine_command(
    node: str | None,
    inventory: str | None,
    data: tuple[str, ...],
    group_data: tuple[str, ...],
    reason: str | None,
    owner: str,
    evidence: str,
    lift: bool,
    force: bool,
) -> None:
    """Keep NODE out of service, or let it in again; without NODE, list who is kept out.

    A quarantined node gets every stage but starts neither Ray nor an engine, after a reboot
    neither; what runs there isn't stopped. Gateways are told at once which engines it takes out.
    Exit status: 0 done, 1 refused or not told to every gateway, 2 wrong usage.
    """
    from rackpin.fleet import quarantine as rules
    from rackpin.gateway import drain

    def tell(gateways: list[str]) -> Told:
        return drain.tell(found.file, data, group_data, gateways, rules.state_of(found.fleet).turn)

    try:
        found = opened(inventory, data, group_data, raw=True)
        state = rules.state_of(found.fleet)
        entries = state.quarantined()
        if node is None:
            if lift or reason:
                stop("which NODE?")
            show(entries, rules.repeated(state, entries))
            return
        if node not in found.fleet.nodes:
            stop(f"{found.file}: has no host {node}; it has {', '.join(found.fleet.nodes)}")
        entry = entries.get(node)
        if lift:
            if entry is None:
                click.echo(f"{node} is not quarantined")
                return
            if entry.owner != owner and not force:
                stop(f"{node} is kept out by {entry}; only {entry.owner} lifts it, or --force",
                     REFUSED)  # fmt: skip
            state.let_in(node)
            told = mark(found, node, "")
            click.echo(f"{node} is let in; run site.py: it is verified before it serves. {told}")
            tell_gateways(found, node, tell)
            return
        if not reason:
            stop("say why, with --reason: the next person on call reads it")
        if found.fleet.nodes[node].is_head:
            stop(f"{node} is the Ray head: no engine over several nodes runs without it; make "
                 "another node the head first", REFUSED)  # fmt: skip
        if entry is not None and not force:
            stop(f"{node} is kept out already by {entry}; --force puts yours in its place", REFUSED)
        record = state.record(node)
        serials = rules.serials_of(record.identity) if record else []
        made = Quarantine(
            owner=owner, reason=reason, since=now(), evidence=evidence, serials=serials
        )
        state.keep_out(node, made)
        click.echo(f"{node} is quarantined. {mark(found, node, str(made))}")
        engines = [i.name for i in found.fleet.config.instances if node in i.nodes]
        if engines:
            click.echo(f"What runs is not stopped: {', '.join(engines)} may still serve from it.")
        for line in rules.repeated(state, {node: made}):
            click.echo(line)
        tell_gateways(found, node, tell)
    except (OpenError, FleetStateError) as error:
        stop(str(error))


def show(entries: dict[str, Quarantine], repeated: list[str]) -> None:
    for name, entry in entries.items():
        click.echo(f"{name}: {entry}")
    if not entries:
        click.echo("no node is quarantined")
    for line in repeated:
        click.echo(line)


def mark(found: Opened, node: str, entry: str) -> str:
    """Put the mark on the node, or take it away; what came of it, in a sentence."""
    from rackpin.checks.base import NO_ANSWER
    from rackpin.fleet import quarantine as rules
    from rackpin.verify.connect import Connections

    command = rules.mark_command(entry)
    with Connections(found.made) as connections:
        output = connections.ask({node: [command]})[node].get("mark", NO_ANSWER)
    if output.ok:
        return f"{rules.MARK} on it is {'written' if entry else 'gone'}."
    said = output.stderr.strip() or "no answer"
    return f"It could not be told ({said}); the next run of site.py tells it."


def tell_gateways(found: Opened, node: str, tell: Callable[[list[str]], Told]) -> None:
    """Gateways hear of it where an engine needs the node; exit status 1 when one didn't.

    What was noted of the node stands either way.
    """
    from rackpin.fleet import quarantine as rules

    engines = [i.name for i in found.fleet.config.instances if node in i.nodes]
    gateways = [one.name for one in rules.applied(found.fleet).gateways]
    if not engines or not gateways:
        return
    told = tell(gateways)
    names = ", ".join(gateways)
    if not told.good:
        click.echo("\n".join(told.text.splitlines()[-LINES:]), err=True)
        stop(f"{node}: noted, but not every gateway ({names}) was told; see above, then run: "
             f"pyinfra {found.file} deploys/gateway.py", REFUSED)  # fmt: skip
    click.echo(f"{names}: told, for {', '.join(engines)}")
