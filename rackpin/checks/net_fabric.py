"""The interface that carries the fleet's own traffic: up, as fast as it can be, whole frames."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from rackpin.checks import gpuinfo
from rackpin.checks.base import NOTHING, Command, Context, Outputs
from rackpin.checks.host import PLACE, Answer, HostCheck, properties
from rackpin.findings import Finding, Level
from rackpin.skus import Sku

NAME = "net.fabric"
MTU_MIN = 1500
CRC_WARN = 10  # broken frames; a cable that is being plugged in makes a few
ENGINE_MBPS = 25_000  # over less, engines of several nodes without RDMA wait for the network
SLOW_MBPS, FAST_MBPS = 1_000, 10_000  # a fast port at 1 Gb/s has a wrong cable or switch port
_MODE = re.compile(r"(\d{2,6})base")


def command(ctx: Context) -> Command:
    """Everything of the interface from /sys; the modes that it could have from ethtool."""
    given, address = ctx.node.fabric_interface or "", shlex.quote(ctx.node.address)
    shell = (
        PLACE
        + f"""one() {{ v=; read -r v 2>/dev/null <"$1"; printf '%s' "$v"; }}
i={shlex.quote(given)}
a=$(getent ahosts {address} | awk '{{print $1; exit}}')
[ -n "$i" ] || i=$(ip -o addr show |
  awk -v a="${{a:-none}}/" 'index($4, a) == 1 {{print $2; exit}}')
echo '## interface'; echo "$i"
echo '## addresses'; [ -z "$i" ] || ip -o addr show dev "$i" | awk '{{print $4}}'
N=/sys/class/net/$i
echo '## link'; for f in operstate mtu speed duplex carrier_changes; do echo "$f=$(one $N/$f)"; done
[ ! -e "$N/device/driver" ] || echo "driver=$(basename "$(readlink -f "$N/device/driver")")"
echo '## errors'; for f in rx_crc_errors rx_errors tx_errors; do
  echo "$f=$(one $N/statistics/$f)"; done
echo '## modes'; timeout 5 ethtool "$i" 2>/dev/null | grep -oE '[0-9]+base[A-Za-z0-9/]*' | sort -u
echo '## others'; for n in /sys/class/net/*; do [ -e "$n/device" ] &&
  echo "${{n##*/}} $(one "$n/operstate") $(one "$n/speed") $(one "$n/mtu")"; done
echo '## end'
"""
    )
    return Command(NAME, shell, 10.0)


def _link(ctx: Context, answer: Answer) -> str:
    told, node = answer.told, ctx.node
    name = "".join(answer.lines("interface")).strip()
    if not name:
        told.faults.append(f"no interface has {node.address}")
        return ""
    link = properties(answer.parts["link"])
    state = link.get("operstate", "")
    if not state:
        told.faults.append(f"there is no interface {name}")
        return ""
    if state not in ("up", "unknown"):  # drivers without a notion of it say unknown
        told.faults.append(f"{name} is {state}")
    if not answer.lines("addresses"):
        told.faults.append(f"{name} has no address")
    if not link.get("mtu", "").isdigit():
        told.untold.append(f"{name}: its MTU")
    elif int(link["mtu"]) < MTU_MIN:
        told.worries.append(f"{name} has MTU {link['mtu']}, under {MTU_MIN}")
    if link.get("duplex") == "half":
        told.faults.append(f"{name} runs at half duplex")
    said = _speed(ctx, name, link, answer) if link.get("driver") else "a virtual interface"
    for key, text in properties(answer.parts["errors"]).items():
        if key == "rx_crc_errors" and text.isdigit() and int(text) >= CRC_WARN:
            told.worries.append(f"{name} received {text} broken frames: cable or transceiver")
            answer.metrics["crc_errors_count"] = float(text)
    return f"{name} is up, MTU {link.get('mtu')}, {said}"


def _speed(ctx: Context, name: str, link: dict[str, str], answer: Answer) -> str:
    """In Mb/s. A virtual machine's adapter often has none; a real one that is up always."""
    told, text = answer.told, link.get("speed", "")
    speed = int(text) if text.isdigit() else 0
    best = max((int(mode) for mode in _MODE.findall(answer.parts["modes"])), default=0)
    if not speed:
        if answer.place.bare_metal and link.get("operstate") == "up":
            told.untold.append(f"{name}: its speed")
        return "speed not told"
    what = f"{name} runs at {speed} Mb/s"
    if speed <= SLOW_MBPS and best >= FAST_MBPS:
        told.faults.append(f"{what}, it could {best}")
    elif speed < best:
        told.worries.append(f"{what}, it could {best}")
    if speed < ENGINE_MBPS and _needs_speed(ctx) and answer.place.bare_metal:
        told.worries.append(f"{what}: engines over several nodes wait for it")
    answer.metrics["speed_mbps"] = float(speed)
    return f"{speed} Mb/s"


def _needs_speed(ctx: Context) -> bool:
    """An engine spans this node and others, and no RDMA carries it."""
    sku = gpuinfo.sku_of(ctx)
    rdma = isinstance(sku, Sku) and sku.hcas is not None
    spans = any(len(i.nodes) > 1 and ctx.node.name in i.nodes for i in ctx.fleet.config.instances)
    return spans and not rdma and gpuinfo.has_cards(ctx)


class NetFabric:
    id = NAME
    title = "The fleet's own interface is up and as fast as it can be"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command(ctx)]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        check = HostCheck(
            id=self.id,
            title=self.title,
            expected=f"up, has {ctx.node.address}, full duplex, MTU {MTU_MIN} at least, full speed",
            source="inventory: fabric_interface, address; kernel docs: /sys/class/net",
            remedy="ip -d link, ethtool IF: cable, transceiver, switch port and its settings",
            parts=("interface", "addresses", "link", "errors", "modes"),
            look=_link,
            command=command(ctx),
        )
        return check.judge(ctx, outputs)


CHECK = NetFabric()
