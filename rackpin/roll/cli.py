"""``rackpin roll``: a change over a serving fleet, wave by wave."""

from __future__ import annotations

import getpass
import os
import signal
import sys
from datetime import datetime
from typing import Any, NoReturn

import click

from rackpin.findings import LEVELS, Level
from rackpin.options import inventory_data

REFUSED, WRONG = 1, 2
ACTIONS = ("plan", "resume", "retry_failed", "pause", "abort", "back", "status")


def stop(message: str, code: int = WRONG) -> NoReturn:
    click.echo(f"rackpin roll: {message}", err=True)
    leave(code)


def leave(code: int) -> NoReturn:
    """Without waiting for threads whose nodes hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def say(text: str) -> None:
    click.echo(f"{datetime.now().astimezone():%H:%M:%S} {text}", err=True)


def _size(_: click.Context, __: click.Parameter, text: str) -> dict[str, Any]:
    number = text.removesuffix("%")
    try:
        value = float(number) if text.endswith("%") else int(number)
    except ValueError:
        value = 0
    if value <= 0 or (text.endswith("%") and value > 100):
        raise click.BadParameter(f"{text}: a number of units, or a part of them as 25%")
    return {"wave_percent": value} if text.endswith("%") else {"wave": value}


@click.command("roll")
@click.argument("hosts", nargs=-1, metavar="[HOST]…")
@click.option("-i", "--inventory", envvar="RACKPIN_INVENTORY",
              type=click.Path(exists=True, dir_okay=False),
              help="The inventory FILE.py of the fleet ($RACKPIN_INVENTORY).")  # fmt: skip
@inventory_data
@click.option("--plan", is_flag=True, help="Show what would be done; begin nothing.")
@click.option("-y", "--yes", is_flag=True, help="Begin without asking.")
@click.option("--canary", default=1, show_default=True, type=click.IntRange(min=0),
              help="Units in the first wave; any failure in it stops the roll.")  # fmt: skip
@click.option("--wave", default="25%", show_default=True, callback=_size,
              help="Units in a wave, or a part of all.")  # fmt: skip
@click.option("--keep", default=50.0, show_default=True, type=click.FloatRange(0, 100),
              help="Percent of each served name's weight that always gets requests.")  # fmt: skip
@click.option("--max-failures", default=0, show_default=True, type=click.IntRange(min=0),
              help="Failed units that don't stop the roll.")  # fmt: skip
@click.option("--level", type=click.Choice(LEVELS[1:]), help="Of each wave's verify.")
@click.option("--watch", "watch_s", default=30, show_default=True, type=click.IntRange(min=0),
              help="Seconds that a wave's engines must go on answering.")  # fmt: skip
@click.option("--wait", "drain_s", default=600, show_default=True, type=click.IntRange(min=0),
              help="Seconds until requests in flight must have ended.")  # fmt: skip
@click.option("--cut", is_flag=True, help="Cut what is in flight then; roll without a gateway.")
@click.option("--restart", is_flag=True, help="Start Ray and engines anew even if unchanged.")
@click.option("--owner", default=getpass.getuser, help="Whose roll it is (default: you).")
@click.option("--resume", is_flag=True, help="Go on with the open roll, what failed first.")
@click.option("--retry-failed", is_flag=True, help="Only what failed or was cut short.")
@click.option("--pause", is_flag=True, help="Ask the running roll to stop after its wave.")
@click.option("--abort", is_flag=True, help="End the open roll; nodes not begun stay as they are.")
@click.option("--back", is_flag=True, help="Roll what was begun back to the lock before.")
@click.option("--status", is_flag=True, help="Show the open or the last roll.")
def roll_command(
    hosts: tuple[str, ...],
    inventory: str | None,
    data: tuple[str, ...],
    group_data: tuple[str, ...],
    yes: bool,
    canary: int,
    wave: dict[str, Any],
    keep: float,
    max_failures: int,
    level: Level | None,
    watch_s: int,
    drain_s: int,
    cut: bool,
    restart: bool,
    owner: str,
    **actions: bool,
) -> None:
    """Bring HOSTs (default: all) to the inventory's lock while the fleet serves.

    Shows what changes where and what that interrupts, then goes through a canary and waves: drain
    at the gateway, stop, site.py, verify, back, watch. Nodes of one engine go together.

    Exit status: 0 done, 1 stopped by a failure or refused, 2 wrong usage, 3 paused or aborted, 130
    interrupted. Whatever it is, the last line says how to go on.
    """
    from rackpin.fleet.state import FleetStateError
    from rackpin.inventory_open import OpenError
    from rackpin.inventory_problems import InventoryError
    from rackpin.roll.act import Acts, Refused
    from rackpin.roll.model import Options

    chosen = [name for name in ACTIONS if actions[name]]
    if len(chosen) > 1:
        stop(f"--{chosen[0].replace('_', '-')} and --{chosen[1].replace('_', '-')} are two things")
    action = chosen[0] if chosen else "begin"
    options = Options(
        canary=canary, keep_percent=keep, max_failures=max_failures, level=level,
        watch_s=watch_s, drain_s=drain_s, cut=cut, restart=restart, **wave,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # a timer's stop is a ^C too
    try:
        acts = Acts(inventory, data, group_data, owner, say, confirmed(yes))
        if hosts and action not in ("begin", "plan"):
            stop("HOSTs are named when a roll is begun; it keeps them")
        code = acts.do(action, hosts, options)
    except (Refused, FleetStateError) as error:
        stop(str(error), REFUSED)
    except (OpenError, InventoryError) as error:
        stop(str(error))
    except KeyboardInterrupt:
        stop("interrupted before anything was begun", 130)
    leave(code)


def confirmed(yes: bool) -> Any:
    def ask(question: str) -> bool:
        if yes:
            return True
        if not sys.stdin.isatty():
            stop(f"{question}: nobody is there to be asked; give -y, or only look with --plan")
        return click.confirm(question, err=True)

    return ask
