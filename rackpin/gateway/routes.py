"""From the fleet to nginx's view of it: names, their engines, and who gets nothing now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from rackpin.inventory import Fleet, Instance


@dataclass(frozen=True)
class Server:
    """One engine; ``resting`` says why it gets no request, empty when it does."""

    instance: str
    node: str
    address: str  # ADDRESS:PORT as nginx takes it
    weight: int
    resting: str


@dataclass(frozen=True)
class Route:
    """One served name and every engine that has it."""

    name: str
    upstream: str  # nginx's name for it
    variable: str  # nginx's variable that is 1 with the right key
    paths: tuple[str, ...]  # where clients ask: /NAME/, and / when it is the only one
    servers: tuple[Server, ...]
    key_file: str  # on the control machine

    @property
    def active(self) -> tuple[Server, ...]:
        return tuple(server for server in self.servers if not server.resting)

    def key(self) -> str:
        return Path(self.key_file).expanduser().read_text().strip()


def routes(fleet: Fleet) -> list[Route]:
    """All served names, in the inventory's order of their first engines."""
    behind: dict[str, list[Instance]] = {}
    for instance in fleet.config.instances:
        behind.setdefault(instance.served_name, []).append(instance)
    found = []
    for number, (name, instances) in enumerate(behind.items(), 1):
        word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        found.append(
            Route(
                name=name,
                upstream=f"{word}_{number}",
                variable=f"rackpin_key_{number}",
                paths=(f"/{name}/", "/") if len(behind) == 1 else (f"/{name}/",),
                servers=tuple(server(fleet, instance) for instance in instances),
                key_file=instances[0].api_key_file,
            )
        )
    return found


def server(fleet: Fleet, instance: Instance) -> Server:
    node = fleet.nodes[instance.nodes[0]]
    out = [f"{name} is quarantined by {fleet.kept_out[name]}"
           for name in instance.nodes if name in fleet.kept_out]  # fmt: skip
    if instance.name in fleet.drained:
        out.insert(0, f"drained by {fleet.drained[instance.name]}")
    if instance.weight == 0:
        out.insert(0, "weight 0 in the inventory")
    return Server(
        instance=instance.name,
        node=node.name,
        address=place(node.address, instance.port),
        weight=max(instance.weight, 1),
        resting=" ".join("; ".join(out).split()),  # a comment is one line
    )


def place(address: str, port: int) -> str:
    """``10.0.0.1:8000``, or ``[fd00::1]:8000``."""
    return f"[{address}]:{port}" if ip_address(address).version == 6 else f"{address}:{port}"


def bearer(key: str) -> str:
    """nginx's regular expression for the header that carries this key; exact, case included.

    A plain string in a map would match in any case. Every character but letters and digits goes
    by its number, so that none means anything to nginx or PCRE.
    """
    quoted = "".join(c if c.isalnum() and c.isascii() else _byte(c) for c in key)
    return rf"~^Bearer {quoted}\z"


def _byte(character: str) -> str:
    return "".join(rf"\x{byte:02x}" for byte in character.encode())
