"""`rackpin lab …`: real Debian hosts on this machine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from rackpin.lab import lifecycle, registry, services, ssh, state
from rackpin.lab.base import purge_bases
from rackpin.lab.description import read
from rackpin.lab.errors import LabError
from rackpin.lab.hardware import place
from rackpin.lab.hardware.faults import FAULTS
from rackpin.lab.machine import preflight

HERE = Path("lab/lab.yaml")
DEFAULT_FILE = HERE if HERE.exists() else Path(__file__).resolve().parents[2] / HERE
F = TypeVar("F", bound=Callable[..., Any])


def _say(text: str) -> None:
    click.echo(text, err=True)


def _shown_errors(function: F) -> F:
    """A LabError is for people: no traceback, exit 1 (2 for a wrong description)."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LabError as error:
            click.echo(f"Error: {error}", err=True)
            raise SystemExit(error.exit_code) from error

    return wrapped  # type: ignore[return-value]


def _which_lab(function: F) -> F:
    function = click.option(
        "--name", envvar="RACKPIN_LAB", help="The lab's name instead of the file's."
    )(function)
    return click.option(
        "--file",
        "file",
        type=click.Path(path_type=Path),
        default=DEFAULT_FILE,
        show_default="lab/lab.yaml",
        help="The lab's description.",
    )(function)


def _name(file: Path, name: str | None) -> str:
    return name or read(file).name


def _loaded(file: Path, name: str | None) -> state.LabState:
    return state.load(_name(file, name))


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@click.group()
def lab() -> None:
    """Real Debian hosts on this machine: systemd, sshd and apt in namespaces."""
    signal.signal(signal.SIGTERM, _terminate)  # so that a killed `up` takes down what it began


@lab.command()
def check() -> None:
    """What this machine lacks for a lab, all at once. Exit 0 if nothing."""
    for line in (missing := preflight()):
        _say(line)
    raise SystemExit(1 if missing else 0)


@lab.command()
@_which_lab
@_shown_errors
def up(file: Path, name: str | None) -> None:
    """Boot what is off and wait until every host is ready. Again: changes nothing."""
    lifecycle.up(
        read(file, name),
        say=_say,
        finish=lambda lab: services.start(lab, _say),
        undo=lambda lab: services.stop(lab.directory),
    )


@lab.command()
@_which_lab
@click.option("--purge", is_flag=True, help="Delete the hosts' disks and keys too.")
@click.option("--purge-base", is_flag=True, help="Delete base images that no lab needs.")
@click.option("--match", metavar="GLOB", help="All running labs named so, wherever their state is.")
@_shown_errors
def down(file: Path, name: str | None, purge: bool, purge_base: bool, match: str | None) -> None:
    """Stop the hosts; leaves no process, mount, link or rule. Disks stay without --purge."""
    for one, directory in registry.running(match) if match else [(_name(file, name), None)]:
        if directory is not None:
            os.environ["RACKPIN_LAB_STATE"] = str(directory.parent)
        services.stop(state.state_root() / one)
        lifecycle.down(one, purge, say=_say)
    if purge_base:
        for path in purge_bases():
            _say(f"deleted {path}")


@lab.command()
@_which_lab
@click.option("--json", "as_json", is_flag=True, help="As JSON, on stdout.")
@_shown_errors
def status(file: Path, name: str | None, as_json: bool) -> None:
    """What runs. Exit 0 if every host answers, 1 if one does not or the lab is not up."""
    loaded = _loaded(file, name)
    rows = [
        {
            **host.model_dump(mode="json"),
            "faults": place.wished(host),
            "power": host.power,
            "answers": ssh.listens(host),
        }
        for host in loaded.hosts
    ]
    if as_json:
        click.echo(json.dumps({**loaded.model_dump(mode="json"), "hosts": rows}, indent=2))
    else:
        click.echo(f"lab {loaded.name}: {loaded.subnet} on {loaded.bridge}, {loaded.directory}")
        for row in rows:
            reached = "ssh answers" if row["answers"] else "ssh does not answer"
            groups = ",".join(row["groups"])
            line = f"  {row['name']:<12} {row['address']:<15} {row['power']:<12} {reached:<20}"
            shown = " ".join(filter(None, [row["hardware"], *row["faults"]]))
            click.echo(f"{line} {groups} {shown}".rstrip())
    if not all(row["answers"] for row in rows):
        raise SystemExit(1)


@lab.command(context_settings={"ignore_unknown_options": True})
@_which_lab
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@_shown_errors
def shell(file: Path, name: str | None, host: str, command: tuple[str, ...]) -> None:
    """A root shell on HOST by ssh, or one COMMAND: rackpin lab shell head1 -- uname -a."""
    loaded = _loaded(file, name)
    words = ssh.argv(loaded, loaded.host(host))
    os.execvp(words[0], [*words, *([" ".join(command)] if command else [])])


@lab.command()
@_which_lab
@click.argument("host")
@_shown_errors
def reboot(file: Path, name: str | None, host: str) -> None:
    """`systemctl reboot` on HOST; waits until a new boot answers."""
    loaded = _loaded(file, name)
    lifecycle.reboot(loaded, loaded.host(host), say=_say)


@lab.command()
@_which_lab
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@click.option("--all", "every", is_flag=True, help="Every host.")
@click.option("--new-hostkey", is_flag=True, help="Also change the ssh host key.")
@_shown_errors
def reset(
    file: Path, name: str | None, hosts: tuple[str, ...], every: bool, new_hostkey: bool
) -> None:
    """Wipe HOST's disk and boot it fresh; the ssh host key stays."""
    if every == bool(hosts):
        raise click.UsageError("name the hosts to wipe, or give --all")
    loaded = _loaded(file, name)
    chosen = loaded.hosts if every else [loaded.host(one) for one in hosts]
    lifecycle.reset(loaded, chosen, new_hostkey, say=_say)
    services.start(loaded, _say)


@lab.command("fault")
@_which_lab
@click.argument("host", required=False)
@click.argument("faults", nargs=-1, metavar="[NAME[=WHERE]]...")
@click.option("--clear", is_flag=True, help="No fault any more, also none of the description.")
@click.option("--list", "listed", is_flag=True, help="The faults there are.")
@_shown_errors
def fault_command(
    file: Path,
    name: str | None,
    host: str | None,
    faults: tuple[str, ...],
    clear: bool,
    listed: bool,
) -> None:
    """Give HOST just these faults of its simulated hardware, at once. None: show those it has."""
    if listed:
        for one in FAULTS.values():
            where = f"[={one.where.upper()}]" if one.where else ""
            click.echo(f"{one.name + where:<26} {one.about}")
        return
    if host is None or (clear and faults):
        raise click.UsageError("name a host, and faults or --clear; --list shows the faults")
    loaded = _loaded(file, name)
    chosen = loaded.host(host)
    if faults or clear:
        lifecycle.fault(loaded, chosen, faults, say=_say)
    for wish in place.wished(chosen):
        click.echo(wish)
