"""Pairs of real hosts by Debian's Open MPI and a throw-away sshd; only the cards are simulated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rackpin.findings import Finding, Level, Outcome
from rackpin.inventory import Fleet, FleetConfig, Node
from rackpin.lab import description, lifecycle, ssh
from rackpin.lab.state import LabState
from rackpin.nccltests.build import ROOT
from rackpin.skus import load_sku
from rackpin.stack.lock import load_stack
from rackpin.verify import launch, nccl_command, nccl_run
from rackpin.verify.campaign import Campaign, run_campaign
from rackpin.verify.launch import Session
from rackpin.verify.measure import Measurer
from tests.lab.asking import asker

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
NAME = "t-nccl-pairs"
HOSTS = ["gpu1", "gpu2", "gpu3"]
LAB = f"name: {NAME}\nhosts:\n" + "".join(
    f"  - {{ name: {name}, groups: [workers], hardware: h100-sxm-8 }}\n" for name in HOSTS
)
INSTALL = (
    "{ apt-get update -q && DEBIAN_FRONTEND=noninteractive "
    "apt-get install -yq --no-install-recommends openmpi-bin; } >/root/apt.log 2>&1; "
    "mpirun --version"
)
# as the nccl stage leaves it, with the simulated program in place of the built one
BUILD = (
    f"mkdir -p {ROOT}/engine-0 && ln -sfn engine-0 {ROOT}/engine && "
    f"ln -sf /usr/local/bin/all_reduce_perf {ROOT}/engine-0/"
)
LOCKED = "usermod -p '!*' root"  # as cloud images have it; no key may be kept out by that
TRACES = r"""
find /run /tmp /root /var/tmp -not -path '/run/systemd/*' -not -path '/run/log/*' \
  -not -path '/run/user/*' -not -path '/run/rackpin-verify*' \
  -not -path '/run/rackpin-lab*' -printf '%y %p %m\n' 2>/dev/null
find /root/.ssh -type f -exec sha256sum {} +
ss -Hltn | awk '{ print $1, $4 }'
systemctl list-units --all --plain --no-legend | awk '{ print $1 }' |
  grep -v -e '^session-' -e '^user' -e '^dev-' -e '^proc-' -e '^sys-' -e '\.timer$' -e apt -e dpkg
ps -eo args= | grep -v -e 'sshd: root' -e '^ps ' -e 'bash -c' -e '^sort' -e '^grep' -e '^awk' \
  -e systemd -e sd-pam -e '^find' -e kworker -e '^sh -s'
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabState]:
    file: Path = tmp_path_factory.mktemp("lab") / "lab.yaml"
    file.write_text(LAB)
    lifecycle.down(NAME, purge=True)
    up = lifecycle.up(description.read(file, NAME), NAME, say=print)
    try:
        everywhere(up, BUILD)
        ssh.ask(up, up.host("gpu2"), LOCKED)
        yield up
    finally:
        lifecycle.down(NAME, purge=True)


