"""After a power cut something comes a minute late, model share or cards: nothing gives up."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin import layout
from rackpin.desired import Desired, Target, owned
from rackpin.inventory import Fleet, FleetConfig, Node
from rackpin.lab import assemble, description, lifecycle, ssh
from rackpin.lab import host as power
from rackpin.lab.hardware.tree import HOME
from rackpin.lab.services import MODEL
from rackpin.stack.lock import load_stack
from rackpin.stages import cards, ray
from rackpin.stages.driver import FABRIC
from tests.lab.fleet import FleetLab, wait

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]
LATE_S = 60
BACK_S = 300  # from the boot until every engine serves
FAILED = "systemctl list-units --failed --plain --no-legend"
ENGINES = {"head1": "vllm@tiny-tp2", "worker2": "vllm@tiny-one"}
SHARE = "/srv/share"
# A mount that nothing orders or waits for, as of a server that is still booting.
LATE_SHARE = f"""[Service]
Type=exec
ExecStart=/bin/sh -c 'sleep {LATE_S}; mount --bind {SHARE} {MODEL}'
[Install]
WantedBy=multi-user.target
"""
UNIT = "late-share.service"


@pytest.fixture
def late_share(fleet_lab: FleetLab) -> Iterator[None]:
    """From the next boot on the model is a share, mounted late; afterwards a directory again."""
    hosts = [host.name for host in fleet_lab.lab.hosts]
    for host in hosts:
        fleet_lab.ask(host, f"mv {MODEL} {SHARE} && mkdir {MODEL}")
        fleet_lab.feed(host, f"cat >/etc/systemd/system/{UNIT} <<'END'\n{LATE_SHARE}END\n")
        fleet_lab.ask(host, f"systemctl daemon-reload && systemctl enable {UNIT} && sync")
    yield
    for host in hosts:
        fleet_lab.ask(host, f"systemctl disable --now {UNIT}; rm /etc/systemd/system/{UNIT}")
        fleet_lab.ask(host, f"umount -l {MODEL} && rmdir {MODEL} && mv {SHARE} {MODEL}")


@pytest.mark.usefixtures("late_share")
def test_engines_wait_for_a_share_that_comes_late(fleet_lab: FleetLab) -> None:
    lab = fleet_lab.lab
    power.stop(lab.hosts, orderly=False)
    for host in lab.hosts:
        assemble.boot(lab, host)
    ssh.wait_ready(lab, lab.hosts, BACK_S)
    took = fleet_lab.wait_serving(BACK_S)
    print(f"serving {took:.0f} s after the hosts were there")
    for host, unit in ENGINES.items():
        said = fleet_lab.ask(host, f"journalctl -b -o cat -u {unit}")
        assert f"waiting for {MODEL}/config.json" in said
        mounted = fleet_lab.show(host, UNIT, "ExecMainExitTimestampMonotonic")
        active = fleet_lab.show(host, unit, "ActiveEnterTimestampMonotonic")
        assert 0 < int(mounted) < int(active)
        assert fleet_lab.show(host, unit, "NRestarts") == "0", said
    for host in lab.hosts:
        assert fleet_lab.ask(host.name, FAILED) == ""
    wait(lambda: fleet_lab.rackpin("verify").code == 0, "a ready fleet", 180)


# -- cards -----------------------------------------------------------------------------------------
NAME, KIND, HOST, RAY = "t-boot-cards", "h100-sxm-8", "gpu1", layout.RAY_HEAD_UNIT
LAB = f"""name: {NAME}
hosts:
  - {{ name: {HOST}, groups: [head], sku: {KIND}, hardware: {KIND} }}
