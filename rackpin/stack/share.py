"""From neighbours: how nodes that are built together take what one of them has already.

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
UNITS = "/run/systemd/system"  # gone after a reboot
SHARED_FROM = 1_000_000  # bytes; asking around for less costs more than the origin's answer
ASK = 3  # neighbours asked for a file before the origin
GIVE_UP = 6  # neighbours that never answered, and none that did: they can't be reached
TRIES = 5  # of the origin, for one file
TIMES = {  # seconds
    "all": 1500,  # for all wheels; below the deadline of the whole operation
    "say": 30,  # between two lines that say how far it is
    "connect": 2,
    "silent": 20,  # between two blocks; also how long a transfer may be slow
    "refused": 1,  # until a neighbour that served nothing is asked again
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
class Wanted:
    """Files that a node fetches: name below ``origin`` and ``into``, sha256, bytes."""

    origin: str
    into: str
    files: tuple[tuple[str, str, int], ...]
    all_s: int = int(TIMES["all"])
    # Where others may have files too: the file whose presence says that rackpin put them there.
    ours: str = ""  # "": a place of the moment


@dataclass(frozen=True)
class Share:
    """A node's part in it: its own address, and those of the others."""

    transfers: Transfers
    address: str
    neighbours: list[str]

    def script(self, lock: Lock, origin: str, root: str) -> str:
        """The part of a build that fetches all wheels first; a node that can't serve only takes.

        From then on ``$url`` is the directory that they are in.
        """
        files = tuple((w.filename, w.sha256, w.size) for w in (lock.uv, *lock.wheels))
        wanted = Wanted(origin, f"{root}/{INTO}", files)
        fetch = fetch_script(wanted, self.transfers, self, root)
        return f'{fetch}url="file://"{quote(wanted.into)}\n'

    def serve_script(self, root: str) -> str:
        """What starts the node's own server; without it the node only takes."""
        given = self.transfers
        words = [
            f"{root}/{SHARE}",
            self.address,
            given.port,
            given.slots,
            given.limit_mbit,
            given.linger_s,
        ]
        # A file of its own: of a transient unit systemd forgets the `+` of ExecStopPost, and so the
        # whole line, when any other program has it reload.
        return f"""
share={quote(f"{root}/{SHARE}")}
unit={quote(f"{UNITS}/{UNIT}")}
systemctl stop {UNIT} 2>/dev/null || : # of a build before; usually there is none
rm -rf "$share"
mkdir "$share"
cat >"$share/serve.py" <<'RACKPIN_END'
{_part("serve")}RACKPIN_END
cat >"$unit" <<RACKPIN_END
[Unit]
Description=Files for nodes that rackpin builds at the same time
CollectMode=inactive-or-failed
[Service]
Type=notify
TimeoutStartSec=20
DynamicUser=yes
ProtectHome=yes
Nice=10
IOSchedulingClass=idle
MemoryMax=256M
ExecStart="$python" -I "$share/serve.py" {" ".join(quote(str(word)) for word in words)}
ExecStopPost=+/bin/rm -rf "$share" "$unit"
RACKPIN_END
if ! systemctl daemon-reload || ! systemctl start {UNIT}; then
  echo "note: it gives its neighbours nothing, {UNIT} did not start"
  rm -rf "$share" "$unit"
fi
"""


def _part(name: str) -> str:
    return (_HERE / f"node_share_{name}.py").read_text(encoding="utf-8")


def plan(wanted: Wanted, transfers: Transfers, share: Share | None, root: str) -> str:
    """The JSON that ``node_share_fetch.py`` reads."""
    values = {
        "origin": wanted.origin.rstrip("/"),
        "files": wanted.files,
        "neighbours": share.neighbours if share else [],
        "port": transfers.port,
        "at_once": transfers.at_once,
        "into": wanted.into,
        "ours": wanted.ours,
        "share": f"{root}/{SHARE}" if share else "",
        "shared_from": SHARED_FROM,
        "ask": ASK,
        "give_up": GIVE_UP,
        "tries": TRIES,
        "times": {**TIMES, "all": wanted.all_s, "slowest": SLOWEST},
    }
    return json.dumps(values, indent=0)


def fetch_script(wanted: Wanted, transfers: Transfers, share: Share | None, root: str) -> str:
    """The lines of a script that fetch it all; they use its ``$work`` and ``$python``."""
    return f"""{share.serve_script(root) if share else ""}
cat >"$work/fetch.py" <<'RACKPIN_END'
{_part("fetch")}RACKPIN_END
cat >"$work/plan.json" <<'RACKPIN_END'
{plan(wanted, transfers, share, root)}
RACKPIN_END
"$python" -I "$work/fetch.py" "$work/plan.json" </dev/null
"""
