"""What the driver stage wants of a node, from each vendor's packages; read without any node."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rackpin.audit import expect
from rackpin.deploy import driver_problems, requests
from rackpin.desired import Desired, Target
from rackpin.driver import want
from rackpin.driver.table import table
from rackpin.facts import Packages, Units
from rackpin.facts_driver import Gpu
from rackpin.inventory import Node
from rackpin.inventory_parts import AptPin, AptRepository
from rackpin.stack.hostpins import DriverPin, KernelPin
from rackpin.stack.items import DebClosure, Host, Package
from rackpin.stack.lock import load_stack
from rackpin.stack.pins import OsPin
from rackpin.stages import driver as stage
from tests.conftest import APT_FINGERPRINT, APT_KEY
from tests.fixtures_debs_names import DRIVER, POINT, family
from tests.unit import driver_samples
from tests.unit.test_apt_wanted import deb, with_config

OS = "ubuntu-22.04"
KERNEL = "6.5.0-45-generic"


def on_ubuntu(target: Target, **node: Any) -> Target:
    """A node with GPUs of Ubuntu 22.04 with NVIDIA's packages, resolved."""
    asked = [
        *(Package(name=name, version=None, role="kernel", repository="os")
          for name in (f"linux-image-{KERNEL}", f"linux-headers-{KERNEL}", "gcc-12")),
        Package(name="nvidia-driver-535", version=None, role="driver", repository="nvidia"),
        Package(name="nvidia-fabricmanager-535", version=None, role="fabric_manager",
                repository="nvidia"),
        Package(name="cuda-toolkit-12-2", version="12.2.2-1", role="cuda", repository="nvidia"),
    ]  # fmt: skip
    debs = [deb(p.name, p.version, "nvidia-cuda") for p in family(DRIVER)]
    debs += [deb(p.name, "6.5.0-45.45", "ubuntu") for p in asked if p.role == "kernel"]
    debs.append(deb("cuda-toolkit-12-2", "12.2.2-1", "nvidia-cuda"))
    pin = DriverPin(
        version=DRIVER, branch="535", flavour="closed", source="nvidia", fabric_manager=True
    )
    lock = target.lock.but(
        os=[OsPin(id="ubuntu", version="22.04")],
        host=Host(driver=pin, kernel=KernelPin(release=KERNEL, compiler="gcc-12"),
                  fabric_manager=DRIVER),
        packages={OS: asked},
        debs_closure={OS: DebClosure(debs=debs)},
    )  # fmt: skip
    mirror = AptRepository(
        name="nvidia-cuda", uri="http://10.9.0.1:8901/nvidia", suite="/", key_file=str(APT_KEY),
        fingerprint=APT_FINGERPRINT,
    )  # fmt: skip
    plain = with_config(target, apt_repositories=[mirror], apt_pins=[])
    changed = target.node.model_copy(update={"os": OS, **node})
    return dataclasses.replace(plain, lock=lock, node=changed)


def content(wish: Desired, path: str) -> str:
    return next(f.content for f in wish.files if f.path == path)


def test_without_a_driver_or_without_gpus_nothing_is_wished(target: Target) -> None:
    assert stage.desired(target) == Desired()
    assert stage.desired(on_ubuntu(target, gpus=0)) == Desired()
    asked = [fact for fact, _ in requests(target)]
    assert Gpu not in asked, "no look costs a node without a driver anything"


def test_the_whole_closure_is_named_and_fabric_manager_only_with_nvswitches(
    target: Target,
) -> None:
    with_switches = on_ubuntu(target, nvswitch=True)
    names = want.driver_packages(with_switches)
    assert set(names) == {p.name for p in family(DRIVER)}, "and no toolkit"
    assert stage.desired(with_switches).units == (stage.PERSISTENCE, stage.FABRIC)
    without = on_ubuntu(target)
    assert set(names) - set(want.driver_packages(without)) == {"nvidia-fabricmanager-535"}
    assert stage.desired(without).units == (stage.PERSISTENCE,)
    assert set(want.kernel_packages(without)) == {
        f"linux-image-{KERNEL}", f"linux-headers-{KERNEL}", "gcc-12",
    }  # fmt: skip


def test_fabric_manager_is_tried_again_where_it_is_needed(target: Target) -> None:
    path = "/etc/systemd/system/nvidia-fabricmanager.service.d/90-rackpin.conf"
    text = content(stage.desired(on_ubuntu(target, nvswitch=True)), path)
    assert "\nRestart=on-failure\n" in text and "\nStartLimitIntervalSec=0\n" in text
    assert path not in [f.path for f in stage.desired(on_ubuntu(target)).files]


def test_every_package_has_its_exact_version(target: Target) -> None:
    node = on_ubuntu(target, nvswitch=True)
    pins = want.versions(node)
    wish = stage.desired(node)
    assert all(pins.get(name) for name in wish.packages)
    assert {want.upstream(pins[n]) for n in want.driver_packages(node)} == {DRIVER}
    assert POINT not in "".join(pins.values())


def test_the_survey_asks_everything_that_the_stage_will(target: Target) -> None:
    node = on_ubuntu(target)
    asked = requests(node)
    assert (Gpu, {}) in asked and (Units, {"names": stage.UNITS}) in asked
    assert (Units, {"names": (stage.PERSISTENCE,)}) in asked
    for names in (want.kernel_packages(node), want.driver_packages(node)):
        assert (Packages, {"names": names}) in asked


