"""Wheels from neighbours: how nodes that are built together take what one of them has already.

One server for all is the slowest part of a large build: each of 256 nodes takes gigabytes from it.
With ``neighbours`` each node serves what it has fetched and proved, for as long as it is built and
``linger_s`` more, and asks a few of the others before it asks the origin.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from pydantic import Field

from rackpin.stack.content import Lock
from rackpin.stack.model import Model

_HERE = Path(__file__).resolve().parent
SHARE = "share"  # below layout.ROOT; removed when its unit ends, and by tmpfiles at boot
INTO = "env/.work/wheels"  # below it too; gone once the environment is built
UNIT = "rackpin-share.service"
SHARED_FROM = 1_000_000  # bytes; asking around for less costs more than the origin's answer
ASK = 3  # neighbours asked for a file before the origin
GIVE_UP = 6  # neighbours that never answered, and none that did: they can't be reached
TRIES = 5  # of the origin, for one file
TIMES = {  # seconds
    "all": 1500,  # for everything; below the deadline of the whole operation
    "connect": 2,
    "silent": 20,  # between two blocks; also how long a transfer may be slow
    "refused": 3,  # until a neighbour that served nothing is asked again
    "lost": 60,  # until one that did not answer is
}
SLOWEST = 2_000_000  # bytes/s from a neighbour: below what 1 GbE gives each of 50 transfers


class Transfers(Model):
    """How nodes may load the network while they are built, and whether they help each other."""

    neighbours: bool = False
    port: int = Field(8902, ge=1024, le=65535)  # on each node, towards the others
    at_once: int = Field(4, ge=1, le=64)  # files that a node fetches at the same time
    slots: int = Field(4, ge=1, le=64)  # transfers that a node gives at the same time
    limit_mbit: int = Field(0, ge=0)  # what a node gives in all; 0: no limit
    linger_s: int = Field(300, ge=1, le=86400)  # a node serves on, after the last request


@dataclass(frozen=True)
class Share:
    """A node's part in it: its own address, and those of the others."""

    transfers: Transfers
    address: str
    neighbours: list[str]

    def plan(self, lock: Lock, origin: str, root: str) -> str:
        """The JSON that ``node_share_fetch.py`` reads."""
        plan = {
            "origin": origin.rstrip("/"),
            "files": [
                [wheel.filename, wheel.sha256, wheel.size] for wheel in (lock.uv, *lock.wheels)
            ],
            "neighbours": self.neighbours,
            "port": self.transfers.port,
            "at_once": self.transfers.at_once,
            "into": f"{root}/{INTO}",
            "share": f"{root}/{SHARE}",
            "shared_from": SHARED_FROM,
            "ask": ASK,
            "give_up": GIVE_UP,
            "tries": TRIES,
            "times": {**TIMES, "slowest": SLOWEST},
        }
        return json.dumps(plan, indent=0)

    def script(self, lock: Lock, origin: str, root: str) -> str:
        """The part of a build that fetches all wheels first; a node that can't serve only takes.

        From then on ``$url`` is the directory that they are in.
        """
        given = self.transfers
        words = [
            f"{root}/{SHARE}",
            self.address,
            given.port,
            given.slots,
            given.limit_mbit,
            given.linger_s,
        ]
        fetch, serve = (
            (_HERE / f"node_share_{name}.py").read_text(encoding="utf-8")
            for name in ("fetch", "serve")
        )
        return f"""
share={quote(f"{root}/{SHARE}")}
systemctl stop {UNIT} 2>/dev/null || : # of a build before; usually there is none
rm -rf "$share"
mkdir "$share"
cat >"$share/serve.py" <<'RACKPIN_END'
{serve}RACKPIN_END
cat >"$work/fetch.py" <<'RACKPIN_END'
{fetch}RACKPIN_END
cat >"$work/plan.json" <<'RACKPIN_END'
{self.plan(lock, origin, root)}
RACKPIN_END
if ! systemd-run --quiet --collect --unit={UNIT} --property=DynamicUser=yes \\
  --property=Nice=10 --property=IOSchedulingClass=idle --property=MemoryMax=256M \\
  --property=ProtectHome=yes --property="ExecStopPost=+/bin/rm -rf $share" \\
  "$python" -I "$share/serve.py" {" ".join(quote(str(word)) for word in words)} </dev/null; then
  echo "note: it gives its neighbours nothing, {UNIT} did not start"
  rm -rf "$share"
fi
"$python" -I "$work/fetch.py" "$work/plan.json" </dev/null
url="file://"{quote(f"{root}/{INTO}")}
"""
