"""The whole fleet loses its power and comes back in any order: it serves again without hands."""

from __future__ import annotations

import itertools
import time

import pytest

from rackpin.lab import assemble, ssh
from rackpin.lab import host as power
from tests.lab.fleet import FleetLab, wait

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]
HOSTS = ("head1", "worker1", "worker2")
LATE_S = 20  # between two hosts: longer than a worker's first tries to find its head
BACK_S = 300  # from the last host's boot until every engine serves


@pytest.mark.parametrize("order", list(itertools.permutations(HOSTS)), ids="-".join)
def test_it_comes_up_in_any_order(fleet_lab: FleetLab, order: tuple[str, ...]) -> None:
    lab = fleet_lab.lab
    power.stop(lab.hosts, orderly=False)
    for name in order:
        assemble.boot(lab, lab.host(name))
        if name != order[-1]:
            time.sleep(LATE_S)
    ssh.wait_ready(lab, lab.hosts, BACK_S)
    took = fleet_lab.wait_serving(BACK_S)
    print(f"{'-'.join(order)}: serving {took:.0f} s after the last host was there")
    for host in HOSTS:
        assert fleet_lab.ask(host, "systemctl list-units --failed --plain --no-legend") == ""
    wait(lambda: fleet_lab.rackpin("verify").code == 0, "a ready fleet", 180)
