"""What the fabric stage puts on a node: programs run on a fake /sys, files and units as data."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpin.audit import expect
from rackpin.desired import Desired, OwnedFile, Target
from rackpin.fabric import kernel, names
from rackpin.fabric.look import grub_words
from rackpin.fabric.model import Boot, Bridge, Dkms, Fabric, Hca
from rackpin.fabric.rebuild import needed, status
from rackpin.facts import Packages, Paths, PathState, Units
from rackpin.facts_fabric import FabricFact
from rackpin.inventory import Instance
from rackpin.operations_fabric import acs_off, gone, peermem_loaded, rebuilt
from rackpin.requests import requests
from rackpin.stack.hostpins import RdmaPin
from rackpin.stack.items import Package
from rackpin.stages import fabric as stage
from rackpin.stages import serve
from tests.unit import fabric_samples as samples
from tests.unit.fabric_samples import ACS_OFF, ACS_ON, ETH, Tree, extended, h100, switch
from tests.unit.test_operations import commands


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def files(wish: Desired) -> dict[str, OwnedFile]:
    return {file.path: file for file in wish.files}


def whole(target: Target, fabric: Fabric) -> Target:
    return dataclasses.replace(target, fabric=fabric)


# -- the programs --------------------------------------------------------------------------------
@pytest.fixture
def acs_program(target: Target, tree: Tree) -> Path:
    tree.gpu(switch(0x10, 0, 0x13), acs=ACS_ON)
    wish = stage.desired(whole(target, tree.look()))
    program = tree.root / "acs-off"
    program.write_text(files(wish)["/usr/local/lib/rackpin/acs-off"].content)
    return program


def run(program: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": f"{path}:/usr/sbin:/usr/bin:/sbin:/bin"},
    )


def test_acs_goes_off_above_cards_and_adapters_and_nowhere_else(
    tree: Tree, acs_program: Path
) -> None:
    tree.hca("mlx5_0", switch(0x30, 1, 0x34))
    other = tree.root / "sys/devices/pci0000:77/0000:77:01.0"
    other.mkdir(parents=True)
    (other / "config").write_bytes(extended(ACS_ON))
    before = [b.acs for b in tree.look().bridges]
    assert before.count(ACS_ON) == 3 and set(before) == {ACS_ON, ACS_OFF}
    done = run(acs_program, str(tree.root))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"was {ACS_ON}, is off") == 3
    assert {b.acs for b in tree.look().bridges} == {0}
    assert (other / "config").read_bytes() == extended(ACS_ON)
    again = run(acs_program, str(tree.root))
    assert (again.returncode, again.stdout) == (0, "")


def test_a_bridge_that_cant_be_read_fails_and_none_without_acs_is_written(
    tree: Tree, acs_program: Path
) -> None:
    plain, short = switch(0x30, 0, 0x33), switch(0x50, 0, 0x53)
    tree.gpu(plain, acs=None)
    tree.gpu(short)
    bridge = tree.root / "sys/devices" / short.rsplit("/", 1)[0] / "config"
    bridge.write_bytes(extended(ACS_ON)[:64])  # what anybody but root sees
    found = {b.slot: b for b in tree.look().bridges}
    assert not found["0000:52:00.0"].seen and found["0000:32:00.0"].acs is None
    done = run(acs_program, str(tree.root))
    assert done.returncode == 1 and "0000:52:00.0: its extended configuration" in done.stderr
    upper = tree.root / "sys/devices" / plain.rsplit("/", 1)[0] / "config"
    assert upper.read_bytes() == extended(None)


RDMA = """#!/bin/sh
# As `rdma dev set OLD name NEW`: refuses a name that is taken.
[ "$1 $2 $4" = "dev set name" ] || exit 2
class={class_}
[ -e "$class/$3" ] && ! [ -e "$class/$5" ] || {{ echo "error: File exists" >&2; exit 1; }}
mv "$class/$3" "$class/$5"
"""


@pytest.fixture
def names_program(target: Target, tree: Tree) -> Path:
    stub = tree.root / "bin" / "rdma"
    stub.parent.mkdir()
    stub.write_text(RDMA.format(class_=tree.root / "sys/class/infiniband"))
    stub.chmod(0o755)
    tree.gpu(switch(0x10, 0, 0x13))
    for number, start in enumerate((0x10, 0x30, 0x50)):
        tree.hca(f"mlx5_{number}", switch(start, 1, start + 4))
    program = tree.root / "hca-names"
    wish = files(stage.desired(whole(target, tree.look())))
    program.write_text(wish["/usr/local/lib/rackpin/hca-names"].content)
    (tree.root / "table").write_text(wish["/etc/rackpin/hca-names"].content)
    return program


def rename(tree: Tree, *pairs: tuple[str, str]) -> None:
    base = tree.root / "sys/class/infiniband"
    for old, _ in pairs:
        (base / old).rename(base / f"{old}.moving")
    for old, new in pairs:
        (base / f"{old}.moving").rename(base / new)


def by_slot(tree: Tree) -> dict[str, str]:
    return {hca.slot: hca.name for hca in tree.look().hcas}


def test_adapters_get_their_pinned_names_back_even_when_all_moved(
    tree: Tree, names_program: Path
) -> None:
    first = by_slot(tree)
    arguments = (str(tree.root / "table"), str(tree.root))
    done = run(names_program, *arguments, path=f"{tree.root}/bin")
    assert (done.returncode, done.stdout) == (0, ""), "named as pinned: nothing is touched"
    rename(tree, ("mlx5_0", "mlx5_1"), ("mlx5_1", "mlx5_2"), ("mlx5_2", "mlx5_0"))
    assert by_slot(tree) != first
    done = run(names_program, *arguments, path=f"{tree.root}/bin")
    assert done.returncode == 0, done.stderr
    assert by_slot(tree) == first


def test_a_stranger_makes_room_and_an_absent_adapter_is_said(
    tree: Tree, names_program: Path
) -> None:
    shutil.rmtree(tree.root / "sys/class/infiniband/mlx5_0")
    rename(tree, ("mlx5_1", "mlx5_7"))
    tree.hca("mlx5_1", switch(0x70, 1, 0x74))
    arguments = (f"{tree.root}/table", str(tree.root), "1")
    done = run(names_program, *arguments, path=f"{tree.root}/bin")
    assert done.returncode == 0, done.stderr
    assert "0000:14:00.0: no adapter; mlx5_0 stays free" in done.stdout
    assert by_slot(tree)["0000:34:00.0"] == "mlx5_1"
    assert by_slot(tree)["0000:74:00.0"].startswith("rackpin_other")


def test_an_adapter_whose_driver_comes_late_gets_its_name(tree: Tree, names_program: Path) -> None:
    first = by_slot(tree)
    there = tree.root / "sys/class/infiniband/mlx5_1"
    there.rename(tree.root / "late")
    comes = threading.Timer(1.5, lambda: (tree.root / "late").rename(there.with_name("mlx5_9")))
    comes.start()
    began = time.monotonic()
    arguments = (f"{tree.root}/table", str(tree.root), "20")
    done = run(names_program, *arguments, path=f"{tree.root}/bin")
    comes.join()
    assert done.returncode == 0 and "no adapter" not in done.stdout, done
    assert by_slot(tree) == first and time.monotonic() - began < 10


# -- names ---------------------------------------------------------------------------------------
def hca(slot: int, name: str) -> Hca:
    return Hca(f"0000:{slot:02x}:00.0", (), 0, name)


def test_a_pinned_name_stays_and_notes_say_what_moved() -> None:
    found = Fabric(
        hcas=(hca(0x10, "mlx5_1"), hca(0x20, "mlx5_0"), hca(0x30, "mlx5_2")),
        names=(("0000:10:00.0", "mlx5_0"), ("0000:40:00.0", "mlx5_2")),
    )
    assert names.table(found) == (
        ("0000:10:00.0", "mlx5_0"),
        ("0000:40:00.0", "mlx5_2"),
    ), "names of other slots are taken, even of an absent one"
    said = "\n".join(names.notes(found))
    assert "mlx5_1 at 0000:10:00.0 should be mlx5_0" in said
    assert "mlx5_2 at 0000:40:00.0 is gone" in said
    assert "mlx5_0 at 0000:20:00.0 has the name that is pinned for 0000:10:00.0" in said


@given(
    st.dictionaries(st.integers(1, 30), st.integers(0, 30), max_size=8),
    st.dictionaries(st.integers(1, 30), st.integers(0, 30), max_size=8),
)
def test_the_table_only_grows_and_has_no_name_twice(
    pinned: dict[int, int], there: dict[int, int]
) -> None:
    def unique(found: dict[int, int]) -> list[tuple[int, int]]:
        return list({name: (slot, name) for slot, name in found.items()}.values())

    before = tuple((f"0000:{s:02x}:00.0", f"mlx5_{n}") for s, n in unique(pinned))
    fabric = Fabric(
        hcas=tuple(hca(s, f"mlx5_{n}") for s, n in unique(there)), names=tuple(sorted(before))
    )
    table = names.table(fabric)
    assert set(before) <= set(table)
    assert len({name for _, name in table}) == len({slot for slot, _ in table}) == len(table)
    assert names.table(replace(fabric, names=table)) == table, "a second run changes nothing"


# -- the kernel ----------------------------------------------------------------------------------
PT, OTHER = ("quiet", "iommu=pt"), ("quiet",)


@pytest.mark.parametrize(
    "boot, words",
    [
        (Boot(PT, PT), ""),
        (Boot(OTHER, PT, ("iommu=pt",)), "reboot pending"),
        (Boot(OTHER, OTHER, ("iommu=pt",)), "update-grub has not run"),
        (Boot(OTHER, OTHER), "missing from /proc/cmdline"),
        (Boot(OTHER, None), "there is no grub here"),
        (Boot(PT, OTHER), "grub.cfg lost it"),
        (Boot((*PT, "iommu=nopt"), PT), "take it out"),
    ],
)
def test_running_parameters_are_compared_with_grubs(boot: Boot, words: str) -> None:
    said = list(kernel.boot_notes(Fabric(boot=boot, iommu=True)))
    assert (len(said) == 1 and words in said[0]) if words else said == []


def test_without_an_iommu_no_parameter_is_missing() -> None:
    assert list(kernel.boot_notes(Fabric(boot=Boot(OTHER, OTHER)))) == []


def test_grub_is_read_as_its_shell_would() -> None:
    assert grub_words('GRUB_CMDLINE_LINUX="a b=c"  # x') == ["a", "b=c"]
    assert grub_words("GRUB_CMDLINE_LINUX_DEFAULT='quiet'") == ["quiet"]
    assert grub_words('GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT} iommu=pt"') == [
        "iommu=pt"
    ]
    assert grub_words('GRUB_CMDLINE_LINUX="cut') == []


def test_kernel_text_is_found_where_it_lies(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13), iommu="DMA-FQ")
    tree.hca("mlx5_0", switch(0x10, 1, 0x14), relaxed=False)
    tree.put("proc/cmdline", "BOOT_IMAGE=/vmlinuz quiet")
    tree.put("etc/default/grub", '# x\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"')
    tree.put("etc/default/grub.d/a.cfg", 'GRUB_CMDLINE_LINUX="iommu=pt"')
    tree.put("boot/grub/grub.cfg", "menuentry x {\n\tlinux /vmlinuz-6.5 root=x quiet\n}")
    tree.put("proc/modules", "nvidia 1 0 - Live\next4 1 0 - Live\nib_uverbs 1 0 - Live")
    tree.put("proc/kallsyms", "0 T ib_register_client")
    tree.put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86")
    tree.put("proc/77/comm", "opensm")
    tree.put("kernel", "5.4.0-1-generic")
    tree.put("etc/rackpin/hca-names", "# Owned by rackpin\n0000:14:00.0 mlx5_0")
    found = tree.look()
    assert found.boot == Boot(
        ("BOOT_IMAGE=/vmlinuz", "quiet"), ("root=x", "quiet"), ("quiet", "iommu=pt")
    )
    assert found.modules == {"nvidia", "ib_uverbs"} and found.peer_api is False
    assert found.open_modules and found.subnet_manager and found.iommu
    assert found.names == (("0000:14:00.0", "mlx5_0"),)
    said = "\n".join([*kernel.boot_notes(found), *kernel.device_notes(found)])
    assert "update-grub has not run" in said and "translates for cards 0000:13:00.0" in said
    assert "no GPUDirect RDMA" in said and "relaxed ordering is off on mlx5_0" in said


# -- modules -------------------------------------------------------------------------------------
OFED = RdmaPin(stack="ofed", version="24.10-1.1.4.0")


def test_what_has_to_be_built_again() -> None:
    built = (("mlx5_core.ko", 100), ("nvidia-peermem.ko.zst", 50))
    lines = (
        "mlnx-ofed-kernel/24.10, 6.5.0-45-generic, x86_64: installed",
        "nvidia/535.129.03, 6.5.0-45-generic, x86_64: installed",
        "nvidia/535.129.03, 6.5.0-44-generic, x86_64: installed",
        "something else",
    )
    fabric = Fabric(
        hcas=(hca(0x10, "mlx5_0"),),
        kernel="6.5.0-45-generic",
        dkms=Dkms(lines, built, "OFED-internal-24.10", symbols=90),
    )
    (again,) = needed(fabric, OFED)
    assert "-m nvidia -v 535.129.03 -k 6.5.0-45-generic" in again.command
    assert needed(replace(fabric, dkms=replace(fabric.dkms, symbols=40)), OFED) == []
    gdrdrv = "gdrdrv/2.5.1, 6.5.0-45-generic, x86_64: installed"
    both = needed(replace(fabric, dkms=replace(fabric.dkms, status=(*lines, gdrdrv))), OFED)
    assert [item.module for item in both] == ["nvidia-peermem", "gdrdrv"], "in one run"
    (moved,) = needed(replace(fabric, dkms=Dkms(lines)), OFED)
    assert moved.command == "dkms autoinstall -k 6.5.0-45-generic" and moved.module == "mlx5_core"
    assert needed(replace(fabric, dkms=Dkms()), RdmaPin(stack="inbox")) == []
    assert needed(replace(fabric, hcas=()), OFED) == []


def test_gdrcopys_module_follows_driver_and_kernel() -> None:
    def ask(status: str, *modules: tuple[str, int]) -> list[str]:
        fabric = Fabric(
            hcas=(hca(0x10, "mlx5_0"),),
            kernel="6.5.0-45-generic",
            dkms=Dkms((status,), modules),
        )
        return [item.command for item in needed(fabric, RdmaPin(stack="inbox"))]

    here = "gdrdrv/2.5.1, 6.5.0-45-generic, x86_64: installed"
    assert ask(here, ("gdrdrv.ko", 20), ("nvidia.ko", 10)) == []
    (again,) = ask(here, ("gdrdrv.ko", 5), ("nvidia.ko", 10))
    assert again.startswith("dkms build --force -m gdrdrv -v 2.5.1 -k 6.5.0-45-generic && ")
    install = ["dkms install -m gdrdrv -v 2.5.1 -k 6.5.0-45-generic"]
    assert ask("gdrdrv/2.5.1, 6.5.0-44-generic, x86_64: installed") == install
    assert ask("gdrdrv/2.5.1: added") == ask("gdrdrv, 2.5.1: added") == install
    assert ask("nvidia/535.129.03, 6.5.0-45-generic, x86_64: installed") == []


def test_gdrcopy_is_compared_three_ways(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13))
    tree.put("sys/module/gdrdrv/version", "1.1")
    tree.put("gdrdrv", "2.5.1")
    said = "\n".join(kernel.device_notes(tree.look()))
    assert "gdrdrv 1.1 is loaded, 2.5.1 is built" in said and "/dev/gdrdrv is missing" in said
    tree.put("sys/module/gdrdrv/version", "2.5.1")
    tree.put("dev/gdrdrv", "")
    assert not list(kernel.device_notes(tree.look()))


def test_both_forms_of_dkms_status() -> None:
    lines = ("nvidia, 535.129.03, 6.1.0-50-amd64, x86_64: installed", "nvidia/5.1: added")
    assert status(lines) == [("nvidia", "535.129.03", "6.1.0-50-amd64", "installed")]


# -- the stage -----------------------------------------------------------------------------------
def test_the_survey_asks_the_same_before_and_after_it_knows(target: Target, tree: Tree) -> None:
    """Else a run without changes would need a further execution."""
    asked = requests(target)
    units = [kwargs for fact, kwargs in asked if fact is Units]
    for fabric in (tree.look(), h100(tree).look()):
        wish = stage.desired(whole(target, fabric))
        assert (Paths, {"paths": wish.paths}) in asked
        assert not wish.packages or (Packages, {"names": wish.packages}) in asked
        assert all({"names": (unit,)} in units for unit in wish.units)
    assert (FabricFact, {}) in asked


def test_a_node_without_cards_is_left_alone_and_says_so(target: Target, tree: Tree) -> None:
    gateway = dataclasses.replace(target, node=target.fleet.nodes["gate1"])
    assert stage.desired(whole(gateway, h100(Tree(tree.root / "x")).look())) == Desired()
    assert stage.notes(whole(gateway, Fabric())) == []
    samples.storage(tree, "mlx5_0", samples.IB)
    here = whole(target, tree.look())
    wish = stage.desired(here)
    assert (wish.files, wish.units, wish.packages) == ((), (), ())
    assert stage.notes(here) == [
        "no NVIDIA card on its PCI bus: fabric, CUDA and NCCL are left alone"
    ]


def test_a_virtual_machine_keeps_acs_and_boot_parameters(target: Target, tree: Tree) -> None:
    found = replace(h100(tree).look(), virt="kvm", boot=Boot(OTHER, OTHER))
    wish = stage.desired(whole(target, found))
    assert wish.units == (stage.NAMES_UNIT,)
    assert not {stage.GRUB, "/usr/local/lib/rackpin/acs-off"} & set(files(wish))
    assert any("NCCL_TOPO_FILE" in note for note in stage.notes(whole(target, found)))


def test_bare_metal_gets_both_units_and_boot_parameters_where_grub_is(
    target: Target, tree: Tree
) -> None:
    found = replace(h100(tree).look(), virt="none", boot=Boot(OTHER, OTHER))
    wish = stage.desired(whole(target, found))
    assert set(wish.units) == {stage.ACS_UNIT, stage.NAMES_UNIT}
    assert files(wish)[stage.GRUB].content.endswith('{GRUB_CMDLINE_LINUX_DEFAULT} iommu=pt"\n')
    assert files(wish)[stage.GRUB].triggers == ("update-grub",)
    without = stage.desired(whole(target, replace(found, boot=Boot(OTHER, None))))
    assert stage.GRUB not in files(without)
    config = target.fleet.config.model_copy(update={"acs_off": False})
    fleet = target.fleet.model_copy(update={"config": config})
    kept = stage.desired(dataclasses.replace(target, fleet=fleet, fabric=found))
    assert kept.units == (stage.NAMES_UNIT,)


def test_memlock_and_subnet_managers_are_told(target: Target, tree: Tree) -> None:
    found = h100(tree).look()
    quiet = "\n".join(stage.notes(whole(target, found)))
    assert "memlock" not in quiet and "opensm" not in quiet
    limits = target.fleet.config.limits.model_copy(update={"memlock": 8388608})
    config = target.fleet.config.model_copy(update={"limits": limits})
    low = dataclasses.replace(target, fleet=target.fleet.model_copy(update={"config": config}))
    assert "limits.memlock is 8388608 bytes" in "\n".join(stage.notes(whole(low, found)))
    tree.put("proc/7/comm", "opensm")
    tree.put("sys/class/infiniband/mlx5_3/ports/1/state", "2: INIT")
    assert "bind it to that port's GUID" in "\n".join(stage.notes(whole(target, tree.look())))


def test_opensm_without_infiniband(target: Target, tree: Tree) -> None:
    found = replace(h100(tree, ETH).look(), subnet_manager=True)
    assert "nothing to manage" in "\n".join(stage.notes(whole(target, found)))


def test_peermem_is_loaded_at_boot_only_where_it_is_the_way(target: Target, tree: Tree) -> None:
    found = replace(h100(tree).look(), kernel="6.5.0-45-generic", peer_api=True)
    closed = stage.desired(whole(target, replace(found, open_modules=False)))
    assert files(closed)[stage.PEERMEM].content.endswith("\nnvidia-peermem\n")
    dmabuf = stage.desired(whole(target, replace(found, open_modules=True)))
    assert stage.PEERMEM not in files(dmabuf)


def test_nccl_conf_is_what_nccl_reads(target: Target, tree: Tree) -> None:
    """NCCL takes every line with an equals sign as a setting, comments too, and trims nothing."""
    here = whole(target, h100(tree, ETH).look())
    conf = files(stage.desired(here))[stage.CONF].content
    read = dict(line.split("=", 1) for line in conf.splitlines() if "=" in line)
    assert read == stage.settings(here).values
    assert read["NCCL_SOCKET_IFNAME"] == "=host0"
    assert all(line == line.rstrip() for line in conf.splitlines())


def test_an_engines_own_variable_is_in_no_file_that_would_win(target: Target, tree: Tree) -> None:
    (two, one) = target.fleet.config.instances
    own = two.model_copy(update={"env": {"NCCL_IB_HCA": "=mlx5_9"}})
    config = target.fleet.config.model_copy(update={"instances": [own, one]})
    fleet = target.fleet.model_copy(update={"config": config})
    here = dataclasses.replace(target, fleet=fleet, fabric=h100(tree).look())
    wish = files(stage.desired(here))
    assert "NCCL_IB_HCA" not in wish["/etc/rackpin/nccl.env"].content
    assert "NCCL_IB_HCA==mlx5_0," in wish[stage.CONF].content
    assert isinstance(own, Instance)


def test_units_read_what_was_found_and_engines_keep_it_to_their_node(target: Target) -> None:
    unit = next(f for f in serve.desired(target).files if f.path.endswith("vllm@two.service"))
    first, second = (unit.content.index(f"/etc/rackpin/{n}.env") for n in ("nccl", "node"))
    assert first < second, "what the inventory says of the node wins"
    assert '"NCCL_IB_HCA"' in serve.NOT_CARRIED and "Owned by rackpin" in serve.NOT_CARRIED


def test_only_the_locks_packages_are_asked_for(target: Target, tree: Tree) -> None:
    package = Package(name="rdma-core", version=None, role="rdma", repository="os")
    lock = target.lock.but(packages={target.os_key: [package]})
    here = dataclasses.replace(target, lock=lock, fabric=h100(tree).look())
    assert stage.desired(here).packages == ("rdma-core",)
    gateway = dataclasses.replace(here, node=target.fleet.nodes["gate1"])
    assert stage.packages(gateway) == ()


def test_the_audit_knows_units_that_depend_on_hardware(target: Target, tree: Tree) -> None:
    unknown = expect.for_node(target)
    assert set(stage.UNITS) <= set(unknown.unit_files) and not set(stage.UNITS) & set(unknown.units)
    known = expect.for_node(whole(target, h100(tree).look()))
    assert known == unknown, "from afar nobody has the survey, and both must expect the same"


# -- operations ----------------------------------------------------------------------------------
def test_only_own_files_of_an_earlier_wish_go(target: Target, tree: Tree) -> None:
    wish = stage.desired(whole(target, h100(tree).look()))
    now = {
        stage.CONF: PathState("file", first_lines="# Owned by rackpin"),
        stage.PEERMEM: PathState("file", first_lines="# Owned by rackpin (templates/…)"),
        stage.GRUB: PathState("file", first_lines="# the site's"),
    }
    (command,) = commands(gone, {Paths: now}, paths=stage.OWNED, stage=wish)
    assert command == f"rm -f -- {stage.PEERMEM}"
    assert commands(gone, {Paths: {}}, paths=stage.OWNED, stage=wish) == []


def test_acs_is_run_again_only_where_the_unit_ran_and_a_bridge_is_on() -> None:
    unit = stage.ACS_UNIT
    on, off = Fabric(bridges=(Bridge("a", ACS_ON),)), Fabric(bridges=(Bridge("a", 0), Bridge("b")))
    active = {unit: {"ActiveState": "active"}}
    assert commands(acs_off, {FabricFact: on, Units: active}, unit=unit) == [
        f"systemctl restart {unit}"
    ]
    assert commands(acs_off, {FabricFact: off, Units: active}, unit=unit) == []
    assert commands(acs_off, {FabricFact: on, Units: {}}, unit=unit) == []


def test_peermem_waits_for_its_driver() -> None:
    def ask(wanted: bool, *modules: str) -> list[Any]:
        found = Fabric(modules=frozenset(modules))
        return commands(peermem_loaded, {FabricFact: found}, wanted=wanted)

    assert ask(True, "nvidia") == ["modprobe nvidia-peermem"]
    assert ask(True) == ask(False, "nvidia") == ask(True, "nvidia", "nvidia_peermem") == []


def test_a_build_is_proved_by_its_module() -> None:
    fabric = Fabric(hcas=(hca(0x10, "mlx5_0"),), kernel="6.5.0-45-generic")
    (command,) = commands(rebuilt, {FabricFact: fabric}, pin=OFED)
    assert "dkms autoinstall -k 6.5.0-45-generic" in str(command)
    assert "modinfo -k $(uname -r) mlx5_core" in str(command) and "exit 1" in str(command)
    assert commands(rebuilt, {FabricFact: fabric}, pin=None) == []
