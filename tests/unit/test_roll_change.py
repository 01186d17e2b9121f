"""What a roll would do to a node: nothing, apply, stop, reboot; or it may not be touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackpin import layout
from rackpin.adopt.look import Found
from rackpin.checks import procinfo
from rackpin.checks.base import Output, Outputs
from rackpin.desired import Target
from rackpin.facts import PathState
from rackpin.fleet.identity import Identity
from rackpin.fleet.mark import Mark
from rackpin.roll.change import change, units_of
from rackpin.roll.model import Change
from rackpin.stack.environment import env_path
from rackpin.stages import STAGES
from tests.unit.test_adopt import built, survey

UNITS = ["vllm@two", "ray-head"]


@pytest.fixture
def found(target: Target) -> Found:
    """A node that is all that is wished, and serves."""
    made = built(target)
    made.paths[layout.CURRENT] = PathState("link", target=env_path(target.lock))
    made.identity = Identity(machine_id="aa")
    made.mark = Mark(
        node=target.node.name, lock=target.lock.digest, state="ready", level="node",
        at="2026-08-01T10:00:00+00:00", run="r1", identity=made.identity,
    )  # fmt: skip
    made.busy = list(UNITS)
    return made


def procs(*rows: tuple[int, str, str]) -> Outputs:
    """Processes of units: pid, unit, the environment that they map."""
    text = "## self\n0::/x\n## cgroup\n"
    text += "".join(f"{pid}/cgroup:0::/system.slice/{unit}.service\n" for pid, unit, _ in rows)
    text += "## comm\n## exe\n## limits\n## maps\n"
    text += "".join(f"{pid}/maps:{env}\n" for pid, _, env in rows)
    return {procinfo.COMMAND.name: Output(0, f"{text}## environ\n## end\n")}


def change_of(
    target: Target, found: Found, restart: bool = False, outputs: Outputs | None = None
) -> Change:
    now = env_path(target.lock)
    return change(target, found, outputs or procs((7, "vllm@two", now)), restart)


def test_a_node_that_has_all_of_it_needs_nothing(target: Target, found: Found) -> None:
    assert change_of(target, found).kind == "nothing"
    assert change_of(target, found, restart=True).kind == "service"


@pytest.mark.parametrize("state", ["admitted", "not_ready"])
def test_a_node_that_is_not_proved_is_asked(target: Target, found: Found, state: str) -> None:
    assert found.mark is not None
    found.mark = found.mark.model_copy(update={"state": state})
    assert change_of(target, found).kind == "apply"
    found.mark = found.mark.model_copy(update={"state": "ready", "lock": "other"})
    assert change_of(target, found).kind == "apply"
    assert change_of(target, found).lock == "other"
    found.mark = None
    assert change_of(target, found).kind == "apply"


def test_files_that_nobody_reads_while_running_interrupt_nothing(
    target: Target, found: Found
) -> None:
    found.paths["/etc/sysctl.d/90-rackpin.conf"] = PathState("absent")
    made = change_of(target, found)
    assert (made.kind, made.what, made.why) == ("apply", ["base: 1 file"], [])


@pytest.mark.parametrize("path", ["/etc/rackpin/node.env", "/etc/systemd/system/ray-head.service"])
def test_files_that_are_read_at_a_start_do(target: Target, found: Found, path: str) -> None:
    found.paths[path] = replace(found.paths[path], sha256="other")
    made = change_of(target, found)
    assert made.kind == "service" and path in made.why[0]
    found.paths[path] = replace(found.paths[path], sha256="other")
    found.busy = []
    assert change_of(target, found).kind == "apply", "nothing runs that could be interrupted"


def test_another_environment_stops_what_runs(target: Target, found: Found) -> None:
    found.paths[layout.CURRENT] = PathState("link", target=f"{layout.ENV_DIR}/before")
    assert change_of(target, found).kind == "service"
    # The link is new already, a process still has the old one.
    found.paths[layout.CURRENT] = PathState("link", target=env_path(target.lock))
    old = procs((7, "vllm@two", f"{layout.ENV_DIR}/cpu-lab-0000"))
    made = change_of(target, found, outputs=old)
    assert made.kind == "service" and "cpu-lab-0000 runs" in made.why[0]


def test_what_site_py_would_refuse_bars_it(target: Target, found: Found) -> None:
    found.survey = survey(target, arch="aarch64")
    made = change_of(target, found)
    assert made.kind == "refused" and "aarch64" in made.why[0] and made.remedy


def test_strangers_on_the_cards_bar_it_and_our_own_processes_do_not(
    target: Target, found: Found
) -> None:
    ours = procs((7, "vllm@two", env_path(target.lock)))
    found.busy = [*UNITS, "VLLM::EngineCore 7"]
    assert change_of(target, found, outputs=ours).kind == "nothing"
    for stranger in ("python3 4711", "vllm@by-hand", "whether anything uses them was not told"):
        found.busy = [*UNITS, stranger]
        made = change_of(target, found, outputs=ours)
        assert made.kind == "refused" and stranger in made.why[0], stranger


def test_what_was_not_seen_is_never_nothing(target: Target, found: Found) -> None:
    silent = {procinfo.COMMAND.name: Output(None, stderr="lost")}
    assert change_of(target, found, outputs=silent).kind == "unseen"
    found.unseen["Apt"] = "past its deadline"
    made = change_of(target, found)
    assert made.kind == "unseen" and "past its deadline" in made.why[0]


def test_engines_are_stopped_before_ray() -> None:
    assert units_of(Found(busy=["ray-worker", "vllm@b", "python3 4", "vllm@a"])) == [
        "vllm@b", "vllm@a", "ray-worker",
    ]  # fmt: skip


def test_every_file_that_is_read_at_a_start_is_one_of_a_stage(target: Target) -> None:
    """The list follows from names; a renamed file must not drop out of it."""
    from rackpin.roll.change import READ_AT_START

    paths = [file.path for make in STAGES.values() for file in make(target).files]
    own = [one for one in READ_AT_START if "nccl" not in one]  # of nodes with adapters only
    assert [one for one in own if not any(path.startswith(one) for path in paths)] == []
