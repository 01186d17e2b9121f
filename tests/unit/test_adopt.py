"""A host built by hand: what a first run would change, what it interrupts, what was not seen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from rackpin import layout
from rackpin.adopt.compare import compare
from rackpin.adopt.document import Document
from rackpin.adopt.look import Found, look
from rackpin.adopt.show import lines_of
from rackpin.apt import wanted
from rackpin.checks.base import Command, Output
from rackpin.cli import main
from rackpin.desired import Target
from rackpin.facts import NodeSurvey, PathState
from rackpin.inventory import Fleet
from rackpin.stack.lock import load_stack
from rackpin.stack.placed import ModelState
from rackpin.stages import STAGES
from rackpin.stages.base import SWAP_MASK, hosts_file
from rackpin.stages.python import complete_mark
from rackpin.stages.serve import placed
from tests.unit import apt_samples
from tests.unit.driver_samples import BARE, SOUND
from tests.unit.test_models_wanted import pinned

NOW = 1_780_000_000.0
SYSCTL = "/etc/sysctl.d/90-rackpin.conf"
BUSY_UNIT = "/system.slice/by-hand.service"


def survey(target: Target, **changes: Any) -> NodeSurvey:
    made = NodeSurvey(
        os={"ID": target.os_key.split("-")[0], "VERSION_ID": target.os_key.split("-")[1]},
        arch="x86_64", epoch=NOW, hostname=target.node.name,
        addresses={target.node.address: "eth0"}, route_source=target.node.address, swaps=(),
        dpkg_broken=False, space={"/opt": 10**12}, listeners=(),
    )  # fmt: skip
    return replace(made, **changes)


def built(target: Target) -> Found:
    """A host that is all that its stages want."""
    wishes = [make(target) for make in STAGES.values()]
    pins = {pin.name: pin.version for pin in wanted.pins(target)}
    paths = {
        f.path: PathState(
            "file", f.mode, f.owner, f.group, f.sha256, first_lines="Owned by rackpin"
        )
        for wish in wishes
        for f in wish.files
    }
    paths |= {d.path: PathState("directory") for wish in wishes for d in wish.directories}
    paths[complete_mark(target.lock)] = PathState("file")
    paths[SWAP_MASK] = PathState("link", target="/dev/null")
    good = {"ActiveState": "active", "UnitFileState": "enabled"}
    return Found(
        survey=survey(target),
        apt=apt_samples.state(target),
        paths=paths,
        packages={name: pins.get(name, "1") for wish in wishes for name in wish.packages},
        units={unit: good for wish in wishes for unit in wish.units},
        users={layout.USER: "rackpin:x:"},
        hosts=hosts_file("127.0.0.1 localhost\n", target.fleet, target.node),
        clock=(NOW, NOW),
    )


def lines(found: Document) -> list[str]:
    return [line for stage in found.stages for line in lines_of(stage)]


def whats(found: Document) -> list[tuple[str, str]]:
    return [(one.interrupts, one.what) for one in found.interruptions]


def test_a_host_that_is_as_wished_has_no_change(target: Target) -> None:
    found = compare(target, built(target))
    assert (found.stages, found.interruptions) == ([], [])
    assert (found.outcome, found.exit_code) == ("nothing", 0)


def test_other_peoples_files_are_named_with_their_backup(target: Target) -> None:
    host = built(target)
    other = hashlib.sha256(b"vm.swappiness = 1").hexdigest()
    host.paths[SYSCTL] = PathState("file", "644", "root", "root", other, first_lines="vm.swa")
    found = compare(target, host)
    assert lines(found) == [f"file {SYSCTL}: replaced, kept as /var/lib/rackpin/backup{SYSCTL}"]
    assert found.exit_code == 0, "a file that is kept interrupts nothing"
    host.paths[SYSCTL] = replace(host.paths[SYSCTL], first_lines="# Owned by rackpin (x)")
    assert lines(compare(target, host)) == [f"file {SYSCTL}: ours, with other content"]
    host.paths[SYSCTL] = PathState("directory", "755", "root", "root")
    assert "in the way: a directory" in lines(compare(target, host))[0]


def test_packages_units_and_the_rest_by_stage(target: Target) -> None:
    host = built(target)
    name = STAGES["base"](target).packages[0]
    del host.packages[name]
    (unit,) = STAGES["ray"](target).units
    host.units[unit] = {"ActiveState": "inactive", "UnitFileState": "enabled"}
    del host.paths[complete_mark(target.lock)]
    host.users, host.hosts = {}, "127.0.1.1 head1\n"
    host.survey = survey(target, hostname="debian", swaps=("/dev/sda2",))
    found = compare(target, host)
    assert [stage.name for stage in found.stages] == ["base", "python", "ray"]
    text = "\n".join(lines(found))
    for part in (f"package {name}: install", f"unit {unit}: started", "is built", "system user",
                 "/etc/hosts: a block", "host name debian becomes head1", "/dev/sda2"):  # fmt: skip
        assert part in text
    assert found.exit_code == 0


def test_a_model_to_be_fetched_is_named_and_interrupts_nothing(target: Target) -> None:
    there = pinned(target)
    (model,) = placed(there)
    host = built(there)
    found = compare(there, host)
    assert found.stages == [], "what was not looked at is told as unseen, not as a change"
    host.models = {model.path: ModelState(free=10**12)}
    found = compare(there, host)
    assert lines(found) == [f"{model.path}: model m is fetched, 0.0 GB, and proved"]
    assert found.interruptions == [] and found.exit_code == 0
    host.models = {model.path: ModelState(model.digest, same=True)}
    assert compare(there, host).stages == []


def test_a_port_that_somebody_has_stops_the_run(target: Target) -> None:
    host = built(target)
    host.survey = survey(target, listeners=(("0.0.0.0", 6379, "redis-server", BUSY_UNIT),))
    found = compare(target, host)
    assert whats(found) == [("refused", "port 6379")] and found.exit_code == 1
    assert "redis-server" in found.interruptions[0].why


def test_who_holds_the_cards_is_named_and_own_units_are_no_strangers(target: Target) -> None:
    host = built(target)
    host.busy = ["ray-head", "vllm@two", "python3 4711", "vllm@by-hand"]
    found = compare(target, host)
    assert whats(found) == [("service", "python3 4711"), ("service", "vllm@by-hand")]
    assert found.exit_code == 1


def test_repositories_and_pins_of_others(target: Target) -> None:
    host = built(target)
    sources = {
        "/etc/apt/sources.list.d/n.list": "deb [trusted=yes] http://10.9.0.1:8901/nvidia /\n"
    }
    pins = {"/etc/apt/preferences.d/x": "Package: *\nPin: release o=x\nPin-Priority: 1001\n"}
    host.apt = apt_samples.state(target, sources=sources, preferences=pins)
    found = compare(target, host)
    off = [line for line in found.foreign if "switched off" in line]
    assert len(off) == 1 and "n.list" in off[0]
    assert any("deb.debian.org" in line and line.endswith("stays") for line in found.foreign)
    assert any("n.list" in line for line in lines(found))


@pytest.fixture
def gpus(fleet: Fleet) -> Target:
    """A worker with two cards, for the stack of Debian's own driver."""
    lock = load_stack("debian12-r535").lock
    node = fleet.nodes["worker1"].model_copy(update={"gpus": 2, "sku": "h100-sxm-8"})
    config = fleet.config.model_copy(update={"apt_repositories": [], "apt_pins": []})
    made = fleet.model_copy(update={"nodes": {**fleet.nodes, "worker1": node}, "config": config})
    return Target(made, node, lock)