@pytest.fixture(autouse=True)
def _short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing real is computed here, so nothing takes long."""
    monkeypatch.setattr(nccl_run, "START_S", 8.0)
    monkeypatch.setattr(nccl_run, "SLOWEST", 1.0)


def everywhere(lab: LabState, command: str, deadline_s: float = 60) -> list[str]:
    def one(name: str) -> str:
        return ssh.ask(lab, lab.host(name), command, deadline_s, check=False).stdout

    with ThreadPoolExecutor(len(HOSTS)) as pool:
        return list(pool.map(one, HOSTS))


def traces(lab: LabState) -> list[set[str]]:
    return [set(text.splitlines()) for text in everywhere(lab, TRACES)]


def run(lab: LabState, level: Level, port: int | None = None) -> dict[tuple[str, str], Finding]:
    nodes = {
        name: Node(
            name=name,
            groups=["workers"],
            address=str(lab.host(name).address),
            sku="h100-sxm-8",
            gpus=8,
        )
        for name in HOSTS
    }
    config = FleetConfig(fleet="lab", stack="cpu-lab", wheelhouse_url="http://127.0.0.1:1")
    lock = load_stack("cpu-lab").lock
    fleet, ask, into = Fleet(config=config, nodes=nodes), asker(lab), Campaign()
    run_campaign(fleet, lock, HOSTS, ask, level, print, port=port, into=into)
    return {(one.node, one.check): one for one in into.findings}


def outcomes(found: dict[tuple[str, str], Finding], check: str) -> list[Outcome]:
    return [one.outcome for (_, name), one in found.items() if name == check]


def test_pairs_over_real_hosts(lab: LabState) -> None:
    found = run(lab, "pair")
    assert outcomes(found, "nccl.pairs") == [Outcome.NOT_RUN] * 3
    assert "lacks mpirun, orted" in found["gpu1", "nccl.pairs"].summary
    assert "openmpi-bin" in found["gpu1", "nccl.pairs"].remedy
    assert outcomes(found, "nccl.loop") == [Outcome.PASS] * 3, "needs no MPI"
    assert all("Open MPI" in said for said in everywhere(lab, INSTALL, 300))

    before = traces(lab)
    found = run(lab, "fleet")
    assert {one.outcome for one in found.values()} == {Outcome.PASS}, found
    pairs = found["gpu1", "nccl.pairs"]
    assert "sound with 2 of 2 partners (IB, GDRDMA, 8 HCAs, NVLS)" in pairs.summary
    assert 370 < pairs.metrics["busbw_gb_s"] < 375
    assert "3 of 3 h100-sxm-8 nodes together" in found["fleet", "nccl.fleet"].summary
    assert traces(lab) == before, "something was left behind"

    found = run(lab, "pair", port=22)
    assert outcomes(found, "nccl.pairs") == [Outcome.NOT_RUN] * 3
    assert "port 22 of the node is in use" in found["gpu3", "nccl.pairs"].summary

    lifecycle.fault(lab, lab.host("gpu3"), ["slow-link"], say=print)
    found = run(lab, "pair")
    assert outcomes(found, "nccl.loop") == [Outcome.PASS, Outcome.PASS, Outcome.FAIL]
    assert outcomes(found, "nccl.pairs") == [Outcome.PASS, Outcome.PASS, Outcome.FAIL]
    assert "gpu3 is slow with every partner: 93" in found["gpu3", "nccl.pairs"].summary
    lifecycle.fault(lab, lab.host("gpu3"), ["sockets"], say=print)
    found = run(lab, "pair")
    assert "gpu3 goes by sockets" in found["gpu3", "nccl.pairs"].summary
    assert outcomes(found, "nccl.pairs") == [Outcome.PASS, Outcome.PASS, Outcome.FAIL]
    lifecycle.fault(lab, lab.host("gpu3"), [], say=print)
    assert traces(lab) == before


def test_a_hung_rank_ends_by_its_deadline_and_the_rest_goes_on(lab: LabState) -> None:
    before = traces(lab)
    ask, session, keys = asker(lab), opened(lab, 120), {}
    program = f"{ROOT}/engine/all_reduce_perf"
    for name in HOSTS:
        command = launch.prepare(session, name, program)
        output = ask({name: [command]})[name][command.name]
        keys[name] = launch.read_prepared(session, name, command, output)
        assert not keys[name].problem, keys[name]
    trusting = {n: [launch.trust(session, n, keys, nccl_command.FILES)] for n in HOSTS}
    assert [out["nccl.trust"].stdout for out in ask(trusting).values()] == ["trusted\n"] * 3
    secrets = "cat /run/rackpin-nccl-*/client | sed -n 2p; ps -eo args=; journalctl -q --no-pager"
    for said in everywhere(lab, secrets):
        key, _, rest = said.partition("\n")
        assert len(key) > 40 and key not in rest, "a private key in a process list or journal"

    lifecycle.fault(lab, lab.host("gpu3"), ["rank-hang"], say=print)
    sku = load_sku("h100-sxm-8")
    measure = Measurer(
        ask, print, session, dict.fromkeys(HOSTS, sku), dict.fromkeys(HOSTS, 8), "engine", []
    )
    began = time.monotonic()
    (hung,) = measure.round("pair", [("gpu1", "gpu3")])
    assert (hung.trouble, hung.measurement.outcome) == ("hung", Outcome.FAIL)
    assert time.monotonic() - began < 60
    hosts = everywhere(lab, "ps -eo args= | grep -e '[a]ll_reduce' -e '[o]rted' -e '[m]pirun'")
    assert hosts == ["", "", ""], "of the hung run nothing is left"
    (well,) = measure.round("pair", [("gpu1", "gpu2")])
    assert well.measurement.outcome is Outcome.PASS, well.measurement
    cleaned = ask({name: [launch.clean(session)] for name in HOSTS})
    lifecycle.fault(lab, lab.host("gpu3"), [], say=print)
    for output in cleaned.values():
        assert launch.left_behind(launch.clean(session), output["nccl.clean"]) == []
    assert traces(lab) == before


def opened(lab: LabState, life_s: int) -> Session:
    return Session({name: str(lab.host(name).address) for name in HOSTS}, life_s, 22122)


def test_without_anybody_to_end_it_it_ends_by_itself(lab: LabState) -> None:
    before = traces(lab)
    ask, session = asker(lab), opened(lab, 8)
    command = launch.prepare(session, "gpu1", f"{ROOT}/engine/all_reduce_perf")
    output = ask({"gpu1": [command]})["gpu1"][command.name]
    assert not launch.read_prepared(session, "gpu1", command, output).problem
    look = f"ls -d {session.directory}; ss -Hltn 'sport = :{session.port}'"
    assert len(ssh.ask(lab, lab.host("gpu1"), look).stdout.splitlines()) == 2
    shown = " ".join(traces(lab)[0] - before[0])
    for trace in (f"d {session.directory} 700", session.unit, f":{session.port}", "sshd -D -e"):
        assert trace in shown, "the comparison would not see it"
    end = time.monotonic() + 20
    while time.monotonic() < end and ssh.ask(lab, lab.host("gpu1"), look, check=False).stdout:
        time.sleep(0.5)
    assert traces(lab) == before
