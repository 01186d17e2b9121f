"""What a stage plans from the survey's answers is what it plans when each fact is asked alone.

For every stage on every preset of hardware. Commands run here by sh, this machine standing for a
bare host; cards and adapters, their programs and systemd are simulated.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import Config, State
from pyinfra.api.state import StateStage
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_config, ctx_host, ctx_inventory, ctx_state

from rackpin import deploy, runlog
from rackpin.checks.batch import quoted
from rackpin.connector import FleetConnector, raw
from rackpin.inventory import ROOT
from rackpin.inventory_check import fleet_from_pyinfra
from rackpin.inventory_source import made_inventory
from rackpin.lab.hardware import presets
from rackpin.lab.hardware.sysfs import files
from rackpin.lab.hardware.tree import write
from rackpin.stages import STAGES
from tests.unit.hardware_host import put

# every preset once, and a stack whose debs are all resolved
CASES = [(name, "r535-vllm0.19") for name in presets.names()] + [("h100-sxm-8", "debian12-r535")]
# pyinfra's own operations for a host's name and a mask, which most nodes never need
STOCK = ("uname -n", "command -v hostnamectl", "! (test -e /etc/systemd/system")
# systemd as on a host where everything that is asked for is there, and off
SYSTEMCTL = r"""#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --) shift; break;; esac; shift; done
for unit; do
  printf 'Id=%s\nLoadState=loaded\nActiveState=inactive\nSubState=dead\n' "$unit"
  printf 'UnitFileState=disabled\nNeedDaemonReload=no\n\n'
done
"""
INVENTORY = """
key = {key!r}
head = [("@fleet/n1", {{"address": "10.9.0.11", "sku": {sku!r}}})]
gateway = [("@fleet/g1", {{"address": "10.9.0.21", "sku": "cpu"}})]
instance = {{"name": "one", "served_name": "one", "nodes": ["n1"], "model": "/srv/m", "tp": 2,
    "api_key_file": key}}
values = {{"fleet": "planned", "stack": {stack!r}, "wheelhouse_url": "http://10.9.0.1:8900",
    "instances": [instance], "state_dir": {state!r}}}
all = ([*head, *gateway], values)
"""


@dataclass
class Plan:
    """By node, stage and operation: the commands with what goes in; further what was said."""

    commands: dict[tuple[str, str, str], list[tuple[str, str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # facts, one by one


class Host:
    """This machine with the hardware of a preset; a directory of its own."""

    def __init__(self, home: Path, preset: str) -> None:
        self.home = home
        node = presets.node("n1", preset)
        put(node, home)
        for name, content in files(node).items():
            write(home / "root" / "sys" / name, content)
        memory = home / "root" / "proc" / "meminfo"
        memory.parent.mkdir(parents=True)
        memory.write_text("MemTotal: 2113560000 kB\n")
        self.asked: list[str] = []
        self.bin = home / "current" / "bin"
        (self.bin / "systemctl").write_text(SYSTEMCTL)
        (self.bin / "systemctl").chmod(0o755)

    def run(self, text: str, stdin: str) -> tuple[bool, CommandOutput]:
        """As the node would: its own programs come first, its own /sys is looked at."""
        if not stdin:
            self.asked.append(text)
        here, none = f"root={self.home}/root\n", "root=''\n"
        both = [
            part.replace(none, here)
            .replace(quoted(none)[1:-1], here)  # a command inside of a script
            .replace("\nPATH=", f"\nPATH={self.bin}:")
            for part in (text, stdin)
        ]
        done = subprocess.run(
            ["sh", "-c", both[0]], input=both[1], text=True, capture_output=True, timeout=120,
            env={"PATH": f"{self.bin}:{os.environ['PATH']}", "LC_ALL": "C"},
        )  # fmt: skip
        lines = [OutputLine("stdout", line) for line in done.stdout.splitlines()]
        return done.returncode == 0, CommandOutput(lines)


@contextmanager
def prepared(file: Path, machine: Host, surveyed: bool) -> Iterator[runlog.RunLog]:
    """A run that is about to load its deploy files."""
    inventory = made_inventory(str(file), {}, [])
    state = State(inventory, Config())
    state.current_stage = StateStage.Prepare
    fleet = fleet_from_pyinfra(inventory, str(file))
    run = runlog._runs[id(state)] = runlog.RunLog(state, fleet, runlog.locked(fleet))

    def ask(self: Any, command: Any, *_: Any, **arguments: Any) -> Any:
        self.executions += 1
        return machine.run(raw(command), arguments.get("_stdin") or "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FleetConnector, "run_once", ask)
        patch.setattr(deploy, "source_problems", lambda run: [])
        real = deploy.survey_fleet  # this machine is no node of any fleet: that is not the question
        patch.setattr(deploy, "survey_fleet", lambda run, refuse: real(run, refuse=False))
        if not surveyed:
            patch.setattr(FleetConnector, "survey", lambda self, facts: None)
        for host in inventory:
            host.connected = True
            state.activate_host(host)
        try:
            yield run
        finally:
            del runlog._runs[id(state)]


def plan(file: Path, machine: Host, surveyed: bool) -> Plan:
    made = Plan()
    machine.asked = made.asked
    with prepared(file, machine, surveyed) as run, ctx_state.use(run.state):
        state = run.state
        with ctx_inventory.use(state.inventory), ctx_config.use(state.config):
            for host in state.inventory:
                for stage in STAGES:
                    before = len(host.op_hash_order)
                    path = ROOT / "deploys" / f"{stage}.py"
                    with ctx_host.use(host):
                        exec(compile(path.read_text(), str(path), "exec"), {})
                        for op_hash in host.op_hash_order[before:]:
                            data = state.ops[host][op_hash]
                            name = str(data.global_arguments["name"])
                            made.commands[host.name, stage, name] = list(told(data))
        assert not state.failed_hosts
        made.notes = sorted(run.notes)
    return made


def told(data: Any) -> Iterable[tuple[str, str]]:
    for command in data.command_generator():
        given = getattr(command, "connector_arguments", {})
        yield raw(command), str(given.get("_stdin") or "")


@pytest.mark.parametrize(("preset", "stack"), CASES)
def test_survey_plan_is_live_plan(preset: str, stack: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    key.chmod(0o600)
    file = tmp_path / "fleet.py"
    given = {"key": str(key), "sku": preset, "stack": stack, "state": str(tmp_path / "state")}
    file.write_text(INVENTORY.format(**given))
    machine = Host(tmp_path / "host", preset)
    surveyed, live = plan(file, machine, True), plan(file, machine, False)
    assert [text for text in surveyed.asked if not text.startswith(STOCK)] == []
    assert len(live.asked) > len(surveyed.asked) + 2 * len(STAGES)
    assert surveyed.commands.keys() == live.commands.keys()
    for where, commands in live.commands.items():
        assert surveyed.commands[where] == commands, where
    assert surveyed.notes == live.notes
    planned = {stage for (_, stage, _), commands in live.commands.items() if commands}
    assert planned >= {"base", "driver", "fabric", "python", "serve", "gateway", "audit"}, planned
