"""Every preset of simulated hardware through the driver stage, on five hosts at once (slow)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.lab.hardware.answer import answer
from rackpin.lab.hardware.presets import node
from tests.fixtures_debs import make_repository
from tests.fixtures_debs_names import DRIVER
from tests.lab import driver_stack as stack
from tests.lab.driver_host import install_script
from tests.lab.fleet import FleetLab, booted
from tests.lab.mirror import Mirror
from tests.lab.test_driver import OS_RELEASE, SNAPSHOT, nvidia_source

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1800)]
NAME = "test-presets"
# preset, and whether its baseboard has NVSwitches, which need a fabric manager
PRESETS = {
    "h100-sxm-8": True,
    "a100-sxm-8": True,
    "a100-pcie-4": False,
    "l40s-8": False,
    "rtx4090-2": False,
}
LAB = "\n".join(
    [
        f"name: {NAME}",
        "base: { suite: bookworm }",
        "hosts:",
        *(
            f"  - {{ name: n-{preset}, sku: {preset}, groups: [{group}] }}"
            for preset, group in zip(PRESETS, ["head", *["workers"] * 4], strict=True)
        ),
    ]
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    """Five bare hosts that say they are Ubuntu 22.04, each with its preset's PCI bus."""
    directory = Path(tmp_path_factory.mktemp("presets"))
    (directory / "lab.yaml").write_text(LAB)
    repository = make_repository(directory / "nvidia", packages=stack.packages())
    root = stack.make_stack(directory / "stacks", repository)
    with booted(directory / "lab.yaml", NAME, directory) as lab:
        lab.environment["RACKPIN_STACKS"] = str(root)
        mirror = Mirror(repository.path, lab.lab.control_address)
        mirror.start()
        for host in lab.lab.hosts:
            bus = answer(node(host.name, host.sku, ["not-installed"]), ["lspci", "-Dnn"]).stdout
            cards = "".join(f"{line}\n" for line in bus.splitlines() if "[10de:" in line)
            lab.feed(host.name, install_script(stack.OLD_KERNEL, cards))
            lab.feed(host.name, f"cat >/usr/sbin/dkms <<'END'\n{stack.DKMS}END\n")
            lab.feed(
                host.name, f"rm /etc/os-release; cat >/etc/os-release <<'END'\n{OS_RELEASE}END\n"
            )
            lab.ask(host.name, "chmod 755 /usr/sbin/dkms")
        lab.directory.joinpath("source").write_text(nvidia_source(repository, mirror))
        try:
            yield lab
        finally:
            mirror.stop()


def options(site: FleetLab) -> list[str]:
    source = site.directory.joinpath("source").read_text()
    data = {"stack": stack.NAME, "apt_repositories": source, "instances": "[]"}
    return [word for key, value in data.items() for word in ("--data", f"{key}={value}")]


def test_each_preset_gets_its_driver_and_a_second_run_changes_nothing(site: FleetLab) -> None:
    run = site.run("apt", "deploys/driver.py", *options(site), deadline_s=1200)
    assert run.code == 0, run.tail
    for preset, switched in PRESETS.items():
        host = f"n-{preset}"
        assert site.ask(host, "uname -r") == stack.KERNEL
        assert f"  {DRIVER}  " in site.ask(host, "cat /proc/driver/nvidia/version")
        active = site.ask(host, "systemctl is-active nvidia-fabricmanager || true")
        assert (active == "active") is switched, preset
    before = {host.name: site.ask(host.name, SNAPSHOT) for host in site.lab.hosts}
    again = site.run("apt", "deploys/driver.py", *options(site))
    assert again.code == 0, again.tail
    assert again.counts == {"executions": {host.name: 1 for host in site.lab.hosts}, "misses": 0}
    assert {host.name: site.ask(host.name, SNAPSHOT) for host in site.lab.hosts} == before
