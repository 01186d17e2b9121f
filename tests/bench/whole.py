"""The two steps that have scripts elsewhere: a first build of the lab, a verify of 64 nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rackpin.inventory import ROOT
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from tests.bench.measure import BenchError, Measured, measured, run
from tests.lab.fleet import FIRST_RUN_S, booted
from tests.unit.verify_many import COUNT

LAB = "test-bench-build"
VERIFY_S = 600.0


def build(directory: Path) -> list[Measured]:
    """(c) Three bare lab hosts to a serving fleet, with the seconds of each stage."""
    wheelhouse.build(load_stack("cpu-lab"), say=print)
    with booted(ROOT / "lab" / "lab.yaml", LAB, directory) as site:
        ended = run(site.command("site"), site.env, ROOT, FIRST_RUN_S)
        report = site.latest()
        if ended.code or report is None or not report.ready:
            raise BenchError(f"the first build ended with {ended.code}:\n{ended.text[-4000:]}")
        stages = report.stage_seconds
        count = len(report.nodes)
        return [measured("build", "rackpin", "build", count, ended, stage_seconds=stages)]


def verify(directory: Path) -> list[Measured]:
    """(d) A verify of simulated nodes with eight cards each: judging and report, no connection."""
    argv = [sys.executable, "-m", "tests.unit.verify_many", str(directory / "verify"), "node"]
    ended = run(argv, {}, ROOT, VERIFY_S)
    if ended.code:
        raise BenchError(f"verify_many ended with {ended.code}:\n{ended.text[-4000:]}")
    told = json.loads(ended.text.splitlines()[-1])
    return [measured("verify", "rackpin", "verify", COUNT, ended, **told)]
