"""What must hold between the values of an inventory. Each rule yields all it finds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rackpin.inventory import ROLES, FleetConfig, Instance, Node
from rackpin.inventory_problems import FLEET, Problem, close_to, shown


@dataclass(frozen=True)
class Draft:
    """An inventory as far as it could be read. A value that is wrong by itself is not in it."""

    base: Path  # relative files are looked for here, then in the working directory
    config: FleetConfig  # without its instances
    # Each engine as far as it could be read, and its keys that couldn't (they have defaults).
    read_engines: Sequence[tuple[Instance, Collection[str]]]
    nodes: dict[str, Node]  # address and sku are "" where they are missing
    broken: frozenset[str]  # fleet keys whose value is a default because the given one is wrong
    gpus_known: frozenset[str]  # nodes whose number of GPUs is known
    data: Mapping[str, Mapping[str, Any]]  # node -> pyinfra's own keys (ssh_*, _sudo, …)
    known_stacks: Collection[str]

    def engines(self, *needs: str) -> list[Instance]:
        """The engines whose values under these keys are as the inventory says."""
        return [engine for engine, unsure in self.read_engines if not set(needs) & set(unsure)]


Rule = Callable[[Draft], Iterator[Problem]]

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NAME_MAX = 64  # the kernel's longest host name
RAY_TEMP_MAX = 43  # with Ray's session and socket name after it, a unix socket's path has 107 bytes


def node_names(draft: Draft) -> Iterator[Problem]:
    for name in draft.nodes:
        labels = name.split(".")
        address = _ip(name)
        if name.startswith("@"):
            connector, _, rest = name[1:].partition("/")
            why = f"it would be reached through pyinfra's {connector!r}, without our deadlines"
            remedy = f'write "@fleet/{rest or "NAME"}"'
        elif address is not None or name == "localhost":
            why = "an address or localhost is not a node's name"
            remedy = 'give it a name and say where ssh goes: ("@fleet/gpu001", {"ssh_hostname": …})'
        elif not all(LABEL.fullmatch(label) for label in labels) or len(name) > NAME_MAX:
            why = f"not a valid host name (a-z, 0-9, -, dots between; at most {NAME_MAX})"
            good = re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")[:NAME_MAX]
            remedy = f'rename it, e.g. "@fleet/{good or "gpu001"}"'
        else:
            continue
        yield Problem(name, "name", why, remedy)


def roles(draft: Draft) -> Iterator[Problem]:
    for node in draft.nodes.values():
        if not set(node.groups) & set(ROLES):
            near = next(filter(None, (close_to(group, ROLES) for group in node.groups)), "")
            hint = f"did you mean the group `{near}`?" if near else "put it in one of them"
            yield Problem(
                node.name,
                "groups",
                f"in no group that a stage serves ({', '.join(ROLES)}); it is in: "
                f"{', '.join(node.groups) or 'none'}",
                f"{hint} Or take the node out of the inventory",
            )
    heads = [node.name for node in draft.nodes.values() if node.is_head]
    if not heads:
        yield Problem(FLEET, "head", "no node is in the group `head`", "name one: head = [NODE]")
    elif len(heads) > 1:
        yield Problem(
            FLEET,
            "head",
            f"{len(heads)} nodes are in the group `head`: {', '.join(heads)}; Ray has one",
            "leave one there and move the others to `workers`",
        )


def addresses(draft: Draft) -> Iterator[Problem]:
    owners: dict[Any, str] = {}
    for node in draft.nodes.values():
        if not node.address:
            continue  # said already
        ip = _ip(node.address)
        what = f"{node.address!r} "
        remedy = "give the IP of the interface that other nodes use, e.g. 10.20.0.11"
        if ip is None:
            what += "is not an IP address"
        elif ip.is_loopback:
            what += "is loopback: no other node reaches it"
            what += ", and Ray would start as a cluster of one" if node.is_head else ""
        elif ip.is_unspecified:
            what += "means every interface, it is nobody's address"
        elif ip.is_multicast:
            what += "is a multicast address"
        elif ip in owners:
            what += f"is also the address of {owners[ip]}"
            remedy = f"give each node its own; look at `ip -brief address` on {node.name}"
        else:
            owners[ip] = node.name
            continue
        yield Problem(node.name, "address", what, remedy)
    for name, address in draft.config.extra_hosts.items():
        if _ip(address) is None:
            yield Problem(
                FLEET, f"extra_hosts.{name}", f"{address!r} is not an IP address", "correct it"
            )
        elif name in draft.nodes and address != draft.nodes[name].address:
            yield Problem(
                FLEET,
                f"extra_hosts.{name}",
                f"{name} is a node; its address is {draft.nodes[name].address or 'missing'}",
                "remove it: every node is in /etc/hosts already",
            )


def connections(draft: Draft) -> Iterator[Problem]:
    seen: dict[tuple[str, str], str] = {}
    for name, data in draft.data.items():
        host, port = str(data.get("ssh_hostname") or name), str(data.get("ssh_port") or 22)
        first = seen.setdefault((host.lower(), port), name)
        if first != name:
            yield Problem(
                name,
                "ssh_hostname",
                f"ssh goes to {host} port {port}, as for {first}: two nodes would be one machine",
                "correct ssh_hostname or ssh_port of one of them",
            )


def stack(draft: Draft) -> Iterator[Problem]:
    name = draft.config.stack
    if "stack" in draft.broken or name in draft.known_stacks:
        return
    near = close_to(name, draft.known_stacks)
    known = ", ".join(sorted(draft.known_stacks)) or "none at all"
    yield Problem(
        FLEET,
        "stack",
        f"there is no stack {name!r} (stacks/{name}/pins.yaml); known: {known}",
        f"did you mean {near!r}? Name a known one" if near else "name a known one, or add it",
    )


def wheelhouse(draft: Draft) -> Iterator[Problem]:
    if "wheelhouse_url" in draft.broken:
        return
    url = draft.config.wheelhouse_url
    remedy = "give the address of the machine that serves wheels, e.g. http://10.20.0.2:8900"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a port out of range raises here
    except ValueError as error:
        yield Problem(FLEET, "wheelhouse_url", f"{url!r} is not a URL: {error}", remedy)
        return
    ip = _ip(host or "")
    if parts.scheme not in ("http", "https") or not host:
        yield Problem(FLEET, "wheelhouse_url", f"{url!r} is not an http(s) URL", remedy)
    elif host == "localhost" or (ip is not None and (ip.is_loopback or ip.is_unspecified)):
        why = f"{url!r} means each node itself; no node would find a wheel"
        yield Problem(FLEET, "wheelhouse_url", why, remedy)


def ray_ports(draft: Draft) -> Iterator[Problem]:
    if "ray" in draft.broken:
        return
    ports = draft.config.ray.ports
    low, high = ports.worker_min, ports.worker_max
    if low > high:
        yield Problem(
            FLEET,
            "ray.ports.worker_min",
            f"{low} is above worker_max {high}: Ray would have no port for a worker",
            "make worker_min the smaller one; some 100 ports for each node's workers",
        )
    by_port: dict[int, list[str]] = defaultdict(list)
    for key, port in ports.fixed().items():
        by_port[port].append(key)
    inside = [key for key, port in ports.fixed().items() if low <= port <= high]
    if inside:
        held = ", ".join(f"{key} {ports.fixed()[key]}" for key in inside)
        yield Problem(
            FLEET,
            f"ray.ports.{inside[0] if len(inside) == 1 else 'worker_min'}",
            f"the workers' range {low}–{high} holds {held}: a worker may take it first",
            "narrow the range, or move what is in it",
        )
    for port, keys in by_port.items():
        if len(keys) > 1:
            yield Problem(
                FLEET,
                f"ray.ports.{keys[1]}",
                f"{port} is also the port of {', '.join(keys[:1] + keys[2:])}",
                "give each its own",
            )


def ray_settings(draft: Draft) -> Iterator[Problem]:
    ray = draft.config.ray
    if not ray.temp_dir.startswith("/") or len(ray.temp_dir) > RAY_TEMP_MAX:
        yield Problem(
            FLEET,
            "ray.temp_dir",
            f"{shown(ray.temp_dir)} must be an absolute path of at most {RAY_TEMP_MAX} characters: "
            "Ray puts unix sockets below it, whose paths end at 107",
            "use a short one, e.g. /var/lib/rackpin/ray",
        )
    dashboard = _ip(ray.dashboard_host)
    if dashboard is not None and dashboard.is_unspecified:
        yield Problem(
            FLEET,
            "ray.dashboard_host",
            f"{ray.dashboard_host} opens Ray's job API to everyone who reaches the head; it has no "
            "authentication (CVE-2023-48022)",
            "keep 127.0.0.1 and look at it through `ssh -L 8265:127.0.0.1:8265 HEAD`",
        )


def _ip(text: str) -> Any:
    try:
        return ip_address(text)
    except ValueError:
        return None


RULES: tuple[Rule, ...] = (
    node_names,
    roles,
    addresses,
    connections,
    stack,
    wheelhouse,
    ray_ports,
    ray_settings,
)