"""
# The unit, its gate for cards and systemd are the real ones; Ray and its Python aren't there.
STAND_INS = f"""set -e
useradd --system {layout.USER}
mkdir -p {layout.CURRENT}/bin {layout.STATE}
printf '#!/bin/sh\\n' >{layout.PYTHON}
printf '#!/bin/sh\\nexec sleep infinity\\n' >{layout.CURRENT}/bin/ray
chmod 755 {layout.PYTHON} {layout.CURRENT}/bin/ray
systemctl daemon-reload
systemctl enable {RAY}
sync
"""
DROP_IN = "etc/systemd/system/nvidia-fabricmanager.service.d/90-rackpin.conf.j2"


def wish(address: str) -> Desired:
    """What the Ray stage wants of the host, and of its fabric manager."""
    node = Node(name=HOST, groups=["head"], address=address, sku=KIND, gpus=8, nvswitch=True)
    config = FleetConfig(
        fleet="late", stack="cpu-lab", wheelhouse_url="http://10.9.0.1:8900", instances=[]
    )
    lock = load_stack("cpu-lab").lock
    found = ray.desired(Target(Fleet(config=config, nodes={HOST: node}), node, lock, "host0"))
    return Desired(files=(*found.files, owned(DROP_IN)))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    directory = Path(tmp_path_factory.mktemp("late"))
    (directory / "lab.yaml").write_text(LAB)
    lifecycle.down(NAME, purge=True)
    lab = lifecycle.up(description.read(directory / "lab.yaml", NAME), NAME, say=print)
    try:
        one = FleetLab(lab, directory)
        for file in wish(lab.host(HOST).address).files:
            text = f"mkdir -p $(dirname {file.path}); cat >{file.path} <<'END'\n{file.content}END\n"
            one.feed(HOST, text + f"chmod {file.mode} {file.path}\n")
        one.feed(HOST, STAND_INS)
        assert one.ask(HOST, f"systemctl is-enabled {RAY}") == "enabled"
        yield one
    finally:
        lifecycle.down(NAME, purge=True)


def cut(site: FleetLab) -> None:
    """A power cut, and back; the cards are as the host's faults say."""
    power.stop(site.lab.hosts, orderly=False)
    assemble.boot(site.lab, site.lab.host(HOST))
    ssh.wait_ready(site.lab, site.lab.hosts, BACK_S)


def journal(site: FleetLab, unit: str = RAY) -> str:
    return site.ask(HOST, f"journalctl -b -o cat -u {unit}")


def came_up_without_a_restart(site: FleetLab, deadline_s: float) -> None:
    took = wait(lambda: site.show(HOST, RAY, "ActiveState") == "active", RAY, deadline_s)
    print(f"{RAY} {took:.0f} s after what was late")
    assert site.show(HOST, RAY, "NRestarts") == "0", journal(site)
    assert site.ask(HOST, FAILED) == ""


def test_ray_waits_for_cards_that_come_late(site: FleetLab) -> None:
    site.faults(HOST, "no-cards")
    cut(site)
    time.sleep(LATE_S)
    assert site.show(HOST, RAY, "ActiveState") == "activating"
    assert "cards-gate: waiting for 8 cards, the driver has found 0" in journal(site)
    site.faults(HOST)
    came_up_without_a_restart(site, 30)


def test_fabric_manager_that_failed_at_first_is_tried_again_and_waited_for(site: FleetLab) -> None:
    code = f"{HOME}/current/fabric/code"
    assert site.ask(HOST, f"cat {code}") == "0"
    site.ask(HOST, f"echo 1 >$(readlink -f {code}); sync")
    cut(site)
    wait(lambda: int(site.show(HOST, FABRIC, "NRestarts")) >= 2, "two more tries", LATE_S)
    assert site.show(HOST, RAY, "ActiveState") == "activating"
    assert re.search(f"waiting for {re.escape(FABRIC)} to run", journal(site))
    assert site.ask(HOST, FAILED) == "", "between two tries it isn't failed"
    site.ask(HOST, f"echo 0 >$(readlink -f {code})")
    came_up_without_a_restart(site, 30)


def test_cards_that_never_come_are_said_in_one_line(site: FleetLab) -> None:
    site.faults(HOST, "gpu-missing=3")
    said = site.ask(HOST, f"timeout 30 {cards.PROGRAM} 8 2 2>&1; echo ended $?")
    assert "gave up after 2 s waiting for 8 cards, the driver has found 7" in said
    assert "ended 1" in said
