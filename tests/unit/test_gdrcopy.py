"""gdrcopy: when it is built, of what, and how its module gets a device node."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rackpin.desired import Target
from rackpin.fabric.model import Dkms, Fabric
from rackpin.facts import Packages, Paths, PathState
from rackpin.facts_fabric import FabricFact
from rackpin.gdrcopy.build import Build, build_of, complete, script
from rackpin.operations_fabric import gdrcopy_built
from rackpin.requests import requests
from rackpin.stack.items import Host, Reason, Source, Unresolved
from rackpin.stack.lock import Lock, load_stack
from rackpin.stages import fabric as stage
from tests.unit.fabric_samples import Tree, h100
from tests.unit.test_operations import commands

KERNEL = "6.1.0-57-amd64"
SOURCE = Source(version="2.5.1", commit="c" * 40, url="https://x.example/a.tar.gz", sha256="a" * 64)


@pytest.fixture
def lock() -> Lock:
    return load_stack("debian12-r535").lock.but(sources={"gdrcopy": SOURCE})


@pytest.fixture
def build(lock: Lock) -> Build:
    found, why = build_of(lock, None)
    assert found is not None and why == ""
    return found


def with_dkms(*status: str) -> Fabric:
    return Fabric(kernel=KERNEL, dkms=Dkms(status))


def test_only_a_stack_that_pins_it_gets_it(lock: Lock, build: Build) -> None:
    assert (build.driver, build.version) == ("nvidia-current", "535.261.03")
    assert build.compiler == "gcc-12" and build.url == SOURCE.url
    assert build_of(lock.but(sources={}), None) == (None, "")
    none, why = build_of(lock.but(host=Host()), None)
    assert none is None and "no driver" in why
    unresolved = Unresolved(wanted="gdrcopy", unresolved=Reason(reason="not to be had here"))
    none, why = build_of(lock.but(sources={"gdrcopy": unresolved}), None)
    assert none is None and "not to be had here" in why
    offline, _ = build_of(lock, "http://b.example/")
    assert offline is not None
    assert offline.url == "http://b.example/files/gdrcopy-cccccccccccc.tar.gz"
    assert offline.digest == build.digest


def test_our_stacks_name_a_source_whose_content_is_known() -> None:
    for name in ("cuda12.2-vllm0.4.2", "cuda13-vllm0.33"):
        found, why = build_of(load_stack(name).lock, None)
        assert found is not None and why == "", name
        assert found.source.sha256.startswith("d6c61358"), name
    assert build_of(load_stack("cpu-lab").lock, None) == (None, "")


def test_another_driver_compiler_or_source_is_another_build(build: Build) -> None:
    others = [
        replace(build, version="535.309.01"),
        replace(build, driver="nvidia-current-open"),
        replace(build, compiler="gcc-13"),
        replace(build, source=SOURCE.model_copy(update={"sha256": "b" * 64})),
    ]
    assert len({build.digest, *(one.digest for one in others)}) == 5


@pytest.mark.parametrize(
    ("status", "marked", "linked", "done"),
    [
        ([f"gdrdrv/2.5.1, {KERNEL}, x86_64: installed"], True, "PLACE/libgdrapi.so.2.5", True),
        ([f"gdrdrv, 2.5.1, {KERNEL}, x86_64: installed"], True, "PLACE/libgdrapi.so.2.5", True),
        ([f"gdrdrv/2.5.1, {KERNEL}, x86_64: built"], True, "PLACE/libgdrapi.so.2.5", False),
        (["gdrdrv/2.5.1, 6.1.0-50-amd64, x86_64: installed"], True, "PLACE/x", False),
        (["gdrdrv/2.5.1: added"], True, "PLACE/libgdrapi.so.2.5", False),
        ([], True, "PLACE/libgdrapi.so.2.5", False),
        ([f"gdrdrv/2.5.1, {KERNEL}, x86_64: installed"], False, "PLACE/x", False),
        ([f"gdrdrv/2.5.1, {KERNEL}, x86_64: installed"], True, "/opt/own/libgdrapi.so", False),
        ([f"gdrdrv/2.5.1, {KERNEL}, x86_64: installed"], True, "", False),
        (
            [
                f"gdrdrv/2.5.1, {KERNEL}, x86_64: installed",
                f"gdrdrv/2.4, {KERNEL}, x86_64: installed",
            ],
            True,
            "PLACE/libgdrapi.so.2.5",
            False,
        ),
    ],
)
def test_what_counts_as_built(
    build: Build, status: list[str], marked: bool, linked: str, done: bool
) -> None:
    found = complete(build, with_dkms(*status), marked, linked.replace("PLACE", build.place))
    assert found is done


def test_the_operation_builds_once(build: Build, lock: Lock, target: Target) -> None:
    here = dataclasses.replace(target, lock=lock)
    wish = stage.desired(here)
    ready = with_dkms(f"gdrdrv/2.5.1, {KERNEL}, x86_64: installed")
    paths = {
        build.mark: PathState("file"),
        build.link: PathState("link", target=f"{build.place}/libgdrapi.so.2.5"),
    }
    assert set(paths) <= set(wish.paths)
    known = {FabricFact: ready, Paths: paths}
    assert commands(gdrcopy_built, known, build=build, stage=wish) == []
    for missing in ({**known, FabricFact: with_dkms()}, {**known, Paths: {}}):
        (command,) = commands(gdrcopy_built, missing, build=build, stage=wish)
        assert "sh -s" in str(command)


def test_the_stage_wants_it_where_cards_and_adapters_are(
    target: Target, lock: Lock, tmp_path: Path
) -> None:
    before = dataclasses.replace(target, lock=lock)
    after = dataclasses.replace(before, fabric=h100(Tree(tmp_path / "a")).look())
    wish = stage.desired(after)
    assert stage.GDRCOPY_UNIT in wish.units
    assert stage.GDRCOPY_PROGRAM in [file.path for file in wish.files]
    assert (Paths, {"paths": wish.paths}) in requests(before)
    assert (Packages, {"names": wish.packages}) in requests(before)
    unpinned = dataclasses.replace(after, lock=lock.but(sources={}))
    assert stage.GDRCOPY_UNIT not in stage.desired(unpinned).units
    cards = Tree(tmp_path / "b")
    cards.gpu("pci0000:10/0000:10:01.0/0000:11:00.0")
    alone = dataclasses.replace(before, fabric=cards.look())
    assert stage.GDRCOPY_UNIT not in stage.desired(alone).units


def test_the_script_is_plain_sh_and_has_its_program(build: Build, tmp_path: Path) -> None:
    text = script(build)
    assert 'MAKE[0]="make' not in text, "DKMS adds KERNELRELEASE to that"
    assert "@FETCH@" not in text and "hashlib.sha256" in text
    file = tmp_path / "script"
    file.write_text(text)
    done = subprocess.run(["sh", "-n", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def load(root: Path, target: Target, lock: Lock, modprobe: int = 0) -> tuple[int, str]:
    """Run the program with programs of its own in place of modprobe and mknod."""
    after = dataclasses.replace(target, lock=lock, fabric=h100(Tree(root / "node")).look())
    files = {file.path: file.content for file in stage.desired(after).files}
    programs = root / "bin"
    programs.mkdir()
    (programs / "modprobe").write_text(f"#!/bin/sh\nexit {modprobe}\n")
    (programs / "mknod").write_text("#!/bin/sh\necho mknod $*\n")
    (root / "gdrcopy").write_text(files[stage.GDRCOPY_PROGRAM])
    for file in programs.iterdir():
        file.chmod(0o755)
    (root / "dev").mkdir()
    done = subprocess.run(
        ["sh", str(root / "gdrcopy"), str(root)],
        capture_output=True, text=True, check=False, timeout=20,
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


DEVICES = "Character devices:\n  1 mem\n{}\nBlock devices:\n  8 sd\n"


def test_the_module_gets_its_node(tmp_path: Path, target: Target, lock: Lock) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text(DEVICES.format("507 gdrdrv"))
    code, said = load(tmp_path, target, lock)
    assert (code, said.splitlines()[0]) == (0, f"mknod -m 666 {tmp_path}/dev/gdrdrv c 507 0")


@pytest.mark.parametrize(("modprobe", "says"), [(0, "no number in /proc/devices"), (1, "")])
def test_a_module_that_is_not_there_fails_the_unit(
    tmp_path: Path, target: Target, lock: Lock, modprobe: int, says: str
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text(DEVICES.format("5 tty"))
    code, said = load(tmp_path, target, lock, modprobe)
    assert code == 1 and says in said and "mknod" not in said
