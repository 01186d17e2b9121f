"""The whole way on real hosts: build, run again, reboot, kill, crash, lose hosts."""

from __future__ import annotations

import random
import re
import time

import pytest

from rackpin.findings import Outcome
from rackpin.inventory import ROOT
from rackpin.lab import description, lifecycle, services
from rackpin.lab import host as power
from tests import bounds
from tests.lab.fleet import FleetLab, wait

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]

SECOND_RUN_S = 20  # a run that changes nothing, verify included, on 2 cores
KEY_FILE = r"600 root /etc/rackpin/vllm/\S+\.env"  # the one place that may hold a key
KILLS = 10  # of a first run, by --slow; CI kills it twice


def test_first_run_builds_a_ready_fleet(fleet_lab: FleetLab) -> None:
    run = fleet_lab.first
    assert run is not None
    report = run.ok
    print(f"first run: {run.seconds:.0f} s, by stage {report.stage_seconds}")
    assert {n.name: n.state for n in report.nodes} == dict.fromkeys(
        ["head1", "worker1", "worker2"], "ready"
    )
    assert {i.name: (i.state, i.tp, len(i.nodes)) for i in report.instances} == {
        "tiny-tp2": ("serving", 2, 2),
        "tiny-one": ("serving", 1, 1),
    }
    collective = run.finding("head1", "collective.all_nodes")
    assert collective.outcome is Outcome.PASS and collective.metrics["busbw_gb_s"] > 0


def test_one_engine_really_spans_two_hosts(fleet_lab: FleetLab) -> None:
    """A worker process of the TP=2 engine lives on each of its hosts."""
    for host in ("head1", "worker1"):
        assert "RayWorkerProc" in fleet_lab.ask(host, "ps -eo args | grep -v grep | grep Worker")


def test_second_run_changes_nothing(fleet_lab: FleetLab) -> None:
    before = fleet_lab.active_since()
    run = fleet_lab.run("site")
    report = run.ok
    print(f"second run: {run.seconds:.1f} s, {run.counts}")
    assert [c for n in report.nodes for c in n.changes] == []
    assert fleet_lab.active_since() == before, "a unit was restarted"
    assert set(run.counts["executions"].values()) == {bounds.NOOP_EXECUTIONS}
    assert run.counts["misses"] == 0
    sent = run.counts["sent"]
    assert min(sent.values()) > 0 and max(sent.values()) <= bounds.NOOP_SENT, "see tests/bounds.py"
    received = run.counts["received"]
    assert min(received.values()) > 0, received
    assert max(received.values()) <= bounds.NOOP_RECEIVED, (received, "see tests/bounds.py")
    assert run.counts["operations"] <= bounds.NOOP_OPERATIONS, "see tests/bounds.py"
    assert run.counts["working_s"] == {name: {} for name in sent}, "an operation's command ran"
    assert run.seconds < SECOND_RUN_S


def test_one_changed_file_takes_few_executions(fleet_lab: FleetLab) -> None:
    fleet_lab.ask("worker1", "echo >>/etc/sysctl.d/90-rackpin.conf")
    run = fleet_lab.run("site")
    report = run.ok
    print(f"one file on worker1: {run.seconds:.1f} s, {run.counts}")
    assert {n.name for n in report.nodes if n.changes} == {"worker1"}
    executions = run.counts["executions"]
    assert bounds.NOOP_EXECUTIONS < executions["worker1"] <= bounds.CHANGE_EXECUTIONS
    assert executions["head1"] == executions["worker2"] == bounds.NOOP_EXECUTIONS


def test_no_key_in_process_lists_logs_or_readable_files(fleet_lab: FleetLab) -> None:
    key = (fleet_lab.lab.directory / "api-key").read_text().strip()
    assert fleet_lab.first is not None and key not in fleet_lab.first.text
    assert key not in fleet_lab.run("verify").text
    for path in (fleet_lab.directory / "reports").rglob("*"):
        assert path.is_dir() or key not in path.read_text(errors="replace"), path
    for host in ("head1", "worker1", "worker2"):
        # the script comes through stdin, or the search itself would be its only finding
        script = (
            f"k='{key}'\n"
            'journalctl -q --no-pager | grep -F -- "$k" | head -n 3\n'
            'grep -ls -F -- "$k" /proc/[0-9]*/cmdline\n'
            'grep -rls -F -- "$k" /etc /var /tmp /srv /opt/rackpin/current/etc '
            "| while read -r f; do stat -c '%a %U %n' \"$f\"; done\n"
        )
        lines = fleet_lab.feed(host, script).splitlines()
        assert [x for x in lines if not re.fullmatch(KEY_FILE, x)] == [], host


def test_a_user_with_sudo_sees_the_same(fleet_lab: FleetLab) -> None:
    """As on a site: no login as root. Nothing changes, and verify may look everywhere."""
    for host in ("head1", "worker1", "worker2"):
        fleet_lab.ask(
            host,
            "id ops >/dev/null 2>&1 || useradd -m -s /bin/bash ops; install -d -o ops ~ops/.ssh; "
            "install -o ops -m 600 /root/.ssh/authorized_keys ~ops/.ssh/; "
            "echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops",
        )
    report = fleet_lab.run("site", "--data", "ssh_user=ops", "--data", "_sudo=True").ok
    assert [c for n in report.nodes for c in n.changes] == []
    # and a change works too
    fleet_lab.ask("worker1", "rm /etc/sysctl.d/90-rackpin.conf")
    run = fleet_lab.run("base", "--data", "ssh_user=ops", "--sudo", "--limit", "worker1")
    assert run.code == 0, run.tail
    assert fleet_lab.ask("worker1", "stat -c '%U %a' /etc/sysctl.d/90-rackpin.conf") == "root 644"


