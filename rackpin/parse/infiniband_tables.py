"""One line for a port: ``ibdev2netdev``, ``show_gids``, ``rdma link`` (text and ``-j``), sysfs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from rackpin.parse.infiniband_gids import mapped
from rackpin.parse.infiniband_model import Device, Gid, Infiniband, Port, rate, reading
from rackpin.parse.text import last_line

_NETDEV = re.compile(
    r"(?:^|\s)(?P<device>[\w.-]{1,64}) port (?P<port>\d{1,3}) ==> ?(?P<net>\S*) \((?P<up>\w+)\)"
)
_NETDEV_V = re.compile(
    r"(?P<pci>[0-9a-f:.]{7,16}) (?P<device>[\w.-]{1,64}) \((?P<type>[^)]*)\).*? fw (?P<fw>[\w.]+) "
    r"port (?P<port>\d{1,3}) \((?P<state>\w+) *\) ==> ?(?P<net>\S*) \((?P<up>\w+)\)"
)
_GID_ROW = re.compile(
    r"\s*(?P<device>[\w.-]{1,64})\s+(?P<port>\d{1,3})\s+(?P<index>\d{1,4})\s+"
    r"(?P<gid>[0-9a-fA-FxX:]{6,39})(?:\s+(?P<ipv4>\d{1,3}(?:\.\d{1,3}){3}))?"
    r"(?:\s+(?P<version>v1|v2))?(?:\s+(?P<net>\S+))?\s*$"
)
_GIDS_FOUND = re.compile(r"\s*n_gids_found=(\d+)")
_RDMA = re.compile(
    r"\s*(?:link |\d+/\d+: )(?P<device>[\w.-]{1,64})/(?P<port>\d{1,3}|-):? (?P<rest>.*)"
)
_RDMA_DEV = re.compile(r"\s*(?:\d+: )?(?P<device>[\w.-]{1,64}): node_type (?P<rest>.*)")
_SYSFS = re.compile(
    r".*/sys/class/infiniband/(?P<device>[\w.-]{1,64})/ports/(?P<port>\d{1,3})/"
    r"(?P<key>state|phys_state|rate|link_layer): ?(?P<value>.*?)\s*$"
)
_VERBS = re.compile(r"\s*(?P<device>[a-z][\w-]*\d)\s+(?P<guid>[0-9a-f]{16})\s*$")


def ibdev2netdev(found: Sequence[str]) -> Infiniband | None:
    """Which network interface belongs to which port; with ``-v`` the port's own state too."""
    ports, devices = [], []
    for line in found:
        if match := _NETDEV_V.search(line):
            devices.append(Device(match["device"], match["type"].strip(), match["fw"]))
            state = match["state"]
        elif match := _NETDEV.search(line):
            state = match["up"]
        else:
            continue
        place = (match["device"], int(match["port"]))
        net = match["net"] or None
        ports.append(Port(*place, state=state, netdev=net, netdev_state=match["up"]))
    return reading("ibdev2netdev", ports, devices) if ports else None


def show_gids(found: Sequence[str], whole_end: bool) -> Infiniband | None:
    """The GID table of every port; ``n_gids_found`` at its end says how many there are."""
    gids = []
    promised: int | None = None
    headed = any(re.match(r"\s*DEV\s+PORT\s+INDEX\s+GID", line) for line in found)
    last = last_line(found)
    for place, line in enumerate(found):
        if match := _GIDS_FOUND.match(line):
            promised = (promised or 0) + int(match[1])
        elif match := _GID_ROW.match(line):
            if not whole_end and place == last:
                break
            gid = match["gid"]
            ids = (match["device"], int(match["port"]), int(match["index"]))
            gids.append(
                Gid(*ids, gid, match["ipv4"] or mapped(gid), match["version"], match["net"])
            )
    if not gids and not headed and promised is None:
        return None
    if not headed and not any(gid.version for gid in gids):
        return None
    ports = dict.fromkeys((gid.device, gid.port) for gid in gids)
    nets = {(gid.device, gid.port): gid.netdev for gid in gids if gid.netdev}
    made = [Port(*place, netdev=nets.get(place)) for place in ports]
    complete = None if promised is None else promised == len(gids)
    return reading("show_gids", made, gids=gids, complete=complete)


def rdma(found: Sequence[str], whole_end: bool) -> Infiniband | None:
    """``rdma link`` and ``rdma dev`` of iproute2, old and new."""
    ports, devices = [], []
    last = last_line(found)
    for place, line in enumerate(found):
        if match := _RDMA.match(line):
            said = _pairs(match["rest"], cut=not whole_end and place == last)
            if match["port"] != "-" and "state" in said:
                net = said.get("netdev")
                state, physical = said["state"], said.get("physical_state")
                ports.append(Port(match["device"], int(match["port"]), state, physical, netdev=net))
        elif match := _RDMA_DEV.match(line):
            said = _pairs(match["rest"].partition(" ")[2], cut=not whole_end and place == last)
            guid = said.get("node_guid")
            devices.append(Device(match["device"], firmware=said.get("fw"), node_guid=guid))
    if ports:
        return reading("rdma link", ports, devices)
    return reading("rdma dev", (), devices) if devices else None


def rdma_json(text: str) -> Infiniband | None:
    """``rdma -j link``; ``rdma -j dev`` has no ports."""
    start, end = text.find("["), text.rfind("]")
    if not 0 <= start < end or '"ifname"' not in text:
        return None
    try:
        rows = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    ports, devices = [], []
    for row in rows:
        name, port = row.get("ifname"), row.get("port")
        if not isinstance(name, str):
            continue
        if isinstance(port, int):
            state, physical = _text(row, "state"), _text(row, "physical_state")
            ports.append(Port(name, port, state, physical, netdev=_text(row, "netdev")))
        else:
            device = Device(name, firmware=_text(row, "fw"), node_guid=_text(row, "node_guid"))
            devices.append(device)
    if not ports and not devices:
        return None
    return reading("rdma link" if ports else "rdma dev", ports, devices)


def sysfs(found: Sequence[str]) -> Infiniband | None:
    """``grep . /sys/class/infiniband/*/ports/*/…``: the file's path, a colon, its text."""
    said: dict[tuple[str, int], dict[str, str]] = {}
    for line in found:
        if len(line) < 500 and (match := _SYSFS.match(line)):
            said.setdefault((match["device"], int(match["port"])), {})[match["key"]] = match[
                "value"
            ]
    ports = [
        Port(
            device,
            port,
            fields.get("state", "").partition(": ")[2] or None,
            fields.get("phys_state", "").partition(": ")[2] or None,
            rate(fields.get("rate")),
            fields.get("link_layer"),
        )
        for (device, port), fields in said.items()
    ]
    return reading("sysfs", ports) if ports else None


def ibv_devices(found: Sequence[str]) -> Infiniband | None:
    """The names of the devices and their GUIDs; nothing of ports."""
    if not any(re.match(r"\s*device\s+node GUID", line) for line in found):
        return None
    rows = [match for line in found if (match := _VERBS.match(line))]
    return reading("ibv_devices", (), [Device(m["device"], node_guid=m["guid"]) for m in rows])


def _pairs(text: str, cut: bool) -> dict[str, str]:
    words = text.split()
    if cut:
        words = words[:-1]  # a name may be cut anywhere
    return dict(zip(words[::2], words[1::2], strict=False))


def _text(row: dict[str, Any], key: str) -> str | None:
    value = row.get(key)
    return value if isinstance(value, str) else None
