"""The apt stage's operations against a stub host: what they ask, what they send, when they stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.context import ctx_host

from rackpin import layout
from rackpin import operations_apt as operations
from rackpin.desired import Target
from rackpin.operations import feed
from rackpin.runlog import NodeLog
from rackpin.stages import apt as stage
from tests.unit import apt_samples as samples

MAIN = "/etc/apt/preferences"
LIST = "/etc/apt/sources.list.d/cuda.list"
ENTRY = {LIST: "# by hand\ndeb http://10.9.0.1:8901/nvidia /\n"}
MOVES = "Inst nvidia-utils-535 [535.129.03-0ubuntu1] (535.183.01-0ubuntu1 nv:x [amd64])\n"


@dataclass
class StubHost:
    """A host that answers each script with one text and keeps what it was fed."""

    answer: str = ""
    is_executing: bool = True
    name: str = "head1"
    data: dict[str, Any] = field(default_factory=dict)
    current_op_global_arguments: dict[str, Any] = field(default_factory=dict)
    fed: list[str] = field(default_factory=list)
    fed_as: dict[str, Any] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)  # before ``answer``, one each

    @property
    def state(self) -> StubHost:
        return self

    @property
    def connector(self) -> StubHost:
        return self

    def feed(self, text: str, **arguments: Any) -> str:
        assert arguments["_timeout"] > 0, "every command has a deadline"
        self.fed.append(text)
        self.fed_as = arguments
        return self.answers.pop(0) if self.answers else self.answer

    def noop(self, text: str) -> None:
        return

    def log(self, text: str) -> None:
        return


def sent(operation: Any, host: StubHost, **arguments: Any) -> list[Any]:
    with ctx_host.use(host):
        return list(operation._inner(**arguments))


def test_a_look_uses_the_operations_own_sudo() -> None:
    """pyinfra's --sudo is no host data: only the operation's arguments have it."""
    host = StubHost(current_op_global_arguments={"_sudo": True, "_sudo_user": "ops", "name": "x"})
    with ctx_host.use(host):
        feed("id", 5, "apt")
    assert host.fed_as == {"_sudo": True, "_sudo_user": "ops", "_timeout": 5}


def case(target: Target, **changes: Any) -> dict[str, Any]:
    """What deploys/apt.py hands to an operation."""
    state = samples.state(target, **changes)
    run = SimpleNamespace(nodes={"head1": NodeLog()}, overruled={}, notes=[])
    return {"run": run, "target": target, "state": state, "plan": stage.plan(target, state)}


def test_nothing_to_prove_asks_nothing(target: Target) -> None:
    host = StubHost()
    given = case(target)
    assert sent(operations.prove_before, host, **given) == []
    assert sent(operations.prove_after, host, **given) == []
    for operation, names in (
        (operations.switch_off, ("state", "plan")),
        (operations.remove_own, ("plan",)),
        (operations.hold, ("state", "plan")),
    ):
        assert sent(operation, host, **{name: given[name] for name in names}) == []
    assert sent(operations.repair_dpkg, host, broken=False) == []
    assert host.fed == []


def test_a_trial_that_succeeds_is_no_change(target: Target) -> None:
    host = StubHost(f"## update = 0\n## policy\n{samples.POLICY}## end\n")
    given = case(target, ours=False, proved="")
    assert sent(operations.prove_before, host, **given) == []
    assert len(host.fed) == 1 and "apt-get" in host.fed[0]
    host.is_executing = False
    assert sent(operations.prove_before, host, **given) == [] and len(host.fed) == 1


@pytest.mark.parametrize("answer", ["", "## update = 0\n", "## update = 100\nE: x\n## end\n"])
def test_a_trial_that_fails_stops_the_node_and_says_why(target: Target, answer: str) -> None:
    given = case(target, proved="")
    (command,) = sent(operations.prove_before, StubHost(answer), **given)
    assert "nothing was changed: " in str(command) and "exit 1" in str(command)
    assert given["run"].nodes["head1"].error.startswith("nothing was changed: ")


def test_the_trial_has_others_entries_switched_off(target: Target) -> None:
    given = case(target, sources=ENTRY)
    texts = operations.changed_sources(given["state"], given["plan"])
    assert texts == {
        LIST: "# by hand\n# switched off by rackpin, which has this repository now:\n"
        "# deb http://10.9.0.1:8901/nvidia /\n"
    }
    (command,) = sent(operations.switch_off, StubHost(), state=given["state"], plan=given["plan"])
    assert f"cp -a --backup=numbered {LIST} {layout.BACKUPS}{LIST}" in str(command)
    assert command.connector_arguments["_stdin"] == texts[LIST]


def test_a_stanza_that_breaks_a_pin_is_switched_off_after_a_second_trial(target: Target) -> None:
    site = {MAIN: "Package: nvidia-utils-535\nPin: version *\nPin-Priority: -1\n"}
    broken = samples.POLICY.replace("Candidate: 535.129.03-0ubuntu1", "Candidate: (none)")
    trials = [f"## update = 0\n## policy\n{text}## end\n" for text in (broken, samples.POLICY)]
    given = case(target, preferences=site, proved="")
    host = StubHost()
    host.answers = trials
    assert sent(operations.prove_before, host, **given) == []
    assert len(host.fed) == 2 and given["run"].notes == [
        f"head1: {MAIN}:1 breaks a pin: switched off"
    ]
    (command,) = sent(operations.overrule, host, run=given["run"])
    assert f"cp -a --backup=numbered {MAIN} {layout.BACKUPS}{MAIN}" in str(command)
    assert "# Package: nvidia-utils-535" in command.connector_arguments["_stdin"]
    host.is_executing = False
    assert sent(operations.overrule, host, run=given["run"]) == [], "before the proof: nothing"


def test_two_entries_of_one_file_are_switched_off_together(target: Target) -> None:
    two = {LIST: "deb http://10.9.0.1:8901/nvidia /\ndeb-src http://10.9.0.1:8901/nvidia /\n"}
    given = case(target, sources=two)
    (text,) = operations.changed_sources(given["state"], given["plan"]).values()
    assert [line[:5] for line in text.splitlines()] == ["# swi", "# deb", "# swi", "# deb"]


def test_the_proof_of_the_pins_is_written_down(target: Target) -> None:
    host = StubHost(samples.look_text())
    (command,) = sent(operations.prove_after, host, **case(target, proved=""))
    assert stage.digest(target) in str(command) and layout.APT_PROVED in str(command)


def test_pins_without_effect_stop_the_node(target: Target) -> None:
    given = case(target, proved="")
    (command,) = sent(operations.prove_after, StubHost(samples.look_text(upgrade=MOVES)), **given)
    assert "without their effect" in str(command) and layout.APT_PROVED not in str(command)


def test_new_members_are_held_and_proved_without_a_new_record(target: Target) -> None:
    free = samples.STATUS.replace("|hold|", "|install|")
    given = case(target, status=free, held="")
    (command,) = sent(operations.hold, StubHost(), state=given["state"], plan=given["plan"])
    assert "patient apt-mark hold nvidia-utils-535" in command.connector_arguments["_stdin"]
    host = StubHost(samples.look_text())
    assert sent(operations.prove_after, host, **given) == [] and len(host.fed) == 1


def test_a_sites_own_hold_is_not_taken_for_ours(target: Target) -> None:
    """Held before rackpin came: it is not in the record, so it is never released either."""
    bare = samples.without_repository(target, "nvidia")
    assert case(bare, held="")["plan"].release == ()
    given = case(bare, held="nvidia-utils-535\n")
    (command,) = sent(operations.hold, StubHost(), state=given["state"], plan=given["plan"])
    script = command.connector_arguments["_stdin"]
    assert "apt-mark unhold nvidia-utils-535" in script and "printf %s ''" in script


def test_files_of_an_earlier_wish_go(target: Target) -> None:
    plan = stage.plan(samples.without_repository(target, "nvidia"), samples.state(target))
    (command,) = sent(operations.remove_own, StubHost(), plan=plan)
    assert command == (
        "rm -f -- /etc/apt/sources.list.d/rackpin-nvidia.sources "
        "/etc/apt/keyrings/rackpin-nvidia.asc"
    )
