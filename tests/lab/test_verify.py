"""`rackpin verify`, marks and quarantine on the real fleet."""

from __future__ import annotations

import json
import signal
import time

import pytest

from rackpin.findings import Outcome
from rackpin.fleet import quarantine
from rackpin.fleet.mark import PATH, Mark, read
from rackpin.lab import lifecycle
from tests.lab.fleet import FleetLab, wait

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
HOSTS = ("head1", "worker1", "worker2")
FROZEN_S = 30  # long enough that the other nodes are done


def mark(fleet_lab: FleetLab, host: str) -> Mark:
    found = read(fleet_lab.ask(host, f"cat {PATH}"))
    assert found is not None
    return found


def marks(fleet_lab: FleetLab) -> dict[str, str]:
    return {h: fleet_lab.ask(h, f"stat -c '%Y %s' {PATH}") for h in HOSTS}


def test_ready_nodes_are_marked_once(fleet_lab: FleetLab) -> None:
    assert fleet_lab.run("verify").ok
    found = mark(fleet_lab, "worker1")
    assert (found.state, found.level, found.why) == ("ready", "node", [])
    assert found.identity.machine_id == fleet_lab.ask("worker1", "cat /etc/machine-id")
    before = marks(fleet_lab)
    run = fleet_lab.rackpin("verify")
    assert run.ok and [n.remote_executions for n in run.report.nodes] == [1, 1, 1]
    assert marks(fleet_lab) == before, "what is the same isn't written again"
    assert fleet_lab.rackpin("verify", "--read-only", "--level", "quick", "worker1").ok
    assert marks(fleet_lab) == before


def test_a_mark_of_another_lock_is_looked_at_again(fleet_lab: FleetLab) -> None:
    """And nothing that runs is touched by it."""
    before = fleet_lab.active_since()
    fleet_lab.ask("worker2", f'sed -i \'s/"lock": "[0-9a-f]*"/"lock": "00"/\' {PATH}')
    run = fleet_lab.run("site")
    assert run.ok and run.counts["executions"]["worker2"] > 2
    assert run.counts["executions"]["worker1"] == 2
    assert mark(fleet_lab, "worker2").state == "ready"
    assert fleet_lab.active_since() == before


def test_a_node_that_is_not_good_does_not_serve(fleet_lab: FleetLab) -> None:
    """worker2 lost a part of its environment: it is stopped before its engine would start."""
    package = "/opt/rackpin/current/lib/python3.11/site-packages/packaging-*.dist-info"
    fleet_lab.ask("worker2", f"systemctl stop vllm@tiny-one; mv {package} /root/away")
    fleet_lab.ask("worker2", f"rm {PATH}")
    try:
        run = fleet_lab.run("site")
        assert run.code == 1
        assert run.node("worker2").state == "not_ready", run.tail
        assert "packaging" in run.finding("worker2", "versions.wheels").summary
        assert fleet_lab.show("worker2", "vllm@tiny-one", "ActiveState") == "inactive"
        assert mark(fleet_lab, "worker2").state == "not_ready"
        assert run.node("worker1").state == "ready"
    finally:
        fleet_lab.ask(
            "worker2",
            "d=/opt/rackpin/current/lib/python3.11/site-packages; v=$(sed -n 's/^Version: //p' "
            "/root/away/METADATA) && mv /root/away $d/packaging-$v.dist-info",
            check=False,
        )
    assert fleet_lab.run("site").ok, "it serves as soon as it is good"


def test_a_quarantined_node_stays_out_until_it_is_let_in(fleet_lab: FleetLab) -> None:
    put = fleet_lab.rackpin("quarantine", "worker2", "--reason", "XID 79", "--owner", "ada")
    assert put.code == 0 and "tiny-one may still serve" in put.text
    try:
        lifecycle.reboot(fleet_lab.lab, fleet_lab.lab.host("worker2"))
        for unit in ("ray-worker", "vllm@tiny-one"):
            wait(
                lambda unit=unit: fleet_lab.show("worker2", unit, "ConditionResult") == "no",
                f"{unit} to be held back",
                60,
            )
            assert fleet_lab.show("worker2", unit, "ActiveState") == "inactive"
        run = fleet_lab.run("site")
        report = run.ok
        assert run.node("worker2").state == "quarantined" and "ada" in run.node("worker2").reason
        told = next(f for f in report.findings if f.check == quarantine.CHECK)
        assert told.outcome is Outcome.WARN and "tiny-one" in told.summary
        assert fleet_lab.show("worker2", "ray-worker", "ActiveState") == "inactive"
        other = fleet_lab.rackpin("quarantine", "worker2", "--lift", "--owner", "bob")
        assert other.code == 1 and "ada" in other.text
    finally:
        lifted = fleet_lab.rackpin("quarantine", "worker2", "--lift", "--owner", "ada")
    assert lifted.code == 0, lifted.text
    report = fleet_lab.run("site").ok
    assert {n.state for n in report.nodes} == {"ready"}
    assert fleet_lab.show("worker2", "vllm@tiny-one", "ActiveState") == "active"


def test_a_hung_node_costs_its_deadline_only_and_ctrl_c_leaves_a_report(
    fleet_lab: FleetLab,
) -> None:
    # its port still takes connections; nobody behind it says a word, until a timer wakes it
    fleet_lab.ask(
        "worker2",
        f"systemd-run -q --on-active={FROZEN_S + 40} pkill -CONT -x sshd; "
        "systemd-run -q --on-active=1 --timer-property=AccuracySec=100ms pkill -STOP -x sshd",
    )
    time.sleep(3)
    try:
        process = fleet_lab.start_rackpin("verify", "--read-only")
        time.sleep(FROZEN_S)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        assert process.returncode == 130, text[-3000:]
        report = fleet_lab.latest()
        assert report is not None and report.partial and not report.ready
        states = {n.name: n.state for n in report.nodes}
        assert states["head1"] == states["worker1"] == "ready", json.dumps(states)
        assert states["worker2"] in ("failed", "unreachable")
    finally:
        wait(lambda: fleet_lab.ask("worker2", "echo there") == "there", "worker2 to wake", 90)
    assert fleet_lab.run("verify").ok
