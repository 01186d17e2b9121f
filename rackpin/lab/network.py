"""The lab's own network: bridges, a masquerade rule, forwarding, and taking all that away again."""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from rackpin.lab.errors import LabError
from rackpin.lab.process import run, run_json

FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
FIRST_HOST = 11


@dataclass(frozen=True)
class Addresses:
    """A lab's two /24s and its bridges; the control machine is .1, hosts are .11, .12, …"""

    bridge: str
    subnet: IPv4Network
    fabric_bridge: str
    fabric_subnet: IPv4Network

    @property
    def control(self) -> str:
        return str(self.subnet[1])

    def host(self, index: int) -> str:
        return str(self.subnet[FIRST_HOST + index])

    def fabric_host(self, index: int) -> str:
        return str(self.fabric_subnet[FIRST_HOST + index])


def short(lab: str) -> str:
    """Six hex digits for names that must fit the kernel's 15 characters."""
    return hashlib.sha256(lab.encode()).hexdigest()[:6]


def bridge_name(lab: str) -> str:
    return f"rp-{short(lab)}"


def fabric_bridge_name(lab: str) -> str:
    return f"rpf-{short(lab)}"


def fabric_port_name(lab: str, index: int) -> str:
    return f"rpf{short(lab)}-{index}"


def table_name(lab: str) -> str:
    return f"rackpin-{lab}"


def choose_addresses(
    lab: str, taken: Iterable[IPv4Network], preferred: Iterable[str] = ()
) -> Addresses:
    """Free /24s 10.86.N.0 and 10.87.N.0 for a lab: a preferred one, else one from its name.

    ``taken`` are the networks the control machine has routes to or other labs use.
    """
    used = [network for network in taken if network.prefixlen > 0]
    start = int(hashlib.sha256(lab.encode()).hexdigest(), 16) % 254
    wanted = [int(ipaddress.IPv4Network(text).network_address.packed[2]) for text in preferred]
    for n in [*wanted, *(1 + (start + i) % 254 for i in range(254))]:
        pair = IPv4Network(f"10.86.{n}.0/24"), IPv4Network(f"10.87.{n}.0/24")
        if not any(net.overlaps(other) for net in pair for other in used):
            return Addresses(bridge_name(lab), pair[0], fabric_bridge_name(lab), pair[1])
    raise LabError("no free /24 left in 10.86.0.0/16 and 10.87.0.0/16: take another lab down")


def routed_networks(without: Iterable[str] = ()) -> list[IPv4Network]:
    """Networks in the control machine's routing tables, but those of the given devices."""
    skip = set(without)
    found = []
    for route in run_json(["ip", "-json", "-4", "route", "show", "table", "all"]):
        dst = route.get("dst", "default")
        if dst != "default" and route.get("dev") not in skip:
            found.append(IPv4Network(dst, strict=False))
    return found


def _links() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def bring_up(lab: str, addresses: Addresses, with_fabric: bool, outbound: bool = True) -> None:
    """Make what is missing of bridges, rules and forwarding. Running it again changes nothing."""
    _bridge(addresses.bridge, addresses.subnet)
    if with_fabric:
        _bridge(addresses.fabric_bridge, addresses.fabric_subnet)
    if FORWARD.read_text().strip() != "1":
        FORWARD.write_text("1\n")
    _rules(lab, _MASQUERADE if outbound else _CUT, addresses)
    _open_foreign_chains(lab, addresses.bridge)


def take_down(lab: str) -> None:
    """Remove bridges and rules of a lab, known only by its name."""
    ours = {bridge_name(lab), fabric_bridge_name(lab)}
    for link in sorted(_links()):
        if link in ours or link.startswith(f"rpf{short(lab)}-"):
            run(["ip", "link", "delete", link])
    _close_foreign_chains(lab)
    if _has_table(lab):
        run(["nft", "delete", "table", "ip", table_name(lab)])


def _bridge(name: str, subnet: IPv4Network) -> None:
    if name not in _links():
        run(["ip", "link", "add", name, "type", "bridge"])
    run(["ip", "address", "replace", f"{subnet[1]}/{subnet.prefixlen}", "dev", name])
    run(["ip", "link", "set", name, "up"])


def _has_table(lab: str) -> bool:
    return any(
        table["family"] == "ip" and table["name"] == table_name(lab) for table in _objects("table")
    )


_MASQUERADE = """
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr @subnet@ oifname != "@bridge@" masquerade
  }
"""
# Before everybody else's chains: the control machine's other addresses are a way out too.
_CUT = """
  chain forward {
    type filter hook forward priority filter - 10; policy accept;
    iifname "@bridge@" oifname != "@bridge@" drop
  }
  chain input {
    type filter hook input priority filter - 10; policy accept;
    iifname "@bridge@" ip daddr != @control@ drop
  }
"""


def _rules(lab: str, text: str, addresses: Addresses) -> None:
    table = table_name(lab)
    for word in ("subnet", "bridge", "control"):
        text = text.replace(f"@{word}@", str(getattr(addresses, word)))
    # one transaction: made new whether or not it was there
    run(
        ["nft", "-f", "-"],
        stdin=f"""table ip {table} {{}}
delete table ip {table}
table ip {table} {{{text}}}
""",
    )


def _objects(kind: str, ruleset: Any = None) -> list[dict[str, Any]]:
    if ruleset is None:
        ruleset = run_json(["nft", "-j", "list", "ruleset"])
    return [entry[kind] for entry in ruleset["nftables"] if kind in entry]


def _open_foreign_chains(lab: str, bridge: str) -> None:
    """Let the lab pass chains of others that drop by policy (Docker's, ufw's).

    An accept in a table of our own would not help: every base chain of a hook must accept.
    """
    _close_foreign_chains(lab)
    for chain in _objects("chain"):
        if chain.get("policy") != "drop" or chain["family"] not in ("ip", "inet"):
            continue
        matches = {"forward": ("iifname", "oifname"), "input": ("iifname",)}.get(chain["hook"], ())
        for match in matches:
            run(
                ["nft", "-f", "-"],
                stdin=f"insert rule {chain['family']} {chain['table']} {chain['name']}"
                f' {match} "{bridge}" accept comment "{table_name(lab)}"\n',
            )


def _close_foreign_chains(lab: str) -> None:
    for rule in _objects("rule"):
        if rule.get("comment") == table_name(lab):
            place = [rule["family"], rule["table"], rule["chain"]]
            run(["nft", "delete", "rule", *place, "handle", str(rule["handle"])])


def forwarding_before() -> str:
    return FORWARD.read_text().strip()


def restore_forwarding(value: str) -> None:
    if FORWARD.read_text().strip() != value:
        FORWARD.write_text(value + "\n")
