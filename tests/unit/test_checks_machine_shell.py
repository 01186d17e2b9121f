"""The shell text of the machine's checks, run for real over directories and stubs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from rackpin.checks import (
    containers,
    fabric_counters,
    gpu_dcgm,
    gpu_holders,
    gpu_pci,
    host,
    host_log,
    host_storage,
    net_fabric,
)
from rackpin.checks.base import Command, Output
from rackpin.checks.host import Answer
from rackpin.desired import Target
from rackpin.findings import Outcome
from rackpin.lab.hardware import kernel, presets
from tests.unit import checks_samples, gpu_samples
from tests.unit.fabric_samples import Tree, h100
from tests.unit.test_checks_gpu_log import run, stub

METAL = 'case "$1" in -*) echo none; exit 1 ;; esac'


def on_metal(tmp_path: Path, **programs: str) -> dict[str, str]:
    """PATH with these programs first; systemd-detect-virt says bare metal."""
    return stub(tmp_path, systemd_detect_virt=METAL, **programs)


def parts(command: Command, output: Output, *wanted: str) -> dict[str, str]:
    found = host.read(command, output, wanted)
    assert isinstance(found, dict), found
    return found


def test_the_hosts_own_answer_is_whole_anywhere(tmp_path: Path) -> None:
    programs = {"systemctl": "exit 1", "timedatectl": "echo NTPSynchronized=yes", "dpkg": "exit 0"}
    answer = run(host.STATE.shell, on_metal(tmp_path, **programs))
    found = parts(host.STATE, answer, "kernels", "cpu", "memory", "mounts", "shm", "dpkg")
    assert host.place(found) == host.Place(container=False, bare_metal=True)
    assert "MemAvailable:" in found["memory"] and "online " in found["cpu"]
    assert found["kernels"].startswith("running ") and found["mounts"].startswith("/")


@pytest.mark.parametrize(
    ("says", "place"),
    [
        ("lxc", host.Place(True, False)),
        ("", host.Place(None, None)),
        ("none", host.Place(False, True)),
    ],
)
def test_where_it_runs(tmp_path: Path, says: str, place: host.Place) -> None:
    answer = run(host.PLACE, stub(tmp_path, systemd_detect_virt=f"echo {says}"))
    assert host.place(host.sections(answer.stdout)) == place


def test_a_storm_in_the_log_leaves_room_for_the_rest(target: Target, tmp_path: Path) -> None:
    """Ten thousand sectors of one drive, then one line of another, and the last of the storm."""
    log = tmp_path / "log"
    storm = [f"[ {n}.5] I/O error, dev sda, sector {n + 100000}" for n in range(1000, 11000)]
    lines = ["[    0.000000] Linux version 6.5", *storm, "[11001.5] I/O error, dev sdb, sector 10"]
    quiet = [f"[ 99.{n}] usb {n}-1: new device" for n in range(5000)]
    log.write_text("\n".join([*lines, *quiet]) + "\n")
    env = on_metal(tmp_path, dmesg=f"cat {log}", journalctl="exit 1")
    answer = run(host_log.LOG.shell, env)
    assert len(answer.stdout) < 4000 and "[ 10999.5]" in answer.stdout
    ctx = checks_samples.context(target)
    found = checks_samples.found(ctx, host_log.CHECK, {"host.log": answer})
    assert found["log.storage"].outcome is Outcome.FAIL
    assert "sda: I/O errors; sdb: I/O errors" in found["log.storage"].summary
    assert found["log.memory"].outcome is Outcome.PASS


def test_more_kinds_than_are_kept_is_said(target: Target, tmp_path: Path) -> None:
    log = tmp_path / "log"
    kinds = (f"[ 9.1] BTRFS info {chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(500))
    log.write_text("\n".join(["[    0.000000] Linux", *kinds]))
    answer = run(host_log.LOG.shell, on_metal(tmp_path, dmesg=f"cat {log}", journalctl="exit 1"))
    found = checks_samples.found(
        checks_samples.context(target), host_log.CHECK, {"host.log": answer}
    )
    assert {one.outcome for one in found.values()} == {Outcome.NOT_RUN}


def test_a_log_that_may_not_be_read(target: Target, tmp_path: Path) -> None:
    env = on_metal(tmp_path, dmesg="echo denied >&2; exit 1", journalctl="exit 1")
    answer = run(host_log.LOG.shell, env)
    found = checks_samples.found(
        checks_samples.context(target), host_log.CHECK, {"host.log": answer}
    )
    assert {one.outcome for one in found.values()} == {Outcome.NOT_RUN}


def test_registers_are_read_from_sysfs(tmp_path: Path) -> None:
    tree = h100(Tree(tmp_path / "root"))
    for device in (tmp_path / "root/sys/class/infiniband").iterdir():
        full = (device / "device").resolve()
        (full / "current_link_speed").write_text("32.0 GT/s PCIe\n")
        (full / "aer_dev_fatal").write_text("DLP 2\nUnsupReq 7\nTOTAL_ERR_FATAL 9\n")
    shell = gpu_pci.REGISTERS.shell.replace("/sys/", f"{tree.root}/sys/")
    answer = run(shell, on_metal(tmp_path))
    assert answer.rc == 0 and not answer.stderr
    found = gpu_pci.devices(Answer(parts(gpu_pci.REGISTERS, answer, "devices")))
    cards = [one for one in found.values() if one.kind == "gpu"]
    adapters = [one for one in found.values() if one.kind.startswith("mlx5")]
    assert len(cards) == len(adapters) == 8
    # fabric_samples sets device control 0x2830: payload 256, read request 512.
    assert {(one.payload, one.read_request) for one in adapters} == {(256, 512)}
    assert {(one.speed, one.errors[2]) for one in adapters} == {(32.0, 2)}
    assert all(found[one.parent].kind == "bridge" for one in [*cards, *adapters])


def test_counters_from_sysfs(target: Target, tmp_path: Path) -> None:
    """The script over real files gives what the simulated node gives."""
    node = presets.node("head1", "h100-sxm-8", ["hca-errors=mlx5_2"])
    for path, text in kernel.sys_infiniband(node).items():
        file = tmp_path / "sys/class/infiniband" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shell = fabric_counters.COUNTERS.shell.replace("/sys/class", f"{tmp_path}/sys/class")
    answer = run(shell, stub(tmp_path))
    ctx = gpu_samples.context(target, "h100-sxm-8")
    (found,) = fabric_counters.CHECK.judge(ctx, {"fabric.counters": answer})
    assert found.outcome is Outcome.FAIL
    assert "symbol_error: mlx5_2/1 2417; link_downed: mlx5_2/1 12" in found.summary


def test_holders_by_their_open_files(tmp_path: Path) -> None:
    for pid, link in ((812, "/dev/nvidia0"), (813, "/dev/null"), (814, "/dev/nvidiactl")):
        here = tmp_path / f"proc/{pid}/fd"
        here.mkdir(parents=True)
        (here / "3").symlink_to(link)
        (here.parent / "comm").write_text("python\n")
        (here.parent / "status").write_text("Name:\tpython\nState:\tD (disk sleep)\n")
        (here.parent / "cgroup").write_text("0::/system.slice/vllm@two.service\n")
    shell = gpu_holders.HOLDERS.shell.replace("/proc/", f"{tmp_path}/proc/")
    # Depth of the directory decides which part of the path is the process.
    shell = shell.replace("-f 3", f"-f {len(tmp_path.parts) + 2}")
    answer = run(shell, on_metal(tmp_path, systemctl="exit 0"))
    found = parts(gpu_holders.HOLDERS, answer, "holders", "units")
    assert found["holders"] == "812|python|D|0::/system.slice/vllm@two.service\n"


@pytest.mark.parametrize("command", [gpu_dcgm.HEALTH, containers.DOCKER, host_storage.HEALTH])
def test_a_tool_that_is_not_there_leaves_a_whole_answer(command: Command, tmp_path: Path) -> None:
    env = on_metal(tmp_path)
    tools = ("sh", "timeout", "grep", "cat", "dpkg-query")
    for tool in tools:
        real = Path("/usr/bin") / tool
        if real.exists():
            (tmp_path / tool).symlink_to(real)
    answer = run(command.shell, env | {"PATH": str(tmp_path)})
    assert answer.rc == 0 and "none" in answer.stdout and answer.stdout.endswith("## end\n")


def test_docker_that_answers(target: Target, tmp_path: Path) -> None:
    box = '{"ShmSize":67108864,"IpcMode":"private","Runtime":"nvidia","Ulimits":null}'
    docker = (
        "case $1 in info) echo '{\"nvidia\":{}}' ;; ps) echo abc ;; "
        f"inspect) echo {shlex.quote('/engine|' + box)} ;; esac"
    )
    env = on_metal(tmp_path, docker=docker, dpkg_query="echo 'ii  1.19.1-1'")
    answer = run(containers.DOCKER.shell, env)
    ctx = gpu_samples.context(target, "h100-sxm-8")
    (shm,) = containers.SHM.judge(ctx, {"host.docker": answer})
    assert shm.outcome is Outcome.FAIL and "67108864 bytes" in shm.summary
    (toolkit,) = containers.TOOLKIT.judge(ctx, {"host.docker": answer})
    assert toolkit.outcome is Outcome.PASS


def test_the_interface_of_the_nodes_address(target: Target, tmp_path: Path) -> None:
    ctx = checks_samples.context(target)
    command = net_fabric.command(ctx)
    env = on_metal(
        tmp_path,
        ip="echo '1: lo    inet 127.0.0.1/8 scope host'; "
        "echo '2: lo    inet 10.9.0.11/24 brd 10.9.0.255 scope global'",
        ethtool="printf 'Supported link modes:   1000baseT/Full\\n  25000baseCR/Full\\n'",
    )
    found = parts(command, run(command.shell, env), "interface", "link", "modes")
    assert found["interface"] == "lo\n" and "mtu=65536" in found["link"]
    assert found["modes"].split() == ["1000baseT/Full", "25000baseCR/Full"]