def test_what_only_a_reboot_brings_and_a_run_file(gpus: Target) -> None:
    host = built(gpus)
    host.driver = replace(BARE, nvswitches=0)
    found = compare(gpus, host)
    assert ("reboot", "the host") in whats(found)
    (reboot,) = [one for one in found.interruptions if one.interrupts == "reboot"]
    assert "nouveau is loaded" in reboot.why and "is pinned" in reboot.why
    host.driver = replace(BARE, nvswitches=0, foreign=("/usr/bin/nvidia-uninstall",))
    found = compare(gpus, host)
    assert ("refused", "driver") in whats(found)
    assert any("/usr/bin/nvidia-uninstall" in line for line in found.foreign)


def test_a_package_that_moves_interrupts_what_it_belongs_to(gpus: Target) -> None:
    host = built(gpus)
    host.driver = replace(SOUND, nvswitches=0)
    before = whats(compare(gpus, host))
    (name, *_) = [n for n in STAGES["driver"](gpus).packages if n.startswith("nvidia-")]
    host.packages[name] = "525.1"
    (new,) = set(whats(compare(gpus, host))) - set(before)
    assert new[0] == "reboot" and new[1].startswith(f"driver: {name} 525.1 → 535")


def test_what_could_not_be_looked_at_is_never_nothing(target: Target) -> None:
    class Silent:
        def __init__(self) -> None:
            self.unreachable = {target.node.name: "timed out"}

        def ask(self, asked: Mapping[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
            return {}

    seen, same, _ = look(target, Silent())  # type: ignore[arg-type]
    found = compare(same, seen)
    assert (found.exit_code, found.unseen[0].why) == (3, "timed out")

    class Broken(Silent):
        def __init__(self) -> None:
            self.unreachable = {}

        def ask(self, asked: Mapping[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
            ((name, commands),) = asked.items()
            return {name: {c.name: Output(rc=0, stdout="cut") for c in commands}}

    seen, same, _ = look(target, Broken())  # type: ignore[arg-type]
    found = compare(same, seen)
    assert found.exit_code == 3 and {"Survey", "Apt"} <= {one.area for one in found.unseen}
    assert any("not told" in what for _, what in whats(found))


def test_a_host_that_the_inventory_does_not_have_is_wrong_usage(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "inventory.py"
    file.write_text("")
    opened = SimpleNamespace(fleet=fleet, lock=None, file=str(file), made=None)
    monkeypatch.setattr("rackpin.inventory_open.opened", lambda *_, **__: opened)
    done = CliRunner().invoke(main, ["adopt", "nobody", "-i", str(file)])
    assert done.exit_code == 2 and "nobody" in done.output
