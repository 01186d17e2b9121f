"""gateway: nginx on the nodes of the group ``gateway``, with a configuration of its own."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

from rackpin import layout
from rackpin.desired import OWNED_MARK, Desired, OwnedDir, OwnedFile, Target, owned, render
from rackpin.gateway.routes import bearer, place, routes
from rackpin.inventory import Fleet, Node

ROLE = "gateway"
CONFIG = "etc/rackpin/gateway/nginx.conf.j2"
# Linked to /dev/null: Debian's own service, with its own site on port 80, never starts.
NGINX_MASK = "/etc/systemd/system/nginx.service"
RELOAD = "gateway-reload"  # what changed files ask for; done by an operation that proves it
FILES = ("nginx.conf", "keys.conf", "tls.crt", "tls.key")  # all that may lie in the directory

NUMBERS: dict[str, int] = {
    "connections": 8192,  # a worker process; each request takes two
    # An engine that refuses three times in ten seconds gets nothing for the next ten.
    "max_fails": 3,
    "fail_timeout_s": 10,
    "idle_kept": 32,
    # Uvicorn closes an idle connection after 5 s (vLLM's VLLM_HTTP_TIMEOUT_KEEP_ALIVE). Whoever
    # sends a POST into one at that moment loses it, so ours are given up well before.
    "idle_s": 2,
    "connect_s": 3,  # on a fleet's own network an answer takes milliseconds
    "next_s": 15,  # until a client hears that no engine can be reached
    "send_s": 120,
    "health_s": 5,
}
STOP_S = 120  # what streams get to end when the unit is stopped


def packages(target: Target) -> tuple[str, ...]:
    every = target.lock.packages.get(target.os_key, [])
    return tuple(item.name for item in every if item.role == ROLE)


def serves(target: Target) -> bool:
    """It is a gateway, nobody keeps it out, and there is something to pass requests to."""
    node, fleet = target.node, target.fleet
    return node in fleet.gateways and bool(fleet.config.instances)


def configuration(fleet: Fleet, node: Node) -> str:
    """nginx.conf, with the digest of itself in what ``/healthz`` says."""
    found = routes(fleet)
    made = partial(
        render,
        CONFIG,
        fleet=fleet.config.fleet,
        gateway=fleet.config.gateway,
        routes=found,
        listen=place(node.address, fleet.config.gateway.port),
        hint=" and ".join(f"{path}v1/" for path in found[0].paths)
        if len(found) == 1
        else "/NAME/v1/ of the models it serves",
        **NUMBERS,
    )
    return made(digest=hashlib.sha256(made(digest="").encode()).hexdigest()[:12])


def digest_of(text: str) -> str:
    """What ``/healthz`` says of this configuration."""
    return text.partition(", configuration ")[2].partition("\\n")[0]


def config_files(target: Target) -> tuple[OwnedFile, ...]:
    """What nginx reads; put in place together, after nginx has said that it takes them."""
    fleet, directory = target.fleet, layout.GATEWAY
    values: dict[str, Any] = {"routes": routes(fleet), "bearer": bearer}
    files = [
        OwnedFile(f"{directory}/nginx.conf", configuration(fleet, target.node)),
        owned("etc/rackpin/gateway/keys.conf.j2", values=values, mode="600", secret=True),
    ]
    for name, given in (
        ("tls.crt", fleet.config.gateway.tls_cert),
        ("tls.key", fleet.config.gateway.tls_key),
    ):
        if given:  # PEM: what stands before its first line is a comment
            text = f"{OWNED_MARK} (gateway of the inventory)\n{Path(given).read_text()}"
            files.append(OwnedFile(f"{directory}/{name}", text, mode="600", secret=True))
    return tuple(files)


def desired(target: Target) -> Desired:
    if not serves(target):
        return Desired()
    unit = owned(
        f"etc/systemd/system/{layout.GATEWAY_UNIT}.j2",
        values={
            "fleet": target.fleet.config.fleet,
            "etc": layout.ETC,
            "directory": layout.GATEWAY,
            "limits": target.fleet.config.limits,
            "stop_s": STOP_S,
        },
        triggers=("daemon-reload",),
    )
    return Desired(
        files=(unit, *config_files(target)),
        directories=(OwnedDir(layout.GATEWAY),),
        packages=packages(target),
        units=(layout.GATEWAY_UNIT,),
        foreign=(NGINX_MASK, f"{layout.PENDING}/{RELOAD}"),
    )
