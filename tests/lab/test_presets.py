"""Every preset of simulated hardware through the stages that act on cards, all hosts at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.lab.hardware.presets import preset
from tests.fixtures_debs import make_repository
from tests.fixtures_debs_names import DRIVER
from tests.lab import driver_stack as stack
from tests.lab.fleet import FleetLab, booted
from tests.lab.mirror import Mirror
from tests.lab.test_driver import OS_RELEASE, SNAPSHOT, nvidia_source

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1800)]
NAME = "test-presets"
PRESETS = ["h100-sxm-8", "a100-sxm-8", "a100-pcie-4", "l40s-8", "rtx4090-2"]
BARE = "n-none"  # the inventory says eight cards, its bus has none
STAGES = ["deploys/driver.py", "deploys/cuda.py", "deploys/fabric.py", "deploys/nccl.py"]
FABRIC = {  # what each gets for NCCL_IB_HCA
    "h100-sxm-8": "=" + ",".join(f"mlx5_{i}" for i in range(8)),
    "a100-sxm-8": "=" + ",".join(f"mlx5_{i}" for i in range(4)),
    "l40s-8": "=mlx5_0,mlx5_1",
}
FILES = (
    "find /etc/nccl.conf /etc/rackpin /etc/profile.d /etc/ld.so.conf.d /usr/local/lib/rackpin "
    "/var/lib/rackpin -type f 2>/dev/null | sort | xargs sha256sum; readlink -f /usr/local/cuda"
)
# Pins and their notes are every node's.
UNTOUCHED = f"{SNAPSHOT}; {FILES}".replace(" /etc/apt ", " ").replace("/var/lib/rackpin ", "")


def host_line(name: str, kind: str, group: str, *faults: str) -> str:
    every = ", ".join(["not-installed", f"kernel={stack.OLD_KERNEL}", *faults])
    keys = f"name: {name}, sku: {kind}, hardware: {kind}, groups: [{group}], faults: [{every}]"
    return f"  - {{ {keys} }}"


LAB = "\n".join(
    [
        f"name: {NAME}",
        "base: { suite: bookworm }",
        "hosts:",
        host_line(f"n-{PRESETS[0]}", PRESETS[0], "head", "acs-on"),
        *(host_line(f"n-{kind}", kind, "workers") for kind in PRESETS[1:]),
        host_line(BARE, "h100-sxm-8", "workers", "no-cards"),
    ]
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    """Hosts that say they are Ubuntu 22.04, each with its preset's hardware and no driver yet."""
    directory = Path(tmp_path_factory.mktemp("presets"))
    (directory / "lab.yaml").write_text(LAB)
    repository = make_repository(directory / "nvidia", packages=stack.packages())
    root = stack.make_stack(directory / "stacks", repository)
    with booted(directory / "lab.yaml", NAME, directory) as lab:
        lab.environment["RACKPIN_STACKS"] = str(root)
        mirror = Mirror(repository.path, lab.lab.control_address)
        mirror.start()
        for host in lab.lab.hosts:
            stack.as_ubuntu(lab, host.name, OS_RELEASE)
        lab.directory.joinpath("source").write_text(nvidia_source(repository, mirror))
        try:
            yield lab
        finally:
            mirror.stop()


def options(site: FleetLab) -> list[str]:
    source = site.directory.joinpath("source").read_text()
    data = {"stack": stack.NAME, "apt_repositories": source, "instances": "[]"}
    return [word for key, value in data.items() for word in ("--data", f"{key}={value}")]


def everything(site: FleetLab) -> dict[str, str]:
    return {host.name: site.ask(host.name, f"{SNAPSHOT}; {FILES}") for host in site.lab.hosts}


def test_each_preset_gets_what_it_needs_and_a_second_run_changes_nothing(site: FleetLab) -> None:
    bare = site.ask(BARE, UNTOUCHED)
    run = site.run("apt", *STAGES, *options(site), deadline_s=1200)
    assert run.code == 0, run.text[-16000:]
    for kind in PRESETS:
        host = f"n-{kind}"
        assert site.ask(host, "uname -r") == stack.KERNEL
        assert f"  {DRIVER}  " in site.ask(host, "cat /proc/driver/nvidia/version")
        cards = len(preset(kind).slots)
        assert site.ask(host, "nvidia-smi -L | wc -l") == str(cards)
        active = site.ask(host, "systemctl is-active nvidia-fabricmanager", check=False)
        assert (active == "active") is bool(preset(kind).nvswitches), kind
        conf = dict(
            line.split("=", 1) for line in site.ask(host, "grep = /etc/nccl.conf").splitlines()
        )
        assert conf.get("NCCL_IB_HCA") == FABRIC.get(kind), kind
        assert conf.get("NCCL_IB_DISABLE") == (None if kind in FABRIC else "1"), kind
        assert site.ask(host, "readlink -f /usr/local/cuda") == "/usr/local/cuda-12.2"
        installed = "dpkg-query -W -f '${Version}\n' libnccl2 perftest"
        assert site.ask(host, installed).split() == [stack.NCCL, stack.PERFTEST]
        names = site.ask(host, "grep -vc '^#' /etc/rackpin/hca-names || true")
        assert (names or "0") == str(len(preset(kind).nics))
    journal = site.ask(f"n-{PRESETS[0]}", "journalctl -u rackpin-acs -o cat")
    assert journal.count("was 29, is off") == 24

    # -- the one without cards: said by each stage, and as it was
    said = " ".join(run.text.split())
    assert f"{BARE}: driver: no NVIDIA GPU is on its PCI bus" in said, run.tail
    assert f"{BARE}: fabric: no NVIDIA card on its PCI bus: fabric, CUDA and NCCL are left" in said
    assert site.ask(BARE, UNTOUCHED) == bare
    assert site.ask(BARE, "uname -r") == stack.OLD_KERNEL

    # -- again
    state = everything(site)
    again = site.run("apt", *STAGES, *options(site))
    assert again.code == 0, again.tail
    assert again.asked == {"executions": {host.name: 1 for host in site.lab.hosts}, "misses": 0}
    assert everything(site) == state
