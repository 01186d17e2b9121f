"""A roll over 1,000 nodes, planned and written: CPU seconds and peak memory, as JSON.

A process of its own, since a peak is a process's. Nodes answer as a built host would.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rackpin import layout
from rackpin.checks import procinfo
from rackpin.checks.base import Output
from rackpin.desired import Target
from rackpin.facts import PathState
from rackpin.roll.change import change
from rackpin.roll.make import new_plan
from rackpin.roll.model import Options
from rackpin.roll.store import FileStore
from rackpin.stack.lock import load_stack
from rackpin.stages import STAGES
from tests.unit.roll_samples import serving_fleet
from tests.unit.test_adopt import built

NODES = 1000
SILENT = "".join(f"## {p}\n" for p in ("self", "cgroup", "comm", "exe", "limits", "maps", "end"))


def main(directory: Path) -> None:
    key = directory / "key"
    key.write_text("sk-test-0123456789abcdef\n")
    lock = load_stack("cpu-lab").lock
    fleet = serving_fleet(directory, key, NODES)
    changes, spent = {}, 0.0
    for node in fleet.nodes.values():
        target = Target(fleet, node, lock, interface="host0")
        found = built(target)  # what its answers were; making them up isn't planning
        found.busy = [unit.removesuffix(".service") for unit in STAGES["ray"](target).units]
        found.paths[layout.CURRENT] = PathState("link", target=f"{layout.ENV_DIR}/before")
        began = time.process_time()
        changes[node.name] = change(target, found, {procinfo.COMMAND.name: Output(0, SILENT)})
        spent += time.process_time() - began
    began = time.process_time()
    plan, problems = new_plan(fleet, lock, changes, Options(), inventory="i.py", owner="ada")
    store = FileStore(directory / "rolls")
    roll = store.begin(plan)
    for unit in plan.units:
        roll.note("begun", units=[unit.name])
    again = store.last()
    spent += time.process_time() - began
    # getrusage's peak would be that of whoever started this process, where it had more
    status = dict(row.split(":", 1) for row in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0])
    kinds = sorted({one.kind for one in changes.values()})
    said = {"seconds": spent, "peak_mb": peak / 1024, "nodes": len(changes), "kinds": kinds,
            "begun": sum(p.state == "begun" for p in again.progress().values()) if again else 0,
            "problems": len(problems)}  # fmt: skip
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
