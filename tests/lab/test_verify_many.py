"""64 nodes with eight simulated cards each, over real ssh: all checks of a node in a minute."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.findings import Outcome
from tests.lab.fleet import FleetLab, booted

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
NAME = "test-many"
HOSTS, COUNT, PORT = 4, 64, 2200  # as in many.py
LAB = f"name: {NAME}\nhosts:\n" + "".join(
    f"  - {{ name: h{number}, groups: [workers], hardware: h100-sxm-8"
    f"{', faults: [gpu-missing=5, hca-down=mlx5_3]' if number == 3 else ''} }}\n"
    for number in range(HOSTS)
)
LIMIT_S = 60.0  # all checks of 64 nodes, on two cores that also play the nodes
LIMIT_KIB = 500 * 1024  # of the controller's process


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    directory = Path(tmp_path_factory.mktemp("many"))
    (directory / "lab.yaml").write_text(LAB)
    with booted(directory / "lab.yaml", NAME, directory) as lab:
        # sixteen nodes share its sshd; more sockets than that it doesn't take
        ports = [22, *range(PORT + 1, PORT + COUNT // HOSTS)]
        lines = ["AddressFamily inet", "MaxStartups 100", *(f"Port {port}" for port in ports)]
        listen = "\n".join(lines)
        for host in lab.lab.hosts:
            lab.feed(host.name, f"echo '{listen}' >>/etc/ssh/sshd_config; systemctl restart ssh")
        known = [line.split(" ", 1) for line in lab.lab.known_hosts.read_text().splitlines()]
        lines = [f"[{name}]:{port} {key}\n" for name, key in known for port in ports[1:]]
        lines += [f"{name} {key}\n" for name, key in known]
        (lab.lab.directory / "known_hosts_many").write_text("".join(lines))
        yield lab


def test_all_checks_of_64_nodes(site: FleetLab) -> None:
    run = site.rackpin("verify", deadline_s=300, inventory="tests/lab/many.py")
    assert run.report is not None, run.tail
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    asked = Counter(f.node for f in run.report.findings if f.node != "fleet")
    print(
        f"{run.seconds:.1f} s, {peak / 1024:.0f} MB at most, {min(asked.values())} findings a node"
    )
    assert len(run.report.nodes) == len(asked) == COUNT and not run.report.partial
    assert {n.remote_executions for n in run.report.nodes} <= {1, 2, 3}, run.tail
    assert min(asked.values()) > 40
    bad = {f.node for f in run.report.findings if f.check == "gpu.count" and f.outcome == "fail"}
    down = {f.node for f in run.report.findings if f.check == "fabric.hcas" and f.outcome == "fail"}
    assert bad == down == {f"n{number:02}" for number in range(3, COUNT, HOSTS)}
    odd = {one.node for one in run.report.outliers}
    assert bad <= odd, "the odd ones are told by comparison too"
    assert run.code == 1 and not run.report.ready
    blind = [f for f in run.report.findings if f.check == "gpu.count" and f.outcome == "not_run"]
    assert not blind, [f"{f.node} {f.summary}" for f in blind[:3]]
    assert Outcome.PASS in {f.outcome for f in run.report.findings if f.check == "gpu.count"}
    assert run.seconds < LIMIT_S
    assert peak < LIMIT_KIB
