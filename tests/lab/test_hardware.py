"""A real host with simulated hardware: before and after its driver, faults at once, a reboot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.lab import description, lifecycle, ssh
from rackpin.lab.errors import LabError
from rackpin.lab.hardware.answer import answer
from rackpin.lab.hardware.presets import node
from rackpin.lab.state import LabState

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
NAME = "test-hardware"
LAB = """
name: test-hardware
hosts:
  - { name: gpu1, groups: [workers], hardware: h100-sxm-8, faults: [FAULTS] }
"""
# a package as NVIDIA's that brings its own nvidia-smi
PACKAGE = r"""
mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin
cat >/tmp/p/DEBIAN/control <<END
Package: nvidia-utils-535
Version: 535.129.03-1
Architecture: all
Maintainer: x <x@localhost>
Description: x
END
printf '#!/bin/sh\necho the real one\n' >/tmp/p/usr/bin/nvidia-smi
chmod 755 /tmp/p/usr/bin/nvidia-smi
dpkg-deb -b /tmp/p /tmp/p.deb >/dev/null && dpkg -i /tmp/p.deb
"""


def described(tmp: Path, faults: str) -> description.LabDescription:
    file = tmp / "lab.yaml"
    file.write_text(LAB.replace("FAULTS", faults))
    return description.read(file, NAME)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabState]:
    lifecycle.down(NAME, purge=True)
    first = described(tmp_path_factory.mktemp("lab"), "not-installed, ecc-off")
    up = lifecycle.up(first, NAME, say=print)
    try:
        yield up
    finally:
        lifecycle.down(NAME, purge=True)


def ask(lab: LabState, command: str) -> str:
    return ssh.ask(lab, lab.host("gpu1"), command, check=False).stdout


def test_a_host_from_bare_metal_to_a_broken_card(lab: LabState, tmp_path: Path) -> None:
    one = lab.host("gpu1")
    own_programs = sorted(Path("/usr/local/bin").iterdir())
    assert ask(lab, "systemctl is-system-running") == "running\n"
    assert ask(lab, "command -v nvidia-smi; ls /proc/driver; lsmod | grep nvidia") == ""
    assert ask(lab, "lspci -d 10de:2330 | wc -l") == "8\n"
    assert ask(lab, "ls /sys/class/infiniband | wc -l; ls /sys/class/net") == "8\nhost0\nlo\n"
    assert "could not be found" in ask(lab, "systemctl status nvidia-fabricmanager 2>&1")

    assert "Setting up nvidia-utils-535" in ask(lab, PACKAGE)
    assert ask(lab, "command -v nvidia-smi") == "/usr/local/bin/nvidia-smi\n"
    assert ask(lab, "/usr/bin/nvidia-smi") == "the real one\n"
    assert ask(lab, "systemctl is-active nvidia-fabricmanager") == "active\n"
    wanted = answer(node("gpu1", "h100-sxm-8", ["ecc-off"]), ["nvidia-smi", "-L"])
    assert ask(lab, "nvidia-smi -L") == wanted.stdout

    lifecycle.reboot(lab, one, say=print)
    assert ask(lab, "systemctl is-system-running") == "running\n"
    assert ask(lab, "nvidia-smi -L") == wanted.stdout, "installed, also after a boot"
    assert "535.129.03" in ask(lab, "cat /proc/driver/nvidia/version")
    assert ask(lab, "cat /sys/class/infiniband/mlx5_7/ports/1/link_layer") == "InfiniBand\n"
    query = "nvidia-smi --query-gpu=ecc.mode.current --format=csv,noheader | sort | uniq -c"
    assert ask(lab, query).split() == ["1", "Disabled", "7", "Enabled"]

    lifecycle.fault(lab, one, ["fm-mismatch", "hang", "hca-down=mlx5_7"], say=print)
    assert ask(lab, "timeout -k 0.2 0.2 nvidia-smi; echo $?").split()[-1] == "137"
    assert ask(lab, "sleep 1; systemctl is-active nvidia-fabricmanager") == "failed\n"
    assert "535.129.04 don't match" in ask(lab, "journalctl -u nvidia-fabricmanager")
    assert ask(lab, "cat /sys/class/infiniband/mlx5_7/ports/1/state") == "1: DOWN\n"

    with pytest.raises(LabError, match="did you mean 'hot'"):
        lifecycle.fault(lab, one, ["hott"])
    lifecycle.fault(lab, one, [], say=print)
    assert ask(lab, "nvidia-smi -L | wc -l") == "8\n"
    assert ask(lab, "systemctl is-active nvidia-fabricmanager") == "active\n"
    assert sorted(Path("/usr/local/bin").iterdir()) == own_programs, "nothing on this machine"
    assert "rackpin-lab" not in Path("/proc/self/mounts").read_text()


def test_another_description_shows_on_a_host_that_runs(lab: LabState, tmp_path: Path) -> None:
    one = lab.host("gpu1")
    (one.directory / "faults").unlink(missing_ok=True)
    before = ask(lab, "cat /proc/sys/kernel/random/boot_id")
    lifecycle.up(described(tmp_path, "gpu-missing=2"), NAME, say=print)
    assert ask(lab, "nvidia-smi -L | wc -l") == "7\n"
    assert ask(lab, "cat /proc/sys/kernel/random/boot_id") == before
