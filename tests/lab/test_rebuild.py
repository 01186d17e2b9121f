"""A host that was installed anew comes back by one command; nobody else notices."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rackpin.fleet.state import FleetState
from rackpin.lab import lifecycle, services
from tests.lab.fleet import FleetLab

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(2400)]

NODE = "worker2"


def state_of(fleet_lab: FleetLab) -> FleetState:
    return FleetState(fleet_lab.lab.directory / "state" / fleet_lab.lab.name)


def files(directory: Path) -> dict[str, str]:
    return {str(p): p.read_text() for p in directory.rglob("*") if p.is_file()}


def others(fleet_lab: FleetLab) -> dict[str, str]:
    return {name: since for name, since in fleet_lab.active_since().items() if name != NODE}


def test_a_host_that_was_installed_anew_is_rebuilt_by_one_command(fleet_lab: FleetLab) -> None:
    assert fleet_lab.first is not None and fleet_lab.first.ok
    lab, state = fleet_lab.lab, state_of(fleet_lab)
    old = state.record(NODE)
    assert old is not None
    known_before = lab.known_hosts.read_text()
    lifecycle.reset(lab, [lab.host(NODE)], new_hostkey=True)
    services.start(lab, print)
    known_after = lab.known_hosts.read_text()
    assert known_after != known_before
    since, kept = others(fleet_lab), files(state.directory)
    lab.known_hosts.write_text(known_before)  # nobody has told this machine of the new key

    dry = fleet_lab.rackpin("rebuild", NODE, "--dry")
    assert dry.code == 1 and "changed" in dry.text, dry.tail
    refused = fleet_lab.rackpin("rebuild", NODE, "--dry", "--accept-host-key", "SHA256:not-this")
    assert refused.code == 1, refused.tail
    assert files(state.directory) == kept and lab.known_hosts.read_text() == known_before

    refused = fleet_lab.rackpin("rebuild", NODE)
    assert refused.code == 1, refused.tail
    asked = re.search(r"--accept-host-key (SHA256:\S+)", refused.text)
    assert asked and NODE in state.quarantined(), refused.tail
    assert lab.known_hosts.read_text() == known_before

    run = fleet_lab.rackpin("rebuild", NODE, "--accept-host-key", asked[1])
    print(f"rebuilt in {run.seconds:.0f} s\n{run.text}")
    assert run.code == 0, run.tail
    assert "goes on with the rebuild that" in run.text
    assert re.search(r"os\s+machine-id\s+" + old.identity.machine_id[:8], run.text), run.text
    assert re.search(r"host key\s+ssh\s+SHA256:", run.text), run.text
    assert others(fleet_lab) == since, "a unit of another host was restarted"
    assert sorted(lab.known_hosts.read_text().split()) == sorted(known_after.split())
    (backup,) = lab.known_hosts.parent.glob("known_hosts.*.old")
    assert backup.read_text() == known_before

    record = state.record(NODE)
    assert record is not None and record.identity.machine_id != old.identity.machine_id
    assert old.identity in record.earlier and NODE not in state.quarantined()
    (proof,) = (state.directory / "nodes").glob(f"{NODE}.swap-*.json")
    told = json.loads(proof.read_text())
    assert told["old"]["machine_id"] == old.identity.machine_id
    assert told["new"]["machine_id"] == record.identity.machine_id
    assert {d["part"] for d in told["differences"]} >= {"os", "host key"}
    assert len(told["reports"]) == 2 and all(Path(one).is_file() for one in told["reports"])
    fleet_lab.wait_serving()

    again = fleet_lab.rackpin("rebuild", NODE)
    assert again.code == 0 and "nothing to do" in again.text, again.tail
    assert fleet_lab.run("site").ok
