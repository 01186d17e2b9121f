"""The driver stage's operations against a stub host: what they send, and when they stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api import FunctionCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.context import ctx_host

from rackpin import deadlines
from rackpin import operations_driver as operations
from rackpin.driver import scripts
from rackpin.driver.state import DriverState
from rackpin.facts import Units
from rackpin.facts_driver import Gpu
from rackpin.runlog import NodeLog
from rackpin.stages.driver import FABRIC
from tests.unit.driver_samples import BARE, KERNEL, OTHER, READY, SOUND, VERSION, WANT, text


@dataclass
class StubHost:
    """Answers the survey's fact with a state, and each later look with the next text."""

    state_found: DriverState | str | None
    looks: list[list[str]] = field(default_factory=list)
    units: dict[str, dict[str, str]] = field(default_factory=dict)
    is_executing: bool = True
    name: str = "gpu1"
    noops: list[str] = field(default_factory=list)
    current_op_global_arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> StubHost:
        return self

    @property
    def connector(self) -> StubHost:
        return self

    def get_fact(self, fact: Any, **kwargs: Any) -> Any:
        if fact is Units:
            return self.units
        assert fact is Gpu
        return self.state_found

    def feed(self, script: str, **arguments: Any) -> str:
        assert arguments["_timeout"] > 0, "every command has a deadline"
        return "\n".join(self.looks.pop(0))

    def noop(self, why: str) -> None:
        self.noops.append(why)

    def log(self, what: str) -> None:
        return


def run_log() -> Any:
    return SimpleNamespace(nodes={"gpu1": NodeLog()}, notes=[])


def sent(
    operation: Any, host: StubHost, run: Any = None, want: Any = WANT, **more: Any
) -> list[Any]:
    with ctx_host.use(host):
        if operation is operations.no_fabric_manager:
            return list(operation._inner(want=want))
        return list(operation._inner(run=run or run_log(), want=want, **more))


ALL = (operations.modules, operations.load, operations.reboot, operations.proof)


@pytest.mark.parametrize("operation", ALL)
def test_a_sound_node_needs_nothing(operation: Any) -> None:
    host = StubHost(SOUND)
    assert sent(operation, host) == [] and len(host.noops) == 1


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("found", [None, "lsmod failed (127)"])
def test_what_could_not_be_looked_at_stops_the_node(operation: Any, found: Any) -> None:
    run = run_log()
    (command,) = sent(operation, StubHost(found), run)
    assert "exit 1" in str(command) and run.nodes["gpu1"].error


def test_modules_are_built_then_proved() -> None:
    missing = replace(READY, dkms=(), built={})
    run = run_log()
    (build,) = sent(operations.modules, StubHost(missing, [text()]), run)
    script = build.connector_arguments["_stdin"]
    assert f"dkms install -m nvidia -v {VERSION} -k {KERNEL} --force" in script
    assert build.connector_arguments["_timeout"] == deadlines.DKMS_S
    assert run.nodes["gpu1"].error == ""


@pytest.mark.parametrize(
    "after", [text(dkms="= 0", built="", errors="nv.c:1:1: error: x"), text()[:-1], [""]]
)
def test_a_build_without_its_proof_stops_the_node(after: list[str]) -> None:
    run = run_log()
    _, command = sent(operations.modules, StubHost(replace(READY, dkms=()), [after]), run)
    assert "exit 1" in str(command)
    assert "not proven for the running and the next kernel" in run.nodes["gpu1"].error


def test_a_module_is_loaded_only_where_no_reboot_is_due() -> None:
    fresh = replace(SOUND, loaded="", flavour="", params={}, modules=frozenset())
    (command,) = sent(operations.load, StubHost(fresh))
    script = command.connector_arguments["_stdin"]
    assert script.startswith("modprobe nvidia && modprobe nvidia-uvm ||")
    half = replace(fresh, modules=frozenset({"nvidia"}), loaded=VERSION)
    (command,) = sent(operations.load, StubHost(half))
    assert command.connector_arguments["_stdin"].startswith("modprobe nvidia-uvm ||")
    host = StubHost(READY)
    assert sent(operations.load, host) == [] and host.noops == ["a reboot loads it"]


BOOTED = text(boot="another-boot")


def names(commands: Sequence[Any]) -> list[str]:
    return [
        command.function.__name__ if isinstance(command, FunctionCommand) else str(command)
        for command in commands
    ]


