"""``mlxlink``, as text and as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin.parse.infiniband_model import LANE_GBPS, Infiniband, Port, lanes, reading
from rackpin.parse.text import number

_MLXLINK = re.compile(r'\s*"?([A-Z][A-Za-z .()]{1,40}?)"?\s*:\s*"?(.*?)"?,?\s*$')


def mlxlink(found: Sequence[str]) -> Infiniband | None:
    """One port's operational state, as text or as JSON, whose device only the command names."""
    fields: dict[str, str] = {}
    for line in found:
        if match := _MLXLINK.match(line):
            said = match[2].strip()
            fields.setdefault(match[1].strip(), "" if said == "N/A" else said)
    titled = any("Operational Info" in line for line in found)
    if not {"State", "Physical state"} <= fields.keys():
        return None
    if not titled and not {"Speed", "Width"} & fields.keys():
        return None
    tool = "mlxlink json" if any('"State"' in line for line in found) else "mlxlink"
    speed, width = fields.get("Speed") or None, fields.get("Width") or None
    gbps, layer = _mlxlink_speed(speed or "", width)
    port = Port(
        None,
        None,
        fields["State"] or None,
        fields["Physical state"] or None,
        gbps,
        layer,
        width=width,
        speed=speed,
        fec=fields.get("FEC") or None,
    )
    return reading(tool, [port])


def _mlxlink_speed(speed: str, width: str | None) -> tuple[int | float | None, str | None]:
    if match := re.match(r"IB-([A-Z]+\d*)$", speed):
        lane, count = LANE_GBPS.get(match[1]), lanes(width)
        return (lane * count if lane and count else None), "InfiniBand"
    if match := re.match(r"(\d+(?:\.\d+)?)G(?:bE|E|_)?", speed):
        return number(match[1]), "Ethernet"
    return None, None
