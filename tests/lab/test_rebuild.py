"""A host that was installed anew comes back by one command; nobody else notices."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rackpin.fleet.state import FleetState
from rackpin.inventory import ROOT
from rackpin.lab import description, lifecycle, services
from tests.lab.fleet import FleetLab, wait

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(2400)]

NODE = "worker2"


def state_of(fleet_lab: FleetLab) -> FleetState:
    return FleetState(fleet_lab.lab.directory / "state" / fleet_lab.lab.name)


def files(directory: Path) -> dict[str, str]:
    return {str(p): p.read_text() for p in directory.rglob("*") if p.is_file()}


def others(fleet_lab: FleetLab) -> dict[str, str]:
    return {name: since for name, since in fleet_lab.active_since().items() if name != NODE}


def keys_of(known_hosts: str) -> dict[str, list[str]]:
    """Kind and key by name."""
    rows = [line.split() for line in known_hosts.splitlines()]
    return {name: row[1:] for row in rows for name in row[0].split(",")}


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
    assert keys_of(lab.known_hosts.read_text()) == keys_of(known_after)
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


TREE = "find /etc /var/lib/dpkg -type f -exec sha256sum {} + | sort | sha256sum"


def test_a_host_that_was_built_by_hand_is_only_looked_at(
    fleet_lab: FleetLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle.reset(fleet_lab.lab, [fleet_lab.lab.host(NODE)])
    services.start(fleet_lab.lab, print)
    path = "/etc/sysctl.d/90-rackpin.conf"
    fleet_lab.ask(NODE, f"echo 'vm.swappiness = 1' >{path}")
    by_hand = "systemd-run --quiet --unit=by-hand systemd-socket-activate -l 8000 /bin/cat"
    fleet_lab.ask(NODE, by_hand)
    before = fleet_lab.ask(NODE, TREE)

    monkeypatch.setitem(fleet_lab.environment, "COLUMNS", "240")  # no line is folded
    run = fleet_lab.rackpin("adopt", NODE)
    print(run.text)
    assert run.code == 1, run.tail
    assert f"{path}: replaced, kept as /var/lib/rackpin/backup{path}" in run.text
    assert "refused: port 8000" in run.text and "by-hand" in run.text
    assert re.search(r"package \S+: install", run.text)
    fleet_lab.ask(NODE, "systemctl stop by-hand")
    run = fleet_lab.rackpin("adopt", NODE, "--json")
    assert run.code == 0, run.tail
    told = json.loads(run.text)
    assert told["outcome"] == "nothing" and told["interruptions"] == [] and not told["known"]
    assert {"apt", "base", "python", "ray", "serve"} <= {stage["name"] for stage in told["stages"]}
    assert fleet_lab.ask(NODE, TREE) == before, "it only looks"

    fleet_lab.ask(NODE, "systemctl poweroff", check=False)
    wait(lambda: fleet_lab.lab.host(NODE).power == "off", f"{NODE} to be off", 60)
    run = fleet_lab.rackpin("adopt", NODE)
    assert run.code == 3 and "could not look" in run.text, run.tail
    lifecycle.up(description.read(ROOT / "lab" / "lab.yaml", fleet_lab.lab.name))
    assert fleet_lab.run("site").ok
    run = fleet_lab.rackpin("adopt", NODE)
    assert run.code == 0 and "would change" not in run.text, run.tail
