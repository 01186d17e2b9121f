"""``python -m tests.unit.verify_many DIRECTORY``: a verify of 64 simulated nodes, and its cost.

Nodes answer as simulated H100 servers do; everything else is the real thing, report included.
Prints one line of JSON: seconds, megabytes at most, findings, rounds, bad ones by name.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rackpin import report as reports
from rackpin.checks import batch
from rackpin.checks.base import Command, Context, Output, Runner
from rackpin.findings import Finding, Level
from rackpin.fleet import mark as marks
from rackpin.inventory import Fleet, FleetConfig
from rackpin.lab.hardware import presets
from rackpin.stack.lock import load_stack
from rackpin.verify.document import make
from rackpin.verify.idle import HOLDERS
from rackpin.verify.run import go, new_course
from rackpin.verify.session import Session
from tests.unit import checks_samples, gpu_samples, host_samples
from tests.unit.nccl_fabric import Fabric, fleet_of
from tests.unit.test_checks_gpu_allreduce import run as all_reduce

SKU, COUNT = "h100-sxm-8", 64
BAD_LINK = frozenset({"gpu17", "gpu42"})
FAULTS = {"gpu05": ["gpu-missing=5", "hca-down=mlx5_3"]}
IDENTITY = (
    "@@ board\n@@ machine\n{name}\n@@ driver\nloaded\n@@ gpus\n@@ hcas\n@@ nics\n@@ pci\n"
    "@@ memory\n1000\n@@ disks\n@@ keys\n@@ end\n"
)


class Simulated:
    """The ways to simulated nodes, in this process."""

    def __init__(self, fleet: Fleet, context: Callable[[str], Context]) -> None:
        self.fleet, self.context = fleet, context
        self.unreachable: dict[str, str] = {}
        self.ask = Fabric(fleet, factor=lambda nodes: 0.6 if set(nodes) == BAD_LINK else 1.0)
        self._speed: Output | None = None

    def runner(self, name: str) -> Runner:
        def run(commands: Sequence[Command]) -> dict[str, Output]:
            known = self.answers(name)
            return {c.name: known[c.name] for c in commands if c.name in known} | {
                batch.CLOCK: known[batch.CLOCK]
            }

        return run

    def answers(self, name: str) -> dict[str, Output]:
        ctx = self.context(name)
        node = presets.node(name, SKU, FAULTS.get(name, []))
        self._speed = self._speed or all_reduce(ctx, SKU)
        others = "".join(f"## {n.name}\n{n.address} x\n" for n in self.fleet.nodes.values())
        own = ctx.node
        return (
            checks_samples.good(ctx)
            | gpu_samples.answers(ctx, node)
            | host_samples.gpu_answers(node)
            | {
                "hosts": checks_samples.ok(
                    f"## self {name}\n{own.address} {name}\n{others}## end\n"
                ),
                marks.READ.name: checks_samples.ok(""),
                marks.IDENTITY.name: checks_samples.ok(IDENTITY.format(name=name)),
                HOLDERS.name: checks_samples.ok("end\n"),
                "gpu.allreduce.engine": self._speed,
                "gpu.allreduce.host": self._speed,
            }
        )

    @staticmethod
    def each(names: Sequence[str], work: Callable[[str], Any]) -> dict[str, Any]:
        return {name: work(name) for name in names}

    @staticmethod
    def executions(name: str) -> int:
        return 1


class Silent:
    def phase(self, name: str, total: int) -> None: ...

    def node_done(self, name: str, findings: Sequence[Finding]) -> None: ...

    def tell(self, text: str) -> None: ...


def most_memory_kib() -> int:
    """Of this program alone: what getrusage says counts the process it was forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main(directory: Path, level: Level) -> Mapping[str, Any]:
    lock = load_stack("cpu-lab").lock.but(debs_closure={})
    config = FleetConfig(fleet="many", stack="cpu-lab", wheelhouse_url="http://10.9.0.1:8900")
    fleet = fleet_of(Fleet(config=config, nodes={}), COUNT)
    began = time.monotonic()
    session = Session(fleet, lock, level, serving=False)
    ways = Simulated(fleet, session.context)
    course = new_course(list(fleet.nodes))
    go(session, course, ways, Silent(), write=False)
    document = make(session, course)
    reports.write(document, directory)
    bad = sorted({f.node for f in document.findings if f.outcome == "fail"})
    return {
        "seconds": round(time.monotonic() - began, 1),
        "megabytes": most_memory_kib() // 1024,
        "findings": len(document.findings),
        "measurements": len(document.measurements),
        "rounds": len(ways.ask.runs),
        "bad": bad,
        "checks": len({f.check for f in document.findings}),
        "ready": document.ready,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))  # type: ignore[arg-type]
