"""GIDs of a RoCE port, as ``ibv_devinfo -v`` and ``show_gids`` print them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin.parse.infiniband_model import Gid

HCA = re.compile(r"[\s#>]*hca_id:\s*(\S{1,64})")
HCA_PORT = re.compile(r"\s*port:\s*(\d{1,3})\s*$")
_GID = re.compile(r"\s*GID\[\s*(\d{1,4})\]:\s*([0-9a-fA-F:.]{2,45})(?:,\s*(?:RoCE )?(\S.*?))?\s*$")


def gids(found: Sequence[str]) -> list[Gid]:
    """The ``GID[  0]:`` lines, each with the device and port above it."""
    made = []
    device, port = None, None
    for line in found:
        if match := HCA.match(line):
            device, port = match[1], None
        elif match := HCA_PORT.match(line):
            port = int(match[1])
        elif match := _GID.match(line):
            version = match[3] if match[3] in ("v1", "v2") else None
            made.append(Gid(device, port, int(match[1]), match[2], mapped(match[2]), version))
    return made


def mapped(gid: str) -> str | None:
    """The IPv4 address of an IPv4-mapped GID, in either notation."""
    if match := re.fullmatch(r"::ffff:(\d{1,3}(?:\.\d{1,3}){3})", gid, re.I):
        return match[1]
    match = re.fullmatch(r"(?:0{1,4}:){5}ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})", gid, re.I)
    if not match:
        return None
    high, low = int(match[1], 16), int(match[2], 16)
    return f"{high >> 8}.{high & 255}.{low >> 8}.{low & 255}"
