"""A new lock over four hosts that serve, while clients ask on and on; failures, cuts and kills."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackpin.fleet.state import FleetState
from rackpin.inventory import ROOT
from rackpin.lab import host as power
from rackpin.roll.store import FileStore, Roll
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from tests.lab.fleet import FIRST_RUN_S, Run, booted, wait
from tests.lab.gateway_site import Site

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(3600)]

NAME = "test-roll"
ENGINES = {"tiny-a": "w1", "tiny-b": "w2", "tiny-c": "w3", "tiny-d": "w4"}
OLD, NEXT = "cpu-lab", "cpu-lab-next"
RAY = ("2.60.0", "2.59.0")  # a cluster has one version of Ray, so this is the harder change
ROLL_S = 1800
KILLS = 20
WATCH = ("--watch", "10")
BREATH_S = 0.05  # two clients that never rest would take both cores from what they wait for


class Rolls(Site):
    """The site, its two stacks, and what is known of its rolls."""

    def __init__(self, fleet: Any, stacks: Path) -> None:
        super().__init__(fleet, ENGINES, "head1")
        fleet.environment["RACKPIN_STACKS"] = str(stacks)
        self.stacks = stacks
        self.locks = {name: load_stack(name, stacks).lock for name in (OLD, NEXT)}
        self.state = FleetState(fleet.lab.directory / "state" / NAME)
        self.store = FileStore(self.state.directory / "rolls")

    def roll(self, *words: str, stack: str = NEXT) -> Run:
        return self.fleet.rackpin("roll", *self.data(stack=stack), *words, deadline_s=ROLL_S)

    def start(self, *words: str, stack: str = NEXT) -> subprocess.Popen[str]:
        return self.fleet.start_rackpin("roll", *self.data(stack=stack), *words)

    @property
    def last(self) -> Roll:
        found = self.store.last()
        assert found is not None
        return found

    def states(self) -> dict[str, str]:
        return {name: one.state for name, one in self.last.progress().items()}

    def environments(self) -> dict[str, str]:
        """What each engine's process really runs."""
        pid = "$(systemctl show -P MainPID vllm@{})"
        ask = "grep -o '/opt/rackpin/env/[^/ ]*' /proc/{}/maps | sort -u"
        return {
            name: Path(self.fleet.ask(host, ask.format(pid.format(name)))).name
            for name, host in ENGINES.items()
        }

    def all_run(self, stack: str) -> None:
        env = self.locks[stack].env_name
        assert self.environments() == dict.fromkeys(ENGINES, env)
        assert self.state.drained() == {}

    def up(self) -> int:
        """How many engines say that they are well."""
        return sum(self.healthy(host) for host in ENGINES.values())

    def healthy(self, host: str) -> bool:
        url = f"http://{self.fleet.lab.host(host).address}:8000/health"
        done = subprocess.run(
            ["curl", "-s", "-o", "/dev/null", "-m", "20", "-w", "%{http_code}", url],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        return done.stdout == "200"

    @contextmanager
    def counted(self) -> Iterator[list[int]]:
        """How many engines answered, second by second."""
        found: list[int] = []
        over = threading.Event()

        def count() -> None:
            while not over.wait(1):
                found.append(self.up())

        thread = threading.Thread(target=count)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join(120)

    def settled(self) -> None:
        """What a test before this one left open is finished first."""
        if roll := self.store.open_roll():
            assert self.roll("--resume", stack=roll.plan.stack).code == 0

    def wait_step(self, unit: str, step: str) -> None:
        def there() -> bool:
            one = self.last.progress().get(unit)
            return one is not None and one.step == step

        wait(there, f"{unit} to be at {step}", 600)


def next_stack(directory: Path) -> Path:
    """The lab's stack, and the same with another Ray, locked by the real resolver."""
    stacks = directory / "stacks"
    shutil.copytree(ROOT / "stacks" / OLD, stacks / OLD)
    shutil.copytree(ROOT / "stacks" / OLD, stacks / NEXT)
    (directory / "lab").symlink_to(ROOT / "lab")
    pins = stacks / NEXT / "pins.yaml"
    text = pins.read_text().replace(f"name: {OLD}", f"name: {NEXT}")
    assert RAY[0] in text
    pins.write_text(text.replace(f"ray: {{version: {RAY[0]}", f"ray: {{version: {RAY[1]}"))
    subprocess.run(
        ["rackpin", "lock", NEXT, "--stacks", str(stacks)],
        check=True, timeout=600, env=os.environ | {"RACKPIN_STACKS": str(stacks)},
    )  # fmt: skip
    return stacks


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rolls]:
    directory = Path(tmp_path_factory.mktemp("roll"))
    stacks = next_stack(directory)
    for name in (OLD, NEXT):
        wheelhouse.build(load_stack(name, stacks), say=print)
    described = yaml.safe_load((ROOT / "lab" / "lab.yaml").read_text())
    described["hosts"] = [
        {"name": "head1", "groups": ["head", "gateway"], "sku": "lab-cpu", "data": {"gpus": 0}},
        *({"name": n, "groups": ["workers"], "sku": "lab-cpu"} for n in ENGINES.values()),
    ]
    file = directory / "lab.yaml"
    file.write_text(yaml.safe_dump(described))
    with booted(file, NAME, directory) as fleet:
        one = Rolls(fleet, stacks)
        fleet.first = fleet.run("site", *one.data(stack=OLD), deadline_s=FIRST_RUN_S)
        print(f"first run: {fleet.first.seconds:.0f} s")
        assert fleet.first.ok
        yield one