def test_a_reboot_says_why_and_is_compared_afterwards() -> None:
    run = run_log()
    commands = sent(operations.reboot, StubHost(READY, [BOOTED]), run)
    assert names(commands) == [scripts.REBOOT, "wait_for_boot"]
    (note,) = run.notes
    assert f"kernel {OTHER} runs, {KERNEL} is pinned" in note and "nouveau" in note
    assert run.nodes["gpu1"].error == ""


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (text(boot=READY.boot_id), "the boot id is still"),
        (text(boot="x", running=OTHER), f"kernel {OTHER} runs"),
        (text(boot="x", modules="Module\nnouveau 1 0\n= 0", loaded=""), "nouveau"),
        (text(boot="x", loaded=""), "no NVIDIA module is loaded"),
        (text(boot="x", loaded="", version="535.104.05"), "535.104.05"),
        (text(boot="x")[:-1], "cut"),
    ],
)
def test_another_boot_than_the_one_wanted_stops_the_node(after: list[str], words: str) -> None:
    run = run_log()
    commands = sent(operations.reboot, StubHost(READY, [after]), run)
    assert "exit 1" in str(commands[-1])
    assert run.nodes["gpu1"].error.startswith("after the reboot") and words in str(commands[-1])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (replace(READY, dkms=()), "is not built"),
        (replace(READY, initrds=()), "initrd"),
        (replace(READY, engines=("vllm@a.service",)), "vllm@a.service would be stopped"),
    ],
)
def test_a_reboot_that_must_not_be_is_not_done(found: DriverState, words: str) -> None:
    run = run_log()
    (command,) = sent(operations.reboot, StubHost(found), run)
    assert "systemctl reboot" not in str(command) and "exit 1" in str(command)
    assert words in run.nodes["gpu1"].error and "nouveau" in run.nodes["gpu1"].error
    assert run.notes == []


def test_engines_are_ended_first_where_the_site_allows_it() -> None:
    serving = replace(READY, engines=("ray-head.service", "vllm@a.service"))
    commands = sent(
        operations.reboot, StubHost(serving, [BOOTED]), want=replace(WANT, reboot="allowed")
    )
    assert names(commands)[0] == "systemctl stop -- ray-head.service vllm@a.service"
    assert names(commands)[1] == scripts.REBOOT


def test_a_plan_promises_a_reboot_and_blames_nobody() -> None:
    run = run_log()
    commands = sent(operations.reboot, StubHost(BARE, is_executing=False), run)
    assert names(commands) == [scripts.REBOOT] and run.nodes["gpu1"].error == ""
    assert sent(operations.proof, StubHost(BARE, is_executing=False), run) == []
    assert run.nodes["gpu1"].error == "" and run.notes == []


def test_the_proof_at_the_end() -> None:
    run = run_log()
    (command,) = sent(operations.proof, StubHost(replace(SOUND, loaded="")), run)
    assert "exit 1" in str(command) and "no NVIDIA module" in run.nodes["gpu1"].error


def test_fabric_manager_only_where_nvswitches_are() -> None:
    on = StubHost(SOUND, units={FABRIC: {"UnitFileState": "enabled", "ActiveState": "failed"}})
    off = StubHost(SOUND, units={FABRIC: {"UnitFileState": "disabled"}})
    none = replace(WANT, nvswitch=False)
    (command,) = sent(operations.no_fabric_manager, on, want=none)
    assert str(command) == f"systemctl disable --now --quiet {FABRIC}"
    assert sent(operations.no_fabric_manager, on) == []
    assert sent(operations.no_fabric_manager, off, want=none) == []


class Rebooting:
    """A node that refuses two connections, answers once from the old boot, then from a new one."""

    def __init__(self, boots: list[str | None]) -> None:
        self.boots, self.name = boots, "gpu1"
        self.connector = self
        self.connector_data: dict[str, Any] = {}
        self.settled = False

    def log(self, what: str) -> None:
        return

    def disconnect(self) -> None:
        return

    def connect(self) -> None:
        if self.boots[0] is None:
            self.boots.pop(0)
            raise ConnectError("refused")

    def feed(self, script: str, **arguments: Any) -> str:
        assert arguments["_timeout"] > 0
        if script == scripts.SETTLE:
            self.settled = True
            return ""
        return f"{self.boots.pop(0) if len(self.boots) > 1 else self.boots[0]}\n"


def test_waiting_ends_with_another_boot_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "BOOT_ASK_S", 0)
    node = Rebooting([None, None, "old", "", "new"])
    assert operations.wait_for_boot(None, node, run_log(), "old") is True
    assert node.settled


def test_waiting_gives_up_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "BOOT_ASK_S", 0.01)
    monkeypatch.setattr(deadlines, "BOOT_S", 0.1)
    run = run_log()
    assert operations.wait_for_boot(None, Rebooting(["old"]), run, "old") is False
    assert "no answer from a new boot" in run.nodes["gpu1"].error
