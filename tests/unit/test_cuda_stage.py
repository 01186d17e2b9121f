"""The toolkit's paths, and that no libcuda comes before the driver's."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import FactProcessError

from rackpin import layout
from rackpin.desired import Target
from rackpin.facts import Packages, Paths
from rackpin.facts_cuda import COMPAT, Cuda, CudaFact, parse_cuda
from rackpin.operations_cuda import compat_off, toolkit_link
from rackpin.requests import requests
from rackpin.stack.hostpins import CudaPin
from rackpin.stack.items import Host, Package
from rackpin.stages import cuda as stage
from tests.unit.fabric_samples import Tree, h100, storage
from tests.unit.shell import sh
from tests.unit.test_operations import commands

HOME = "/usr/local/cuda-12.2"


@pytest.fixture
def here(target: Target) -> Target:
    toolkit = Package(name="cuda-toolkit-12-2", version="1", role="cuda", repository="nvidia")
    lock = target.lock.but(
        host=Host(cuda=CudaPin(version="12.2.2")), packages={target.os_key: [toolkit]}
    )
    return dataclasses.replace(target, lock=lock)


def test_the_facts_script_runs_on_any_machine() -> None:
    done = sh(CudaFact().command())
    assert done.returncode == 0 and not done.stderr
    parse_cuda(done.stdout.splitlines())
    with pytest.raises(FactProcessError, match="cut"):
        parse_cuda(done.stdout.splitlines()[:-1])


def test_sections_are_read() -> None:
    text = f"""@@ link
/usr/local/cuda-12.4
@@ choice
/usr/local/cuda-12.4
@@ toolkits
{HOME}
/usr/local/cuda-12.4
@@ compat
/etc/ld.so.conf.d/000_cuda.conf:/usr/local/cuda/compat
@@ environment
/etc/environment:LD_LIBRARY_PATH=/usr/local/cuda/compat
@@ libcuda
/usr/local/cuda/compat/libcuda.so.1
/lib/x86_64-linux-gnu/libcuda.so.1
@@ end"""
    found = parse_cuda(text.splitlines())
    assert found.compat == (("/etc/ld.so.conf.d/000_cuda.conf", "/usr/local/cuda/compat"),)
    assert found.libcuda[0].startswith("/usr/local/cuda/compat")
    assert found.choice == found.link == "/usr/local/cuda-12.4"


def test_the_survey_knows_what_the_stage_will_ask(here: Target, tmp_path: Path) -> None:
    asked = requests(here)
    wish = stage.desired(dataclasses.replace(here, fabric=h100(Tree(tmp_path)).look()))
    assert wish.packages == ("cuda-toolkit-12-2",)
    assert (Paths, {"paths": wish.paths}) in asked
    assert (Packages, {"names": wish.packages}) in asked and (CudaFact, {}) in asked


def test_without_cards_or_pin_it_is_left_alone(
    here: Target, target: Target, tmp_path: Path
) -> None:
    bare = dataclasses.replace(here, fabric=storage(Tree(tmp_path), "mlx5_0", "InfiniBand").look())
    wish = stage.desired(bare)
    assert (wish.files, wish.packages) == ((), ())
    assert stage.desired(target).paths == () and (CudaFact, {}) not in requests(target)
    gateway = dataclasses.replace(here, node=here.fleet.nodes["gate1"])
    assert stage.desired(gateway).paths == ()


def test_a_shell_finds_the_compiler_once(here: Target, tmp_path: Path) -> None:
    wish = stage.desired(dataclasses.replace(here, fabric=h100(Tree(tmp_path)).look()))
    files = {file.path: file for file in wish.files}
    profile = files[stage.PROFILE].content
    done = sh(f"{profile}\n{profile}\necho $PATH $CUDA_HOME")
    path, home = done.stdout.split()
    assert path.split(":").count(f"{HOME}/bin") == 1 and home == HOME
    lines = [x for x in files[stage.LINKER].content.splitlines() if not x.startswith("#")]
    assert lines == [f"{HOME}/targets/x86_64-linux/lib"]
    assert files[stage.LINKER].triggers == ("ldconfig",)


def link(found: Cuda) -> list[Any]:
    return commands(toolkit_link, {CudaFact: found}, link=stage.LINK, home=HOME)


def test_the_link_is_alternatives_where_they_have_it() -> None:
    assert link(Cuda(link=HOME)) == link(Cuda(link=HOME, choice=HOME)) == []
    other = "/usr/local/cuda-12.4"
    assert link(Cuda(link=other, choice=other)) == [f"update-alternatives --set cuda {HOME}"]
    (command,) = link(Cuda())
    assert f"ln -sfn {HOME} /usr/local/cuda" in command and "is a directory" in command


def test_compat_entries_are_switched_off_and_kept(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(layout, "BACKUPS", str(tmp_path / "backup"))
    file = tmp_path / "000_cuda.conf"
    text = "# /usr/local/cuda/compat\n/usr/local/cuda-12.4/compat\n/usr/local/lib\n"
    file.write_text(text)
    found = Cuda(compat=((str(file), "/usr/local/cuda-12.4/compat"),))
    (command,) = commands(compat_off, {CudaFact: found}, allowed=False)
    done = sh(f"ldconfig() {{ echo renewed; }}; {command}")
    assert (done.returncode, done.stdout) == (0, "renewed\n"), done.stderr
    off = "# switched off by rackpin: /usr/local/cuda-12.4/compat"
    assert file.read_text().splitlines() == [text.splitlines()[0], off, "/usr/local/lib"]
    assert Path(f"{layout.BACKUPS}{file}").read_text() == text
    again = subprocess.run(["grep", "-cE", COMPAT, str(file)], capture_output=True, text=True)
    assert again.stdout.strip() == "0", "the next look finds none"
    assert commands(compat_off, {CudaFact: found}, allowed=True) == []
    assert commands(compat_off, {CudaFact: Cuda()}, allowed=False) == []


def test_other_toolkits_and_environments_are_named(here: Target) -> None:
    found = Cuda(
        toolkits=(HOME, "/usr/local/cuda-11.8"),
        environment=("/etc/environment:LD_LIBRARY_PATH=/usr/local/cuda/compat",),
    )
    said = stage.notes(here, found)
    assert "/etc/environment" in said[0] and "cuda-11.8" in said[1] and HOME not in said[1]
    assert not stage.wants_compat(here)
