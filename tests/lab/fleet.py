"""A lab of its own with the whole fleet on it, for the tests that change one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackpin.findings import Report
from rackpin.inventory import ROOT
from rackpin.lab import description, lifecycle, services, ssh
from rackpin.lab.state import LabState, state_root

FIRST_RUN_S = 20 * 60  # what a fresh machine may take, packages to download included
RUN_S = 20 * 60


@dataclass
class Run:
    """One run of pyinfra: exit code, what it printed, its report (None when there is none)."""

    code: int
    text: str
    seconds: float
    report: Report | None
    counts: dict[str, Any]

    @property
    def ok(self) -> Report:
        """The report of a run that must have ended ready."""
        assert self.code == 0, self.tail
        assert self.report is not None and self.report.ready, self.tail
        return self.report

    @property
    def tail(self) -> str:
        return self.text[-6000:]

    @property
    def asked(self) -> dict[str, Any]:
        """Remote executions by node, and facts that the survey had missed."""
        return {key: self.counts[key] for key in ("executions", "misses")}

    def node(self, name: str) -> Any:
        assert self.report is not None, self.tail
        return next(n for n in self.report.nodes if n.name == name)

    def finding(self, node: str, check: str) -> Any:
        assert self.report is not None, self.tail
        found = [f for f in self.report.findings if f.node == node and f.check == check]
        assert found, [(f.node, f.check) for f in self.report.findings]
        return found[0]


def changes(run: Run) -> list[str]:
    """The operations that changed something."""
    assert run.code == 0, run.tail
    done = re.findall(r"Starting operation: (.+)\n(?:(?!-->).*\n)*? +\[[\w-]+\] Success", run.text)
    assert done or "] Success" not in run.text, run.tail
    return [name.strip() for name in done]


@dataclass
class FleetLab:
    lab: LabState
    directory: Path
    first: Run | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, deploy: str, *options: str) -> list[str]:
        return [
            str(Path(sys.executable).with_name("pyinfra")),
            "-y",
            "inventories/lab.py",
            f"deploys/{deploy}.py",
            "--data",
            f"report_dir={self.directory}/reports",
            *options,
        ]

    def start(self, deploy: str, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(deploy, *options),
            cwd=ROOT,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def env(self) -> dict[str, str]:
        return {
            "RACKPIN_LAB": self.lab.name,
            "RACKPIN_COUNTS": str(self.directory / "counts.json"),
            **self.environment,
        }

    def run(self, deploy: str, *options: str, deadline_s: float = RUN_S) -> Run:
        latest = self.directory / "reports" / "latest.json"
        latest.unlink(missing_ok=True)
        counts = self.directory / "counts.json"
        counts.unlink(missing_ok=True)
        began = time.monotonic()
        process = self.start(deploy, *options)
        try:
            text, _ = process.communicate(timeout=deadline_s)
        finally:
            process.kill()
        return Run(
            process.returncode,
            text,
            time.monotonic() - began,
            Report.model_validate_json(latest.read_text()) if latest.exists() else None,
            json.loads(counts.read_text()) if counts.exists() else {},
        )

    def rackpin(
        self, *words: str, deadline_s: float = RUN_S, inventory: str = "inventories/lab.py"
    ) -> Run:
        """``rackpin …`` with the lab's inventory, as a person would call it."""
        began = time.monotonic()
        process = self.start_rackpin(*words, inventory=inventory)
        try:
            text, _ = process.communicate(timeout=deadline_s)
        finally:
            process.kill()
        return Run(process.returncode, text, time.monotonic() - began, self.latest(), {})

    def start_rackpin(
        self, *words: str, inventory: str = "inventories/lab.py"
    ) -> subprocess.Popen[str]:
        (self.directory / "reports" / "latest.json").unlink(missing_ok=True)
        return subprocess.Popen(
            [
                str(Path(sys.executable).with_name("rackpin")),
                *words[:1],
                "--inventory",
                inventory,
                "--data",
                f"report_dir={self.directory}/reports",
                *words[1:],
            ],
            cwd=ROOT,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def latest(self) -> Report | None:
        path = self.directory / "reports" / "latest.json"
        return Report.model_validate_json(path.read_text()) if path.exists() else None

    def ask(self, host: str, command: str, deadline_s: float = 60, check: bool = True) -> str:
        one = self.lab.host(host)
        return ssh.ask(self.lab, one, command, deadline_s, check=check).stdout.strip()

    def feed(self, host: str, script: str) -> str:
        """Run a script through stdin: nothing of it is in a process list."""
        command = [*ssh.argv(self.lab, self.lab.host(host), "-o", "BatchMode=yes"), "sh -s"]
        done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=120)
        return done.stdout

    def faults(self, host: str, *names: str) -> None:
        """Just these faults of the host's hardware, at once."""
        lifecycle.fault(self.lab, self.lab.host(host), names, say=print)

    def show(self, host: str, unit: str, name: str) -> str:
        return self.ask(host, f"systemctl show -P {name} -- {unit}")

    def active_since(self) -> dict[str, str]:
        """When each serving unit of each host became active."""
        command = (
            "systemctl list-units --plain --no-legend 'ray-*' 'vllm@*' | while read -r u _; do "
            "echo $u $(systemctl show -P ActiveEnterTimestampMonotonic -- $u); done"
        )
        return {host.name: self.ask(host.name, command) for host in self.lab.hosts}

    def wait_serving(self, deadline_s: float = 300) -> float:
        """Until every engine's unit is active (which means: a completion worked); seconds taken."""
        units = {"head1": "vllm@tiny-tp2", "worker2": "vllm@tiny-one"}
        return wait(
            lambda: all(self.show(h, u, "ActiveState") == "active" for h, u in units.items()),
            "every engine to serve",
            deadline_s,
        )


@contextmanager
def booted(file: Path, name: str, directory: Path) -> Iterator[FleetLab]:
    """The lab of a description, up with its services; whatever happens, nothing of it is left."""
    described = description.read(file, name)
    lifecycle.down(name, purge=True)
    lab = lifecycle.up(described, name, say=print)
    try:
        services.start(lab, print)
        yield FleetLab(lab, directory)
    finally:
        services.stop(state_root() / name)
        lifecycle.down(name, purge=True)


def wait(test: Callable[[], bool], what: str, deadline_s: float) -> float:
    began = time.monotonic()
    while time.monotonic() - began < deadline_s:
        try:
            if test():
                return time.monotonic() - began
        except Exception as error:  # a host that is on its way answers oddly: ask again
            what = f"{what.split(' (last')[0]} (last: {error})"
        time.sleep(1)
    raise AssertionError(f"gave up after {deadline_s:.0f} s waiting for {what}")
