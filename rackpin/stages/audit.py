"""audit: the node compares itself with its expectation, by a timer; metrics for Prometheus."""

from __future__ import annotations

from rackpin import layout
from rackpin.alike import alike
from rackpin.audit import expect, script
from rackpin.audit.node.main import EXPECTED
from rackpin.desired import Desired, OwnedDir, OwnedFile, Target, owned

STAGE = "audit"
TIMER = "rackpin-audit.timer"
PROGRAM = f"{layout.LIB}/audit"
METRICS = f"{layout.STATE}/metrics"  # for node exporter's --collector.textfile.directory
TEXTFILE = f"{METRICS}/rackpin-audit.prom"
EVERY = "1h"
SPREAD = "15min"  # a fleet must not read all its disks at once


@alike
def _own(_: Target) -> Desired:
    return Desired(
        files=(
            owned("usr/local/lib/rackpin/audit.j2", mode="755", values=program()),
            owned(
                "etc/systemd/system/rackpin-audit.service.j2",
                values={"program": PROGRAM, "textfile": TEXTFILE, "metrics": METRICS},
                triggers=("daemon-reload",),
            ),
            owned(
                "etc/systemd/system/rackpin-audit.timer.j2",
                values={"every": EVERY, "spread": SPREAD},
                triggers=("daemon-reload",),
            ),
        ),
        directories=(OwnedDir(METRICS),),
        units=(TIMER,),
    )


def _listed(target: Target) -> OwnedFile:
    own = _own(target)
    expectation = expect.for_node(target, without=STAGE, more=[own])
    # It holds digests of secret files: a weak secret could be guessed from one.
    return OwnedFile(EXPECTED, expect.owned_json(expectation), mode="600")


def desired(target: Target) -> Desired:
    own = _own(target)
    # the same whatever the survey found on the node
    listed = expect.anywhere(target).once(_listed)
    return Desired(
        files=(*own.files, listed),
        directories=own.directories,
        units=own.units,
    )


def program() -> dict[str, str]:
    return {"python": script.PYTHON, "source": script.installed()}