def test_the_plan_says_what_it_interrupts_and_begins_nothing(site: Rolls) -> None:
    run = site.roll("--plan")
    assert run.code == 0, run.text
    assert "service" in run.text and "tiny: 4 by weight, never below 2" in run.text
    assert site.locks[NEXT].env_name in run.text.replace("\n", "")
    assert site.store.last() is None
    refused = site.roll("--plan", "--keep", "100")
    assert refused.code == 1 and "would serve, 4 must" in refused.text, refused.text
    assert site.roll("--resume").code == 1, "nothing is open"


def test_a_new_lock_over_hosts_that_serve(site: Rolls) -> None:
    with site.asked_without_pause(BREATH_S) as failed, site.counted() as up:
        run = site.roll("-y", "--wave", "2", *WATCH)
    assert run.code == 0, run.text
    assert failed == []
    print(f"roll: {run.seconds:.0f} s; engines answering: {min(up)} to {max(up)}")
    assert min(up) >= 2
    assert set(site.states().values()) == {"done"} and site.last.ended == "done"
    site.all_run(NEXT)
    assert "in all" in run.text
    again = site.roll("-y")
    assert again.code == 0 and "nothing to do" in again.text, again.text
    check = site.fleet.run("site", *site.data(stack=NEXT))
    assert [c for n in check.ok.nodes for c in n.changes] == []


def test_a_failed_verify_stops_the_way_back_and_resume_finishes_it(site: Rolls) -> None:
    drop_in = "/etc/systemd/system/vllm@tiny-b.service.d"
    site.fleet.ask("w2", f"mkdir -p {drop_in}; printf '[Service]\\nLimitNOFILE=1024\\n' "
                         f">{drop_in}/hand.conf; systemctl daemon-reload")  # fmt: skip
    with site.asked_without_pause(BREATH_S) as failed:
        run = site.roll("--back", "-y", "--wave", "1", *WATCH)
        assert run.code == 1, run.text
        assert "hand.conf" in run.text or "1024" in run.text, run.text
        found = site.states()
        assert found["w1"] == "done" and found["w2"] == "failed"
        assert found["w3"] == found["w4"] == "waiting"
        env = site.environments()
        assert env["tiny-a"] == site.locks[OLD].env_name
        assert env["tiny-c"] == env["tiny-d"] == site.locks[NEXT].env_name
        assert list(site.state.drained()) == ["tiny-b"]
        status = site.roll("--status")
        assert status.code == 0 and "failed: w2" in status.text and "--resume" in status.text
        assert site.roll("-y").code == 1, "another roll can't begin"
        site.fleet.ask("w2", f"rm -r {drop_in}; systemctl daemon-reload")
        run = site.roll("--resume", "-y")
        assert run.code == 0, run.text
    assert failed == []
    site.all_run(OLD)


def cut_network(site: Rolls) -> Callable[[], None]:
    port = power.bridge_port(site.fleet.lab.host("w1"))
    subprocess.run(["ip", "link", "set", port, "down"], check=True)
    return lambda: subprocess.run(["ip", "link", "set", port, "up"], check=True) and None


