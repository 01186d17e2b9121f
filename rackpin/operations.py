"""The few operations rackpin needs beyond pyinfra's own.

Each compares what the survey found with the wish and yields only the commands that are
needed; a second run yields none. They are told what a stage wants as data
(:mod:`rackpin.desired`) and never read the inventory.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from paramiko import SSHException
from pyinfra import host
from pyinfra.api import StringCommand
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS

from rackpin import deadlines, layout
from rackpin.apt import scripts
from rackpin.desired import OWNED_MARK, Desired, OwnedDir, OwnedFile, pending_mark
from rackpin.facts import ABSENT, Packages, Paths, PathState, Text, Units, Users
from rackpin.isolated import operation, refuse
from rackpin.stack.environment import activate_script, build_script, env_path
from rackpin.stack.lock import Lock
from rackpin.stack.share import Share
from rackpin.stages.python import complete_mark

# An apt that never asks, never restarts a service, and installs nothing that nobody signed.
APT = (
    f"{scripts.ENV} apt-get -q -o DPkg::Lock::Timeout={deadlines.APT_LOCK_S} "
    "-o APT::Get::AllowUnauthenticated=false "
    "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
)


def feed(text: str, deadline_s: float, stage: str) -> str:
    """Run a script on this node as the operation would; a lost connection is an empty answer.

    For operations that look from inside their generator. ``stage`` is named when the node is lost.
    """
    given = host.current_op_global_arguments or {}
    arguments = {key: given[key] for key in CONNECTOR_ARGUMENT_KEYS if key in given}
    arguments["_timeout"] = deadline_s
    try:
        return str(host.connector.feed(text, **arguments))
    except (OSError, SSHException, EOFError) as error:
        host.log(f"{stage}: no answer: {type(error).__name__}: {error}")
        return ""


def states(desired: Desired) -> dict[str, PathState]:
    """What the paths of a stage are now: one fact for all of them."""
    return host.get_fact(Paths, paths=desired.paths) if desired.paths else {}


@operation()
def owned_file(file: OwnedFile, stage: Desired) -> Iterator[Any]:
    """
    Put a whole file that rackpin owns, atomically, through stdin.

    + file: path, content, mode and owner
    + stage: the stage it belongs to, whose paths are asked for in one go

    A file at that path which rackpin doesn't own is kept under /var/lib/rackpin/backup.
    """
    now = states(stage).get(file.path, ABSENT)
    wanted = (file.sha256, file.mode, file.owner, file.group)
    if (now.sha256, now.mode, now.owner, now.group) == wanted:
        host.noop(f"{file.path} is as wished")
        return
    if now.kind not in ("file", "absent", "link"):
        yield refuse(f"{file.path} is a {now.kind}, not a file: move it away, then run again")
        return
    foreign = now.kind != "absent" and OWNED_MARK not in now.first_lines
    if foreign and host.state.is_executing:
        host.log(f"{file.path} was not rackpin's: kept as {layout.BACKUPS}{file.path}")
    yield put(file, keep_old=foreign)


def put(file: OwnedFile, keep_old: bool) -> StringCommand:
    """Write beside the target and rename; content goes through stdin, so into no process list."""
    path = shlex.quote(file.path)
    temporary = shlex.quote(f"{file.path}.rackpin-new")
    steps = ["set -e", "umask 077", f"mkdir -p -m 755 $(dirname {path}) {layout.PENDING}"]
    steps += [f"touch {pending_mark(trigger)}" for trigger in file.triggers]
    if keep_old:
        backup = f"{layout.BACKUPS}{file.path}"
        steps += [
            f"mkdir -p $(dirname {shlex.quote(backup)})",
            f"cp -a --backup=numbered {path} {shlex.quote(backup)}",
        ]
    steps += [
        f"cat > {temporary}",
        f"chown {file.owner}:{file.group} {temporary}",
        f"chmod {file.mode} {temporary}",
        f"sync {temporary}",
        f"mv -f {temporary} {path}",
    ]
    return StringCommand("; ".join(steps), _stdin=file.content)


@operation()
def after_change(trigger: str, command: str, stage: Desired) -> Iterator[Any]:
    """
    Do what changed files ask for, also when an earlier run was killed before it could.

    + trigger: its name; its mark on the node says that the work is still to do
    + command: what to do
    + stage: the stage it belongs to
    """
    mark = pending_mark(trigger)
    if states(stage).get(mark, ABSENT).kind == "absent":
        host.noop(f"nothing asks for: {command}")
        return
    yield f"{command} && rm -f {mark}"


@operation()
def owned_directory(directory: OwnedDir, stage: Desired) -> Iterator[Any]:
    """
    A directory with its mode and owner.

    + directory: path, mode and owner
    + stage: the stage it belongs to
    """
    now = states(stage).get(directory.path, ABSENT)
    wanted = ("directory", directory.mode, directory.owner, directory.group)
    if (now.kind, now.mode, now.owner, now.group) == wanted:
        host.noop(f"{directory.path} is as wished")
        return
    owner = f"-o {directory.owner} -g {directory.group}"
    yield f"install -d -m {directory.mode} {owner} {shlex.quote(directory.path)}"


@operation()
def packages(
    names: tuple[str, ...],
    versions: dict[str, str],
    broken: bool,
    hold: bool = False,
    on_failure: str = "",
) -> Iterator[Any]:
    """
    Install packages that are missing or at another version, in one transaction.

    + names: package names
    + versions: the exact version of each that has one
    + broken: the survey found dpkg interrupted or half configured; that is finished first
    + hold: hold those that have an exact version
    + on_failure: shell text that says more when apt fails
    """
    installed = host.get_fact(Packages, names=names)
    missing = [
        name
        for name in names
        if name not in installed or versions.get(name, installed[name]) != installed[name]
    ]
    if broken:
        yield StringCommand("sh", "-s", _stdin=scripts.repair_script(), _timeout=deadlines.APT_S)
    if not missing:
        host.noop(f"{len(names)} packages are installed")
        return
    yield StringCommand("sh", "-s", _stdin=scripts.update_script(), _timeout=deadlines.APT_S)
    exact = [f"{name}={versions[name]}" if name in versions else name for name in missing]
    move = any(name in installed for name in missing)
    flags = "--allow-downgrades --allow-change-held-packages " if move else ""
    install = f"{APT} -y --no-install-recommends {flags}install {' '.join(map(shlex.quote, exact))}"
    more = f" || {{ {on_failure}; exit 100; }}" if on_failure else ""
    yield StringCommand(f"{install}{more}", _timeout=deadlines.APT_S)
    if hold and (pinned := [name for name in missing if name in versions]):
        script = scripts.hold_more_script(pinned)
        yield StringCommand("sh", "-s", _stdin=script, _timeout=deadlines.APT_S)


@operation()
def system_user(user: str, home: str) -> Iterator[Any]:
    """
    A system user that runs Ray and the engines; below uid 1000, so logind keeps its IPC (F129).

    + user: user and group name
    + home: home directory, made by the stage
    """
    if user in host.get_fact(Users, names=(user,)):
        host.noop(f"user {user} exists")
        return
    yield (
        f"useradd --system --user-group --no-create-home --home-dir {shlex.quote(home)} "
        f"--shell /usr/sbin/nologin {shlex.quote(user)}"
    )


@operation()
def merged_file(path: str, wanted: str, current: str) -> Iterator[Any]:
    """
    A file that rackpin shares with others (/etc/hosts): its own block only, the rest kept.

    + path: the file
    + wanted: whole new content
    + current: whole content as the survey found it
    """
    if host.get_fact(Text, path=path) == wanted:
        host.noop(f"{path} is as wished")
        return
    yield put(OwnedFile(path, wanted), keep_old=OWNED_BLOCK not in current)


OWNED_BLOCK = "# begin rackpin"


@operation()
def environment(lock: Lock, url: str, stage: Desired, share: Share | None = None) -> Iterator[Any]:
    """
    Build the lock's environment, hashes enforced, at the path that carries its digest.

    + lock: what to install
    + url: the wheelhouse
    + stage: the stage whose paths include the mark of a complete environment
    + share: how the node takes wheels from its neighbours too; None: it doesn't
    """
    if states(stage).get(complete_mark(lock), ABSENT).kind == "file":
        host.noop(f"{env_path(lock)} is complete")
        return
    script = build_script(lock, url, share=share)
    yield StringCommand("sh", "-s", _stdin=script, _timeout=deadlines.ENVIRONMENT_S)


@operation()
def activate(lock: Lock, stage: Desired) -> Iterator[Any]:
    """
    Point ``current`` at the lock's environment, atomically; ``previous`` keeps the old one.

    + lock: the lock to activate
    + stage: the stage whose paths include the links
    """
    now = states(stage)
    if now.get(layout.CURRENT, ABSENT).target == env_path(lock):
        host.noop(f"{layout.CURRENT} is {lock.env_name}")
        return
    yield StringCommand("sh", "-s", _stdin=activate_script(lock))


@operation()
def units(names: tuple[str, ...], settle_s: int, running: bool = True) -> Iterator[Any]:
    """
    Enable and start units, then wait until each is active or failed. Never restarts one.

    + names: unit names
    + settle_s: how long a start may take, seconds
    + running: start them (else only enable)

    A unit that fails is not an error here: verify names it with its last log lines.
    """
    found = host.get_fact(Units, names=names)
    disabled = [n for n in names if found.get(n, {}).get("UnitFileState") != "enabled"]
    stopped = [n for n in names if found.get(n, {}).get("ActiveState") != "active"]
    if any(found.get(n, {}).get("NeedDaemonReload") == "yes" for n in names):
        yield "systemctl daemon-reload"
    if disabled:
        yield "systemctl enable --quiet -- " + " ".join(map(shlex.quote, disabled))
    if running and stopped:
        yield StringCommand(settle_script(stopped, settle_s), _timeout=settle_s + 60)
    if not disabled and not (running and stopped):
        host.noop(f"{', '.join(names)}: enabled and active")


def settle_script(names: list[str], settle_s: int) -> str:
    """Start without blocking, then wait until no unit is on its way any more."""
    quoted = " ".join(map(shlex.quote, names))
    return (
        f"systemctl reset-failed -- {quoted} 2>/dev/null; "
        f"systemctl start --no-block -- {quoted} || exit 1; "
        f"end=$(($(date +%s) + {settle_s})); "
        "while [ $(date +%s) -lt $end ]; do sleep 1; busy=; "
        f"for u in {quoted}; do case $(systemctl show -P ActiveState -- $u) in "
        'active|failed) ;; *) busy=1;; esac; done; [ -n "$busy" ] || break; done; '
        f"systemctl show -p Id,ActiveState,SubState -- {quoted}"
    )
