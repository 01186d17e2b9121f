"""The two steps that have scripts elsewhere: a first build of the lab, a verify of 64 nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rackpin.bundle import remote
from rackpin.inventory import ROOT
from rackpin.lab import lifecycle, services
from rackpin.stack.lock import load_stack
from tests.bench.measure import BenchError, Measured, measured, run
from tests.lab.fleet import FIRST_RUN_S, FleetLab, booted, wait
from tests.unit.verify_many import COUNT

LAB = "test-bench-build"
REBUILT = "worker2"  # it serves an engine by itself
PORT = 8901
BUNDLE_S = 900.0
VERIFY_S = 600.0


def build(directory: Path) -> list[Measured]:
    """(c) Three bare lab hosts to a serving fleet from a bundle; then one of them once more."""
    with (
        booted(ROOT / "lab" / "lab.yaml", LAB, directory) as site,
        served(directory / "bundle", site.lab.control_address) as options,
    ):
        found = [once(site, "build", options)]
        lifecycle.reset(site.lab, [site.lab.host(REBUILT)], say=print)
        services.start(site.lab, print)  # its model was on that disk
        return [*found, once(site, "rebuild", [*options, "--limit", REBUILT])]


def once(site: FleetLab, kind: str, options: Sequence[str]) -> Measured:
    """One ``site.py``: seconds of each stage, and how many of them its own commands took.

    The rest is rackpin's and pyinfra's: start, survey, planning, facts, verify and report.
    """
    ended = run(site.command("site", *options), site.env, ROOT, FIRST_RUN_S)
    report = site.latest()
    if ended.code or report is None or not report.ready:
        raise BenchError(f"the {kind} ended with {ended.code}:\n{ended.text[-4000:]}")
    working = json.loads((site.directory / "counts.json").read_text())["working_s"]
    asked = [node.name for node in report.nodes if node.state == "ready"]
    own = {"of": asked, "stage_seconds": report.stage_seconds}
    if len(asked) == 1:  # of several nodes the slowest counts, and which that is changes
        stages = {stage: round(s, 2) for stage, s in working[asked[0]].items()}
        waited = ended.wall_s - sum(stages.values())
        own |= {"working_seconds": stages, "waited_s": round(waited, 2)}
        own["waited_percent"] = round(100 * waited / ended.wall_s, 1)
    return measured("build", "rackpin", kind, len(asked), ended, **own)


@contextmanager
def served(bundle: Path, address: str) -> Iterator[list[str]]:
    """A bundle of the lab's stack, served; the options that build a fleet from it."""
    tool = [str(Path(sys.executable).with_name("rackpin")), "bundle"]
    made = run([*tool, "cpu-lab", "-o", str(bundle), "--without-unresolved"], {}, ROOT, BUNDLE_S)
    if made.code:
        raise BenchError(f"rackpin bundle ended with {made.code}:\n{made.text[-4000:]}")
    log = bundle.with_suffix(".log")
    serve = [*tool, "serve", str(bundle), "--bind", address, "--port", str(PORT)]
    with subprocess.Popen([*serve, "--log", str(log)], cwd=ROOT) as server:
        try:
            url, lock = f"http://{address}:{PORT}", load_stack("cpu-lab").lock
            wait(lambda: not remote.problems(url, lock), "the bundle", 30)
            given = json.dumps({"url": url, "trusted": True})
            yield ["--data", f"bundle={given}", "--data", f"wheelhouse_url={url}/wheelhouse"]
        finally:
            server.terminate()


def verify(directory: Path) -> list[Measured]:
    """(d) A verify of simulated nodes with eight cards each: judging and report, no connection."""
    argv = [sys.executable, "-m", "tests.unit.verify_many", str(directory / "verify"), "node"]
    ended = run(argv, {}, ROOT, VERIFY_S)
    if ended.code:
        raise BenchError(f"verify_many ended with {ended.code}:\n{ended.text[-4000:]}")
    told = json.loads(ended.text.splitlines()[-1])
    return [measured("verify", "rackpin", "verify", COUNT, ended, **told)]
