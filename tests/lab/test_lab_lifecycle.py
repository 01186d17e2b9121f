"""The lab's hosts for real: up, reboot, poweroff, reset, accidents, down. About two minutes.

Labs of these tests have names and a state directory of their own and touch no other lab.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rackpin.inventory import ROOT
from rackpin.lab import LabError, LabState, cgroup, down, lifecycle, load, reboot, reset, ssh, up
from rackpin.lab.description import LabDescription, parse
from rackpin.lab.machine import preflight
from rackpin.lab.network import bridge_name, fabric_bridge_name, short, table_name
from rackpin.lab.process import read_pid, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

LIFE, SIDE, THREE, ALONE = "t-life", "t-side", "t-three", "t-alone"


@pytest.fixture(scope="module", autouse=True)
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    missing = preflight()
    if missing:
        pytest.skip("no lab on this machine: " + "; ".join(missing))
    directory = tmp_path_factory.mktemp("labs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RACKPIN_LAB_STATE", str(directory))
        patch.delenv("RACKPIN_LAB", raising=False)
        yield directory
        for name in (LIFE, SIDE, THREE, ALONE):
            down(name, purge=True)
    shutil.rmtree(directory)


def described(name: str, *hosts: str, nics: int = 1) -> LabDescription:
    """A lab over the same base as lab/lab.yaml; the first host is the head."""
    raw = yaml.safe_load((ROOT / "lab" / "lab.yaml").read_text())
    groups = ["head"] + ["workers"] * (len(hosts) - 1)
    raw |= {
        "name": name,
        "hosts": [
            {"name": host, "groups": [group], "nics": nics}
            for host, group in zip(hosts, groups, strict=True)
        ],
    }
    return parse(yaml.safe_dump(raw), "test")


TWO = described(LIFE, "a", "b", nics=2)


@pytest.fixture
def lab() -> LabState:
    """Two hosts with two interfaces each, up. Tests may leave hosts off or broken."""
    return up(TWO)


def boot_ids(lab: LabState) -> dict[str, str]:
    return {host.name: ssh.boot_id(lab, host) for host in lab.hosts}


def sh(lab: LabState, host: str, command: str) -> str:
    return ssh.ask(lab, lab.host(host), command).stdout.strip()


def pid_of(lab: LabState, host: str, which: str = "supervisor") -> int:
    pid = read_pid(lab.host(host).directory / f"{which}.pid")
    assert pid is not None
    return pid


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout


def traces(name: str, directory: Path) -> list[str]:
    """All that a lab has on this machine: processes, mounts, links, rules, groups, files."""
    hosts = str(directory / name)
    found = [
        line
        for line in output("ps", "-eo", "pid,args").splitlines()
        if f"--machine={name}-" in line or f"{hosts}/hosts/" in line
    ]
    found += [line for line in output("mount").splitlines() if f"{hosts}/" in line]
    links = [line.split()[0] for line in output("ip", "-br", "link").splitlines()]
    ours = (bridge_name(name), fabric_bridge_name(name), f"rpf{short(name)}", f"vb-{name}")
    found += [link for link in links if link.startswith(ours)]
    found += [s for s in output("nft", "list", "ruleset").splitlines() if table_name(name) in s]
    for tree in cgroup.hierarchies():
        found += [str(path) for path in (tree / cgroup.TOP).glob(f"{name}-*")]
        found += [str(path) for path in (tree / "system.slice").glob(f"*lab-{name}-*")]
    found += [str(path) for path in Path("/run/rackpin/lab").glob(f"{name}.json")]
    found += [str(path) for path in Path("/run/systemd/nspawn/propagate").glob(f"{name}-*")]
    return found


def test_up_twice_changes_nothing(lab: LabState, state_directory: Path) -> None:
    before = boot_ids(lab)
    lines: list[str] = []
    again = up(TWO, say=lines.append)
    assert boot_ids(again) == before
    assert lines[-1].endswith("as it was") and not [line for line in lines if "booting" in line]
    assert load(LIFE) == again
    assert traces(LIFE, state_directory), "the search for traces finds what is there"


def test_hosts_are_bare_debian_with_a_network(lab: LabState) -> None:
    assert sh(lab, "a", "hostname; cat /etc/hostname").split() == ["a", "a"]
    assert "127.0.1.1\ta" in sh(lab, "a", "cat /etc/hosts")
    assert sh(lab, "a", "command -v python3 gcc || echo none") == "none"
    assert sh(lab, "a", "systemctl is-system-running; systemctl --failed -q") == "running"
    assert sh(lab, "a", "grep -c 'non-free non-free-firmware$' /etc/apt/sources.list") == "3"
    b = lab.host("b")
    for address in (b.address, b.fabric_address, lab.control_address):
        assert "1 received" in sh(lab, "a", f"ping -c1 -W5 {address}")
    # hosts don't share memory, or vLLM would take them for one node
    sh(lab, "a", "touch /dev/shm/only-a")
    assert sh(lab, "b", "ls /dev/shm") == ""


def test_strict_host_keys_and_a_private_key(lab: LabState) -> None:
    assert lab.ssh_key.stat().st_mode & 0o777 == 0o600
    lab.known_hosts.write_text(lab.known_hosts.read_text().replace("AAAA", "AAAB"))
    with pytest.raises(LabError):
        ssh.boot_id(lab, lab.hosts[0])
    assert boot_ids(up(TWO)), "up writes known_hosts again"


def test_reboot_from_inside(lab: LabState) -> None:
    before = boot_ids(lab)
    sh(lab, "a", "touch /root/kept")
    ssh.ask(lab, lab.host("a"), "systemctl reboot", check=False)
    after = ssh.wait_ready(lab, [lab.host("a")], 60, before)
    assert after["a"] != before["a"]
    assert boot_ids(lab)["b"] == before["b"]
    assert sh(lab, "a", "ls /root") == "kept"
    assert "1 received" in sh(lab, "a", f"ping -c1 -W5 {lab.host('b').fabric_address}")
    third = reboot(lab, lab.host("a"))
    assert third == ssh.boot_id(lab, lab.host("a")) != after["a"]


def power_off(lab: LabState, host: str, deadline_s: float) -> float:
    began = time.monotonic()
    ssh.ask(lab, lab.host(host), "systemctl poweroff", check=False)
    assert wait_until(lambda: lab.host(host).power == "off", deadline_s)
    return time.monotonic() - began


def test_poweroff_stays_off_until_up(lab: LabState) -> None:
    before = boot_ids(lab)
    power_off(lab, "b", 30)
    time.sleep(2)
    assert lab.host("b").power == "off"
    assert not cgroup.processes(lab.host("b").machine)
    with pytest.raises(LabError):
        ssh.boot_id(lab, lab.host("b"))
    after = boot_ids(up(TWO))
    assert after["a"] == before["a"] and after["b"] != before["b"]


def test_a_shutdown_that_hangs_is_ended(lab: LabState) -> None:
    """systemd-shutdown gives processes that no unit stops 90 s."""
    stubborn = 'trap "" TERM INT HUP; while :; do sleep 1; done'
    sh(lab, "b", f"systemd-run -q -p KillMode=none sh -c '{stubborn}'")
    took = power_off(lab, "b", 60)
    assert took > 5, "it did hang"
    up(TWO)


def test_reset_gives_a_fresh_host_with_the_same_key(lab: LabState) -> None:
    def identity() -> tuple[str, str]:
        key = sh(lab, "a", "cat /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
        return sh(lab, "a", "cat /etc/machine-id"), key

    sh(lab, "a", "touch /root/gone /etc/gone")
    first, b_boot = identity(), boot_ids(lab)["b"]
    reset(lab, [lab.host("a")])
    second = identity()
    assert sh(lab, "a", "ls /root /etc/gone 2>&1 | grep -c gone; ls /root") == "1"
    assert second[0] != first[0] and second[1] == first[1]
    assert boot_ids(lab)["b"] == b_boot
    reset(lab, [lab.host("a")], new_hostkey=True)
    assert identity()[1] != first[1]


def test_two_labs_side_by_side(lab: LabState, state_directory: Path) -> None:
    other = up(described(SIDE, "a"))
    assert other.subnet != lab.subnet and other.bridge != lab.bridge
    ids = boot_ids(lab)
    assert boot_ids(other)["a"] not in ids.values()
    forward = Path("/proc/sys/net/ipv4/ip_forward")
    down(SIDE, purge=True)
    assert traces(SIDE, state_directory) == []
    assert forward.read_text() == "1\n", "the other lab still needs it"
    assert boot_ids(lab) == ids
    assert "1 received" in sh(lab, "a", f"ping -c1 -W5 {lab.control_address}")


def test_one_name_runs_once(lab: LabState, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RACKPIN_LAB_STATE", str(tmp_path))
    with pytest.raises(LabError, match=f"lab {LIFE} already runs with its state in"):
        up(TWO)


@pytest.mark.parametrize("which", [("supervisor",), ("nspawn",), ("supervisor", "nspawn")])
def test_up_recovers_from_kill_9(lab: LabState, which: tuple[str, ...]) -> None:
    before = boot_ids(lab)
    for pid in [pid_of(lab, "a", name) for name in which]:
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: lab.host("a").power in ("unsupervised", "failed"), 10)
    after = boot_ids(up(TWO))
    assert after["a"] != before["a"] and after["b"] == before["b"]
    assert lab.host("a").power == "running"


def test_a_connection_left_open_does_not_keep_the_link(
    lab: LabState, state_directory: Path
) -> None:
    """Unsent data of a dead host keeps its network namespace, and so its link, for minutes."""
    flood = [*ssh.argv(lab, lab.host("a"), "-o", "BatchMode=yes"), "cat /dev/zero"]
    client = subprocess.Popen(flood, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert client.stdout is not None and client.stdout.read(1)
        client.send_signal(signal.SIGSTOP)  # nobody reads: the host's buffers fill up
        time.sleep(1)
        reset(lab, [lab.host("a")])
        down(LIFE, purge=True)
        assert traces(LIFE, state_directory) == []
    finally:
        client.kill()
        client.communicate(timeout=10)


def test_down_after_kill_9_leaves_nothing_but_disks(lab: LabState, state_directory: Path) -> None:
    sh(lab, "b", "touch /root/kept")
    os.kill(pid_of(lab, "a"), signal.SIGKILL)
    down(LIFE)
    assert traces(LIFE, state_directory) == []
    with pytest.raises(LabError, match=f"lab {LIFE} is not up: run `rackpin lab up`"):
        load(LIFE)
    down(LIFE)  # again is fine
    assert sh(up(TWO), "b", "ls /root") == "kept"
    down(LIFE, purge=True)
    assert traces(LIFE, state_directory) == []
    assert not (state_directory / LIFE).exists()


def test_a_failure_takes_down_only_what_it_began(
    lab: LabState, state_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_lab: LabState) -> None:
        raise LabError("the last step fails")

    power_off(lab, "b", 30)
    before = ssh.boot_id(lab, lab.host("a"))
    with pytest.raises(LabError, match="the last step fails"):
        up(TWO, finish=fails)
    assert lab.host("b").power == "off"
    assert ssh.boot_id(lab, lab.host("a")) == before
    monkeypatch.setattr(lifecycle, "READY_S", 0.0)
    with pytest.raises(LabError, match="a was not ready within 0 s"):
        up(described(SIDE, "a"))
    assert traces(SIDE, state_directory) == []


@pytest.mark.parametrize("moment", ["booting a at", "a boots", "a is ready"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(
    tmp_path: Path, state_directory: Path, moment: str, how: signal.Signals
) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(yaml.safe_dump(described(SIDE, "a", "b").model_dump(mode="json")))
    argv = [sys.executable, "-m", "rackpin.lab", "up", "--file", str(file)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stderr is not None
        said = ""
        while moment not in said and child.poll() is None:
            said += child.stderr.readline()
        child.send_signal(how)
        said += child.stderr.read()
    assert child.returncode == 1, said
    assert "taking down what was begun" in said
    assert traces(SIDE, state_directory) == []


def test_three_hosts_are_up_within_30_seconds(
    state_directory: Path, record_property: Callable[[str, object], None]
) -> None:
    description = parse((ROOT / "lab" / "lab.yaml").read_text(), "lab/lab.yaml", THREE)
    began = time.monotonic()
    up(description, say=print)
    fresh = time.monotonic() - began
    down(THREE)
    began = time.monotonic()
    up(description)
    kept = time.monotonic() - began
    down(THREE, purge=True)
    print(f"3 hosts: {fresh:.1f} s fresh, {kept:.1f} s from their disks")
    record_property("up_fresh_s", fresh)
    record_property("up_kept_s", kept)
    assert max(fresh, kept) < 30
    assert traces(THREE, state_directory) == []


# In a network namespace of its own, where no other lab or firewall counts.
ALONE_SCRIPT = """
set -eu
mkdir -p /run/rackpin && mount -t tmpfs none /run/rackpin
ip link set lo up
forward() { cat /proc/sys/net/ipv4/ip_forward; }
echo 0 > /proc/sys/net/ipv4/ip_forward
nft -f - <<X
table ip filter {
  chain FORWARD { type filter hook forward priority 0; policy drop; }
  chain INPUT { type filter hook input priority 0; policy drop; ct state established accept; }
}
X
nft list ruleset > before
lab up
echo "forward $(forward)"
ssh_a="$("$PYTHON" -m rackpin.lab shell --name $NAME a -- ping -c1 -W5 $(cat control))"
echo "$ssh_a" | grep received
nft list chain ip filter FORWARD | grep -c rackpin-$NAME
lab down
echo "forward $(forward)"
nft list ruleset | diff before - && echo "rules as before"
ip -br link
"""


def test_forwarding_and_firewall_are_put_back(tmp_path: Path) -> None:
    (tmp_path / "lab.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from rackpin.lab import down, up\n"
        "from rackpin.lab.description import read\n"
        "if sys.argv[1] == 'up':\n"
        "    Path('control').write_text(up(read(Path('lab.yaml'))).control_address)\n"
        "else:\n"
        f"    down('{ALONE}')\n"
    )
    (tmp_path / "lab.yaml").write_text(
        yaml.safe_dump(described(ALONE, "a").model_dump(mode="json"))
    )
    script = f'lab() {{ "$PYTHON" lab.py "$1"; }}\n{ALONE_SCRIPT}'
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable, "NAME": ALONE},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "forward 1"
    assert "1 received" in lines[1]
    assert lines[2:5] == ["2", "forward 0", "rules as before"]
    assert [line.split()[0] for line in lines[5:]] == ["lo"]