def hang_ssh(site: Rolls) -> Callable[[], None]:
    """All of sshd stands still: the kernel still takes connections, and nobody answers."""
    site.fleet.ask(
        "w1",
        "setsid sh -c 'sleep 1; pkill -STOP -x sshd; while [ ! -e /srv/models/thaw ]; do sleep 1; "
        "done; pkill -CONT -x sshd; rm /srv/models/thaw' </dev/null >/dev/null 2>&1 &",
    )
    thaw = power.root_of(site.fleet.lab.host("w1")) / "srv/models/thaw"
    return lambda: thaw.touch()


def fill_disk(site: Rolls) -> Callable[[], None]:
    env = "/opt/rackpin/env"
    site.fleet.ask("w1", f"mount -t tmpfs -o size=64m full {env}")
    return lambda: site.fleet.ask("w1", f"umount -l {env}") and None


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (cut_network, ("unreachable", "timed out", "no answer", "lost")),
        (hang_ssh, ("did not answer for 90 s", "SSH error", "timed out")),
        (fill_disk, ("No space left", "space")),
    ],
)
def test_a_node_that_is_lost_in_the_middle_is_named(
    site: Rolls, fault: Callable[[Rolls], Callable[[], None]], says: tuple[str, ...]
) -> None:
    """The others serve on, the waves stop, and resume finishes once it is mended."""
    site.settled()
    target = NEXT if site.environments()["tiny-a"] == site.locks[OLD].env_name else OLD
    env = f"/opt/rackpin/env/{site.locks[target].env_name}"
    site.fleet.ask("w1", f"rm -rf {env}")  # so that it is built again, which takes its time
    with site.asked_without_pause(BREATH_S) as failed:
        process = site.start("-y", "--wave", "2", *WATCH, stack=target)
        undo: Callable[[], None] | None = None
        try:
            site.wait_step("w1", "stop" if fault is fill_disk else "apply")
            began = time.monotonic()
            undo = fault(site)
            text, _ = process.communicate(timeout=900)
        finally:
            process.kill()
            if undo:
                undo()
        print(f"{fault.__name__}: told after {time.monotonic() - began:.0f} s\n{text[-1500:]}")
        assert process.returncode == 1, text
        why = site.last.progress()["w1"].why
        assert site.states()["w1"] == "failed" and any(word in why for word in says), why
        assert site.states()["w2"] == "waiting"
        wait(lambda: site.fleet.ask("w1", "echo here") == "here", "w1 to answer", 120)
        run = site.roll("--resume", stack=target)
        assert run.code == 0, run.text
    assert failed == []
    site.all_run(target)


def test_the_controller_killed_twenty_times(site: Rolls) -> None:
    """Always the command alone; what it started dies with it. No request fails by that."""
    site.settled()
    target = NEXT if site.environments()["tiny-a"] == site.locks[OLD].env_name else OLD
    chance = random.Random(535)
    kills = 0
    began = time.monotonic()
    with site.asked_without_pause(BREATH_S) as failed, site.counted() as up:
        process = site.start("-y", "--wave", "2", "--watch", "5", stack=target)
        while process.poll() is None and kills < KILLS:
            time.sleep(chance.uniform(1, 25))
            if process.poll() is not None:
                break
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            kills += 1
            mine = f"roll {self_id(site)}"
            assert {one.owner for one in site.state.drained().values()} <= {mine}
            word = ("--resume",) if site.store.last() and not site.last.ended else ("-y",)
            process = site.start(*word, stack=target)
        text, _ = process.communicate(timeout=ROLL_S)
        assert process.returncode == 0, text
    print(f"{kills} kills, {time.monotonic() - began:.0f} s; engines: {min(up)} to {max(up)}")
    assert failed == []
    assert kills >= 5 and min(up) >= 2
    site.all_run(target)


def self_id(site: Rolls) -> str:
    found = site.store.last()
    return found.plan.roll if found else "none yet"


def test_its_files_hold_no_key_and_can_be_read(site: Rolls) -> None:
    for path in site.store.directory.rglob("*"):
        if path.is_file():
            text = path.read_text(errors="replace")
            assert site.key not in text, path
            if path.suffix == ".jsonl":
                assert all(json.loads(line)["at"] for line in text.splitlines())
