"""What must hold for a gateway: its names, its port, its key, its certificate."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from rackpin.inventory import Instance, Node
from rackpin.inventory_engines import key_of
from rackpin.inventory_files import resolve
from rackpin.inventory_parts import GatewayConfig
from rackpin.inventory_problems import FLEET, Problem
from rackpin.inventory_rules import Draft, Rule

PEM = {"tls_cert": "CERTIFICATE", "tls_key": "PRIVATE KEY"}
RESERVED = ("v1", "healthz")  # the gateway's own paths


def gateways(draft: Draft) -> list[Node]:
    return [node for node in draft.nodes.values() if node.is_gateway]


def resolved(config: GatewayConfig, base: Path) -> GatewayConfig:
    """The same with absolute paths."""
    given = {key: getattr(config, key) for key in ("tls_cert", "tls_key")}
    return config.model_copy(
        update={key: str(resolve(name, base)) for key, name in given.items() if name}
    )


def names(draft: Draft) -> Iterator[Problem]:
    """A served name is the beginning of a path at the gateway."""
    if not gateways(draft):
        return
    for instance in draft.engines("served_name"):
        parts = instance.served_name.split("/")
        key = key_of(instance, "served_name")
        if parts[0] in RESERVED:
            what = f"{instance.served_name!r} begins like a path of the gateway's own (/{parts[0]})"
            yield Problem(FLEET, key, what, "give the model another name")
        elif {"", ".", ".."} & set(parts):
            what = f"{instance.served_name!r} can't be a path at the gateway"
            yield Problem(FLEET, key, what, "leave out empty parts, . and .. between slashes")


def one_key(draft: Draft) -> Iterator[Problem]:
    """Engines behind one name: the gateway can't know which of them a request will get."""
    if not gateways(draft):
        return
    behind: dict[str, list[Instance]] = defaultdict(list)
    for instance in draft.engines("served_name", "api_key_file"):
        behind[instance.served_name].append(instance)
    for served, instances in behind.items():
        keys = {_content(resolve(i.api_key_file, draft.base)) for i in instances}
        if None not in keys and len(keys) > 1:
            yield Problem(
                FLEET,
                key_of(instances[1], "api_key_file"),
                f"the engines of {served} have different keys; a request with one of them would "
                "be refused by the engines that have the other",
                "give them one file, or serve them under two names",
            )


def _content(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None  # said already


def port(draft: Draft) -> Iterator[Problem]:
    if "gateway" in draft.broken:
        return
    wanted = draft.config.gateway.port
    for node in gateways(draft):
        ray = draft.config.ray.ports
        taken = draft.config.taken_everywhere
        for instance in draft.engines("port", "nodes"):
            if instance.nodes[0] == node.name:
                taken[instance.port] = key_of(instance, "port")
        if node.in_ray and "ray" not in draft.broken:
            taken |= {number: f"ray.ports.{key}" for key, number in ray.fixed().items()}
            workers = range(ray.worker_min, ray.worker_max + 1)
            taken |= dict.fromkeys(workers, "Ray's workers")
        if wanted in taken:
            what = f"{wanted} belongs to {taken[wanted]} on this node"
            yield Problem(node.name, "gateway.port", what, "choose a free one, e.g. 8080 or 443")


def certificate(draft: Draft) -> Iterator[Problem]:
    if "gateway" in draft.broken:
        return
    config = draft.config.gateway
    given = {"tls_cert": config.tls_cert, "tls_key": config.tls_key}
    if not any(given.values()):
        return
    for key, name in given.items():
        if not name:
            other = next(other for other in given if other != key)
            what = f"missing, while `{other}` is given"
            yield Problem(FLEET, f"gateway.{key}", what, "give both files, or neither (plain http)")
            continue
        path = resolve(name, draft.base)
        try:
            text, mode = path.read_text(encoding="ascii"), path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", "") or "it is no PEM text"
            what = f"{path} can't be read: {why}"
            yield Problem(FLEET, f"gateway.{key}", what, "name a PEM file on this machine")
            continue
        wanted = PEM[key]
        if not re.search(rf"-----BEGIN ([A-Z]+ )*{wanted}-----", text):
            what = f"{path} holds no {wanted.lower()}"
            yield Problem(FLEET, f"gateway.{key}", what, "name the right PEM file")
        elif key == "tls_key" and "ENCRYPTED" in text:
            what = f"{path} is encrypted: nginx would ask for its password at each start"
            yield Problem(FLEET, f"gateway.{key}", what, "give one without a password, mode 0600")
        elif key == "tls_key" and mode & 0o077:
            what = f"{path} can be read by others"
            yield Problem(FLEET, f"gateway.{key}", what, f"close it:\n$ chmod 600 {path}")


RULES: tuple[Rule, ...] = (names, one_key, port, certificate)
