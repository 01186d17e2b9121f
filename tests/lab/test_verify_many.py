"""Many nodes with eight simulated cards each, over real ssh, all at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.fleet import FleetLab, booted

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
NAME = "test-many"
HOSTS, COUNTS, PORT = 4, (16, 64), 2200  # as in many.py
LAB = f"name: {NAME}\nhosts:\n" + "".join(
    f"  - {{ name: h{number}, groups: [workers], hardware: h100-sxm-8"
    f"{', faults: [gpu-missing=5, hca-down=mlx5_3]' if number == 3 else ''} }}\n"
    for number in range(HOSTS)
)
LIMIT_S = 180.0  # two cores play all these nodes; what the controller costs is a unit test's


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    directory = Path(tmp_path_factory.mktemp("many"))
    (directory / "lab.yaml").write_text(LAB)
    with booted(directory / "lab.yaml", NAME, directory) as lab:
        # sixteen nodes share its sshd; more sockets than that it doesn't take
        ports = [22, *range(PORT + 1, PORT + max(COUNTS) // HOSTS)]
        lines = ["AddressFamily inet", "MaxStartups 100", *(f"Port {port}" for port in ports)]
        listen = "\n".join(lines)
        for host in lab.lab.hosts:
            lab.feed(host.name, f"echo '{listen}' >>/etc/ssh/sshd_config; systemctl restart ssh")
        known = [line.split(" ", 1) for line in lab.lab.known_hosts.read_text().splitlines()]
        lines = [f"[{name}]:{port} {key}\n" for name, key in known for port in ports[1:]]
        lines += [f"{name} {key}\n" for name, key in known]
        (lab.lab.directory / "known_hosts_many").write_text("".join(lines))
        yield lab


@pytest.mark.parametrize("count", COUNTS)
def test_all_checks_of_many_nodes(
    site: FleetLab, count: int, request: pytest.FixtureRequest
) -> None:
    if count > 16 and not request.config.getoption("--slow"):
        pytest.skip("slow: run with --slow")
    site.environment["RACKPIN_MANY"] = str(count)
    run = site.rackpin("verify", deadline_s=300, inventory="tests/lab/many.py")
    assert run.report is not None, run.tail
    found = run.report.findings
    asked = Counter(f.node for f in found if f.node != "fleet")
    print(f"{count} nodes: {run.seconds:.1f} s, {min(asked.values())} findings a node")
    assert len(run.report.nodes) == len(asked) == count and not run.report.partial
    # all checks, then cards that nobody uses: each library's all_reduce, and the HCAs
    assert {n.remote_executions for n in run.report.nodes} <= {2, 3, 4}, run.tail
    assert min(asked.values()) > 40
    for check in ("gpu.count", "fabric.hcas"):
        mine = [f for f in found if f.check == check]
        assert not [f.summary for f in mine if f.outcome == "not_run"]
        bad = {f.node for f in mine if f.outcome == "fail"}
        assert bad == {f"n{number:02}" for number in range(3, count, HOSTS)}
    assert run.code == 1 and not run.report.ready
    assert run.seconds < LIMIT_S