@pytest.mark.parametrize("host", ["worker2", "worker1", "head1"])
def test_a_rebooted_host_comes_back_serving(fleet_lab: FleetLab, host: str) -> None:
    lifecycle.reboot(fleet_lab.lab, fleet_lab.lab.host(host))
    # the others' engines may need a moment to notice that their partner went away
    time.sleep(15)
    took = fleet_lab.wait_serving()
    print(f"serving {took + 15:.0f} s after the reboot of {host}")
    wait(lambda: fleet_lab.run("verify").code == 0, "a ready fleet", 180)


def test_kill_of_the_api_process(fleet_lab: FleetLab) -> None:
    """No process of the old engine is left when the next one starts (F125)."""
    unit = "vllm@tiny-one"
    old = set(fleet_lab.ask("worker2", cgroup_processes(unit)).split())
    assert len(old) >= 2, "the engine runs in a process of its own"
    fleet_lab.ask("worker2", f"kill -9 {fleet_lab.show('worker2', unit, 'MainPID')}")
    wait(lambda: int(fleet_lab.show("worker2", unit, "NRestarts")) > 0, "a restart", 60)
    first = fleet_lab.ask("worker2", cgroup_processes(unit)).split()
    assert not old & set(first)
    alive = fleet_lab.ask("worker2", f"ps -o pid= -p {','.join(sorted(old))}", check=False)
    assert alive == ""
    fleet_lab.wait_serving()
    assert fleet_lab.run("verify").code == 0


def cgroup_processes(unit: str) -> str:
    return (
        f"g=$(systemctl show -P ControlGroup -- {unit}); "
        'cat /sys/fs/cgroup/systemd"$g"/cgroup.procs 2>/dev/null || '
        'cat /sys/fs/cgroup"$g"/cgroup.procs'
    )


def test_an_engine_that_crashes_at_start_ends_failed(fleet_lab: FleetLab) -> None:
    unit, model = "vllm@tiny-one", services.MODEL
    fleet_lab.ask("worker2", f"mv {model}/model.safetensors {model}/away")
    try:
        fleet_lab.ask("worker2", f"systemctl restart --no-block {unit}")
        wait(
            lambda: fleet_lab.show("worker2", unit, "ActiveState") == "failed",
            "the unit to give up",
            600,
        )
        assert int(fleet_lab.show("worker2", unit, "NRestarts")) <= 4
        run = fleet_lab.run("verify")
        assert run.code == 1
        found = run.finding("worker2", f"units.{unit}")
        assert found.outcome is Outcome.FAIL
        assert "safetensors" in found.evidence.output.lower() or "weights" in found.evidence.output
        assert found.remedy
    finally:
        fleet_lab.ask("worker2", f"mv {model}/away {model}/model.safetensors")
    assert fleet_lab.run("site").ok, "the next run starts it again"


def test_a_host_that_is_unreachable_from_the_start(fleet_lab: FleetLab) -> None:
    host = fleet_lab.lab.host("worker2")
    fleet_lab.ask("worker2", "systemctl poweroff", check=False)
    wait(lambda: host.power == "off", "worker2 to be off", 60)
    try:
        run = fleet_lab.run("site")
        assert run.code == 1
        assert run.node("worker2").state == "unreachable"
        assert run.node("worker2").stage == "connect"
        assert re.search(r"worker2\s+unreachable", run.text)
        assert run.node("worker1").state == "ready", "the others finish"
    finally:
        boot(fleet_lab)
    fleet_lab.wait_serving()


def boot(fleet_lab: FleetLab) -> None:
    lifecycle.up(description.read(ROOT / "lab" / "lab.yaml", fleet_lab.lab.name))


def test_a_host_that_dies_midway(fleet_lab: FleetLab) -> None:
    """worker2 loses its power while its environment is being built."""
    fleet_lab.ask("worker2", "rm -f /opt/rackpin/env/*/.complete")
    process = fleet_lab.start("site")
    try:
        wait(
            lambda: bool(fleet_lab.ask("worker2", "pgrep -x uv", check=False)),
            "the build to begin",
            120,
        )
        power.clean_up(fleet_lab.lab.host("worker2"))  # as if its plug were pulled
        text, _ = process.communicate(timeout=600)
    finally:
        process.kill()
        boot(fleet_lab)
    assert process.returncode == 1
    assert re.search(r"worker2\s+failed\b.*python", text), text[-3000:]
    assert re.search(r"2 ready|1 ready|worker1", text)
    assert fleet_lab.run("site").ok, "the next run goes on where it stopped"


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_first_run_converges(
    fleet_lab: FleetLab, number: int, request: pytest.FixtureRequest
) -> None:
    """kill -9 of pyinfra at a random moment of a first run on worker2, then run again."""
    if number >= 2 and not request.config.getoption("--slow"):
        pytest.skip("slow: run with --slow")
    seed = random.randrange(10**6)
    lifecycle.reset(fleet_lab.lab, [fleet_lab.lab.host("worker2")])
    services.start(fleet_lab.lab, print)
    assert fleet_lab.first is not None and fleet_lab.first.report is not None
    longest = min(90.0, sum(fleet_lab.first.report.stage_seconds.values()))
    moment = random.Random(seed).uniform(1.5, longest)
    process = fleet_lab.start("site", "--limit", "worker2")
    time.sleep(moment)
    process.kill()
    said = process.communicate(timeout=60)[0]
    reached = [line for line in said.splitlines() if "Starting operation" in line][-1:]
    print(f"seed {seed}: killed after {moment:.1f} s in {reached}")
    report = fleet_lab.run("site").ok
    assert {n.name for n in report.nodes if n.state == "ready"} == {"head1", "worker1", "worker2"}
