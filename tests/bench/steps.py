"""What is measured. Each step adds to ``found``, or raises what was wrong with a run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackpin.inventory import ROOT
from tests.bench import ansible, relay
from tests.bench.measure import BenchError, Ended, Measured, counted, measured, median_of, run
from tests.bench.nodes import Nodes
from tests.bench.page import SAME, WHOLE
from tests.bench.work import COMPARED, Work, fetch, work

DEADLINE_S = 900.0  # of one run; what a benchmark may take at most on a slow machine
TOOLS = ("ansible", "stock")
SITE = ("deploys/site.py",)
STAGES = tuple(f"deploys/{stage}.py" for stage in COMPARED)
BIN = Path(sys.executable).parent
# The one-line change: one kernel setting, which is a line of a file that base owns.
SETTING = ("net.ipv4.tcp_fin_timeout", 61)
ADDED_S = 0.05  # of each round trip, for the step latency
OPERATION = re.compile(r"^--> Starting operation: ", re.M)
CHANGED = re.compile(r"\] Success", re.M)


@dataclass
class Bench:
    nodes: Nodes
    repeat: int
    say: Callable[[str], None]
    built: bool = False  # the host has what all its nodes share
    found: list[Measured] = field(default_factory=list)

    # -- rackpin -----------------------------------------------------------------
    def site(
        self, count: int, *options: str, limit: str = "", deploys: Sequence[str] = SITE
    ) -> Ended:
        """``pyinfra … deploys/site.py``; BenchError unless every node ends ready."""
        directory = self.nodes.directory
        env = {
            "RACKPIN_LAB": self.nodes.site.lab.name,
            "RACKPIN_BENCH_NODES": str(count),
            "RACKPIN_BENCH_DIR": str(directory),
            "RACKPIN_COUNTS": str(directory / "counts.json"),
            "PYTHONPATH": str(ROOT),
            **self.nodes.environment,
        }
        argv = [str(BIN / "pyinfra"), "-y", "tests/bench/inventory.py", *deploys]
        argv += ["--data", f"report_dir={directory}/reports", *options]
        argv += ["--limit", limit] if limit else []
        (directory / "counts.json").unlink(missing_ok=True)
        ended = run(argv, env, ROOT, DEADLINE_S)
        if ended.code:
            raise BenchError(
                f"site.py over {count} node(s) ended with {ended.code}:\n{said(ended)}"
            )
        return ended

    def noop(
        self,
        step: str,
        count: int,
        kind: str = "no-op",
        limit: str = "",
        deploys: Sequence[str] = SITE,
    ) -> None:
        """A run over ``count`` nodes, or without the head's over those that are left."""
        runs = []
        for _ in range(self.repeat):
            ended = self.site(count, limit=limit, deploys=deploys)
            if CHANGED.search(ended.text):
                raise BenchError(f"a run over {count} node(s) changed something:\n{said(ended)}")
            more = counted(self.nodes.directory / "counts.json")
            asked = count - 1 if limit else count
            runs.append(measured(step, "rackpin", kind, asked, ended, **more))
        self.add(median_of(runs))

    def change(self, step: str, count: int) -> None:
        """One setting in and out again; both are a change of one line of one file."""
        key, value = SETTING
        runs = []
        for number in range(self.repeat):
            given = {key: value + number}
            ended = self.site(count, "--data", f"sysctl={json.dumps(given)}")
            if not CHANGED.search(ended.text):
                raise BenchError(f"{key} changed nothing:\n{said(ended)}")
            more = counted(self.nodes.directory / "counts.json")
            runs.append(measured(step, "rackpin", "change", count, ended, **more))
        self.site(count)
        self.add(median_of(runs))

    def settle(self, count: int) -> None:
        """Let ``count`` nodes be as wished, the head first: it changes the host for all of them."""
        self.say(f"settling {count} node(s)")
        if not self.built:  # before there are others, whose /etc lies over this one
            self.nodes.grow(1)
            self.site(1)
            self.built = True
        self.nodes.grow(count)
        if count > 1:
            self.site(count, limit="n000")
        self.site(count)

    def add(self, one: Measured) -> None:
        self.found.append(one)
        self.say(
            f"{one.step}: {one.tool} {one.kind} of {one.nodes} node(s): {one.wall_s:.1f} s, "
            f"CPU {one.cpu_s:.1f} s, {one.rss_mb:.0f} MB, load {one.load:.1f} {one.more}"
        )

    # -- steps ---------------------------------------------------------------------
    def scale(self, counts: Sequence[int]) -> None:
        """(a) A run that changes nothing, and one that changes a line, over more and more nodes."""
        # all nodes first: what one node costs depends on how many the host has
        self.settle(max(counts))
        for count in counts:
            self.settle(count)
            self.noop("scale", count)
            self.change("scale", count)

    def compare(self, counts: Sequence[int], tools: Sequence[str] = TOOLS) -> None:
        """(b) The same nodes and files by rackpin, Ansible and stock pyinfra, one after another."""
        wanted, commands = work(), {"ansible": self.ansible, "stock": self.stock}
        for count in counts:
            self.settle(count + 1)  # the head has Ray's files too, so it isn't compared
            fetch(self.nodes, count, wanted)
            self.noop("compare", count + 1, WHOLE)
            self.noop("compare", count + 1, SAME, limit="monitoring", deploys=STAGES)
            for tool in tools:
                argv, env = commands[tool](count, wanted)
                self.other(tool, count, argv, env, wanted.operations)

    def ansible(self, count: int, wanted: Work) -> tuple[list[str], dict[str, str]]:
        program = ansible.install(self.nodes.directory)
        inventory, playbook = ansible.write(self.nodes, count, wanted)
        argv = [str(program), "-i", str(inventory), str(playbook)]
        return argv, ansible.environment(self.nodes, count)

    def stock(self, count: int, wanted: Work) -> tuple[list[str], dict[str, str]]:
        env = {
            "RACKPIN_LAB": self.nodes.site.lab.name,
            "RACKPIN_BENCH_NODES": str(count),
            "RACKPIN_BENCH_DIR": str(self.nodes.directory),
            "PYTHONPATH": str(ROOT),
        }
        argv = [str(BIN / "pyinfra"), "-y"]
        return [*argv, "tests/bench/stock_inventory.py", "tests/bench/stock_deploy.py"], env

    def other(
        self, tool: str, count: int, argv: list[str], env: dict[str, str], operations: int
    ) -> None:
        """Another tool: a first run that may mend differences of taste, then those that count."""
        first = run(argv, env, ROOT, DEADLINE_S)
        (self.nodes.directory / f"{tool}-first.log").write_text(first.text)
        if first.code:
            raise BenchError(f"{tool}, first run, ended with {first.code}:\n{said(first)}")
        runs = []
        for _ in range(self.repeat):
            ended = run(argv, env, ROOT, DEADLINE_S)
            (self.nodes.directory / f"{tool}.log").write_text(ended.text)
            check_nothing_changed(tool, count, operations, ended)
            runs.append(measured("compare", tool, "no-op", count, ended, operations=operations))
        self.add(median_of(runs))

    def latency(self, added_s: float = ADDED_S) -> None:
        """(e) A run that changes nothing on one node that is ``added_s`` further away."""
        self.settle(1)
        self.noop("latency", 1, "no-op near")
        with relay.slower(self.nodes.address, 22, added_s) as port:
            self.nodes.through(port)
            try:
                self.noop("latency", 1, f"no-op +{added_s * 1000:g} ms")
            finally:
                self.nodes.environment.clear()


def check_nothing_changed(tool: str, count: int, operations: int, ended: Ended) -> None:
    """BenchError unless each of ``count`` nodes had every operation and none changed anything."""
    if ended.code:
        raise BenchError(f"{tool} ended with {ended.code}:\n{said(ended)}")
    if tool == "ansible":
        odd = {
            host: numbers
            for host, numbers in ansible.recap(ended.text).items()
            if numbers != (operations, 0, 0, 0)
        }
        if odd or len(ansible.recap(ended.text)) != count:
            raise BenchError(f"ansible: (ok, changed, unreachable, failed) is {odd}")
        return
    done = len(OPERATION.findall(ended.text))
    if CHANGED.search(ended.text) or done != operations:
        raise BenchError(
            f"{tool} had {done} operations instead of {operations}, or changed something:\n"
            + said(ended)
        )


def said(ended: Ended) -> str:
    return ended.text[-4000:]