def test_options_stand_under_every_name_of_the_module(target: Target) -> None:
    options = {"NVreg_EnableGpuFirmware": 0}
    text = content(
        stage.desired(on_ubuntu(target, nvidia_options=options)),
        "/etc/modprobe.d/90-rackpin-nvidia.conf",
    )
    assert "\nblacklist nouveau\n" in text and "\noptions nouveau modeset=0\n" in text
    assert text.count("NVreg_EnableGpuFirmware=0") == 1
    lock = load_stack("debian12-r535").lock
    debian = dataclasses.replace(
        on_ubuntu(target),
        lock=lock,
        node=target.node.model_copy(update={"nvidia_options": options}),
    )
    wish = stage.desired(debian)
    text = content(wish, "/etc/modprobe.d/90-rackpin-nvidia.conf")
    assert "\noptions nvidia-current NVreg_EnableGpuFirmware=0\n" in text
    assert "--user nvpd " in content(wish, "/etc/systemd/system/nvidia-persistenced.service")
    assert "nvidia-persistenced" in wish.packages
    assert "/etc/dkms/nvidia-current.conf" in [f.path for f in wish.files]


def test_the_initramfs_is_made_anew_for_what_it_holds(target: Target) -> None:
    wish = stage.desired(on_ubuntu(target))
    triggers = {f.path: f.triggers for f in wish.files}
    assert triggers["/etc/modprobe.d/90-rackpin-nvidia.conf"] == ("initramfs",)


@pytest.mark.parametrize(
    ("kernel", "made"),
    [
        (KERNEL, "export CC=/usr/bin/gcc-12; env NV_VERBOSE=1 'make' modules"),
        ("5.15.0-97-generic", "env NV_VERBOSE=1 'make' modules"),
    ],
)
def test_dkms_takes_the_kernels_own_compiler(
    target: Target, tmp_path: Path, kernel: str, made: str
) -> None:
    """Read as dkms reads it: by bash, after the package's dkms.conf, with kernelver set."""
    (tmp_path / "own.conf").write_text(
        content(stage.desired(on_ubuntu(target)), "/etc/dkms/nvidia.conf")
    )
    script = (
        f"kernelver={kernel}; MAKE[0]=\"env NV_VERBOSE=1 'make' modules\"; . ./own.conf; "
        'printf %s "${MAKE[0]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=20
    )
    assert done.stdout == made


def test_every_vendor_has_its_row() -> None:
    for source in DriverPin.model_fields["source"].annotation.__args__:  # type: ignore[union-attr]
        assert set(table()["module"][source]) == {"closed", "open"}
        assert table()["persistence_user"][source]


def test_ubuntu_24_is_data_only(target: Target) -> None:
    """Ubuntu's own -server packages, open modules, another kernel and compiler."""
    lock = load_stack("cuda13-vllm0.33").lock
    node = target.node.model_copy(update={"os": "ubuntu-24.04", "nvswitch": True})
    noble = dataclasses.replace(
        with_config(target, apt_repositories=[], apt_pins=[]), lock=lock, node=node
    )
    wish = want.want(noble)
    assert wish is not None and wish.flavour == "open" and wish.parts == ["nvidia", "nvidia-uvm"]
    assert want.driver_packages(noble) == (
        "nvidia-driver-580-server-open",
        "nvidia-fabricmanager-580",
    )
    assert {"linux-headers-6.8.0-151-generic", "gcc-13"} <= set(want.kernel_packages(noble))
    text = content(stage.desired(noble), "/etc/dkms/nvidia.conf")
    assert 'if [ "$kernelver" = "6.8.0-151-generic" ]' in text and "gcc-13" in text


@pytest.mark.parametrize("options", [{"nvreg_x": 1}, {"NVreg_X y": 1}, {"NVreg_X": "1\noptions"}])
def test_an_option_can_bring_no_other_line(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Node(name="n", groups=[], address="10.0.0.1", sku="x", gpus=1, nvidia_options=options)


class StubHost:
    """A host whose facts are given."""

    def __init__(self, state: Any, packages: dict[str, str]) -> None:
        self.answers = {Gpu: state, Packages: packages}

    def get_fact(self, fact: Any, **kwargs: Any) -> Any:
        return self.answers[fact]


def test_the_stage_takes_part_in_the_preflight(target: Target) -> None:
    sound = driver_samples.SOUND
    node = on_ubuntu(target, nvswitch=True)
    assert driver_problems(node, StubHost(sound, {})) == []
    (problem,) = driver_problems(node, StubHost("lsmod failed (127)", {}))
    assert "lsmod failed (127)" in problem.message
    (problem,) = driver_problems(node, StubHost(None, {}))
    assert problem.key == "driver"
    busy = dataclasses.replace(sound, engines=("vllm@a.service",))
    older = {"nvidia-driver-535": f"{POINT}-0ubuntu1"}
    (problem,) = driver_problems(node, StubHost(busy, older))
    assert f"nvidia-driver-535 {POINT}-0ubuntu1 → {DRIVER}-0ubuntu1" in problem.message
    (problem,) = driver_problems(on_ubuntu(target), StubHost(sound, {}))
    assert problem.key == "nvswitch"
    assert driver_problems(on_ubuntu(target, gpus=0), StubHost(None, {})) == []
    off = AptPin(name="nvidia-fabricmanager-535", version=f"{POINT}-1")
    (problem,) = driver_problems(with_config(node, apt_pins=[off]), StubHost(sound, {}))
    assert problem.key == "fabric manager"


def test_an_audit_expects_fabric_manager_only_with_nvswitches(target: Target) -> None:
    for nvswitch in (True, False):
        found = expect.for_node(on_ubuntu(target, nvswitch=nvswitch), without="audit")
        assert ("nvidia-fabricmanager-535" in found.debs[OS]) is nvswitch
        assert (stage.FABRIC in found.units) is nvswitch
        assert "libnvidia-compute-535" in found.debs[OS]
