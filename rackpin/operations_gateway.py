"""The gateway: Debian's own nginx left off, a tested configuration, a proven reload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from rackpin import deadlines
from rackpin.desired import Desired, OwnedFile, pending_mark
from rackpin.facts import ABSENT, Units
from rackpin.gateway.scripts import install_script, reload_script
from rackpin.isolated import operation, refuse
from rackpin.operations import states
from rackpin.stages.gateway import FILES, NGINX_MASK, RELOAD

NGINX = "nginx.service"


@operation()
def nginx_apart(stack: str, stage: Desired) -> Iterator[Any]:
    """
    See to it that Debian's ``nginx.service`` never starts: the package would start it at once.

    + stack: the stack's name, for the message where its lock has no nginx
    + stage: the stage whose paths include the mask
    """
    if not stage.packages:
        yield refuse(f"the lock names no nginx for this OS; run: rackpin lock {stack}")
        return
    now = states(stage).get(NGINX_MASK, ABSENT)
    if now.target == "/dev/null":
        host.noop(f"{NGINX} is masked")
        return
    found = host.get_fact(Units, names=(NGINX,)).get(NGINX, {})
    if now.kind not in ("absent", "link") or found.get("ActiveState") == "active":
        yield refuse(
            f"{NGINX} is somebody else's here ({found.get('ActiveState', '?')}, {NGINX_MASK} is "
            f"{now.kind}): stop, disable and move it away, or make another node the gateway"
        )
        return
    yield f"ln -sfn /dev/null {NGINX_MASK} && systemctl daemon-reload"


@operation()
def gateway_config(files: tuple[OwnedFile, ...], stage: Desired) -> Iterator[Any]:
    """
    Put nginx's files in place, all at once, if nginx itself takes them.

    + files: what it reads
    + stage: the stage they belong to
    """
    now = states(stage)
    wrong = []
    for file in files:
        state = now.get(file.path, ABSENT)
        if (state.sha256, state.mode, state.owner, state.group) != (
            file.sha256, file.mode, file.owner, file.group,
        ):  # fmt: skip
            wrong.append(file.path)
    if not wrong:
        host.noop("the gateway's files are as wished")
        return
    script = install_script(files, FILES, RELOAD)
    yield StringCommand("sh", "-s", _stdin=script, _timeout=deadlines.GATEWAY_S)


@operation()
def gateway_reload(
    address: str, port: int, tls: bool, digest: str, stage: Desired
) -> Iterator[Any]:
    """
    Reload nginx after a change and wait until it works with it; running streams go on.

    + address: where it listens
    + port: its port
    + tls: it speaks TLS
    + digest: of the configuration
    + stage: the stage whose paths include the mark of an unfinished reload
    """
    if states(stage).get(pending_mark(RELOAD), ABSENT).kind == "absent":
        host.noop("nothing asks for a reload")
        return
    limit = deadlines.GATEWAY_RELOAD_S
    script = reload_script(address, port, tls, digest, limit, RELOAD)
    yield StringCommand("/usr/bin/python3", "-I", "-", _stdin=script, _timeout=limit + 30)
