"""Hardware on a host's disk: written once, changed in one step, taken away again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackpin.cli import main
from rackpin.lab.errors import LabError
from rackpin.lab.hardware import place
from rackpin.lab.hardware.faults import FAULTS
from rackpin.lab.hardware.tree import HOME, frame
from rackpin.lab.state import HostState


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host's disk as far as it matters here."""
    made = tmp_path / "root"
    for name in ("usr/lib", "usr/local/bin", "etc/dpkg/dpkg.cfg.d"):
        (made / name).mkdir(parents=True)
    return made


def host(root: Path, hardware: str | None = "rtx4090-2", *faults: str) -> HostState:
    directory = root.parent / "host"
    directory.mkdir(exist_ok=True)
    return HostState(
        name="gpu1",
        address="10.86.1.11",
        groups=["workers"],
        sku="lab-cpu",
        hardware=hardware,
        faults=list(faults),
        machine="t-gpu1",
        directory=directory,
    )


def files(root: Path) -> dict[str, tuple[int, str | bytes]]:
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else path.read_bytes(),
        )
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def current(root: Path) -> Path:
    return root / HOME.lstrip("/") / (root / HOME.lstrip("/") / "current").readlink()


def test_a_second_time_changes_nothing(root: Path) -> None:
    assert place.put(root, host(root)) is True
    before = files(root)
    assert place.put(root, host(root)) is False
    assert files(root) == before
    assert (current(root) / "bin" / "nvidia-smi").stat().st_mode & 0o777 == 0o755
    assert current(root).name == "installed"


def test_a_fault_makes_another_tree_and_the_old_one_goes(root: Path) -> None:
    place.put(root, host(root))
    old = current(root)
    assert place.put(root, host(root, "rtx4090-2", "hang")) is True
    assert current(root) != old and not old.exists()
    assert (current(root) / "nvidia-smi" / "hang").exists()


def test_a_driver_that_is_not_installed_yet_can_become_so_on_the_host(root: Path) -> None:
    place.put(root, host(root, "rtx4090-2", "not-installed", "hot"))
    assert current(root).name == "bare"
    assert not (current(root) / "bin" / "nvidia-smi").exists()
    other = current(root).with_name("installed")
    assert "91" in (other / "nvidia-smi" / "csv" / "gpu.cells").read_text(), "with the other faults"
    hook = root / place.DPKG_HOOK
    assert f"{HOME}/driver auto" in hook.read_text()
    # what the host did by itself outlives a boot
    link = root / HOME.lstrip("/") / "current"
    link.unlink()
    link.symlink_to(Path("trees", current_name(other), "installed"))
    assert place.put(root, host(root, "rtx4090-2", "not-installed", "hot")) is False
    assert current(root).name == "installed"
    place.put(root, host(root))
    assert not hook.exists()


def current_name(tree: Path) -> str:
    return tree.parent.name


def test_a_host_without_hardware_keeps_none_of_it(root: Path) -> None:
    bare = files(root)
    place.put(root, host(root))
    (root / "usr/local/bin/nvidia-smi").symlink_to(f"{HOME}/current/bin/nvidia-smi")
    (root / "usr/local/bin/own").symlink_to("/usr/bin/true")
    assert place.put(root, host(root, None)) is True
    assert set(files(root)) - set(bare) == {"usr/local/bin/own"}
    assert place.put(root, host(root, None)) is False


@pytest.mark.parametrize("link", ["usr/lib", "usr/lib/rackpin-lab", "usr/lib/rackpin-lab/trees"])
def test_a_host_cannot_lead_the_lab_out_of_its_disk(root: Path, link: str) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    if link == "usr/lib":
        (root / link).rmdir()
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(outside)
    with pytest.raises(LabError, match="reset the host"):
        place.put(root, host(root))
    assert list(outside.iterdir()) == []


def test_faults_are_remembered_until_they_are_forgotten(root: Path) -> None:
    one = host(root, "rtx4090-2", "hot")
    assert place.wished(one) == ["hot"]
    place.remember_faults(one, ["hang", "gpu-missing=0"])
    assert place.wished(one) == ["hang", "gpu-missing=0"]
    with pytest.raises(LabError, match="has no HCA"):
        place.remember_faults(one, ["hca-down"])
    place.remember_faults(one, [])
    assert place.wished(one) == [], "--clear takes away those of the description too"
    place.forget_faults(one)
    assert place.wished(one) == ["hot"]
    with pytest.raises(LabError, match="no simulated hardware"):
        place.remember_faults(host(root, None), ["hot"])


@pytest.mark.parametrize("name", frame())
def test_programs_are_plain_sh(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(frame()[name])
    assert "@HOME@" not in file.read_text()
    done = subprocess.run(["sh", "-n", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["uname", "modprobe", "modinfo", "lsmod"])
def test_programs_of_a_host_with_its_own_kernel_ask_its_disk(name: str, root: Path) -> None:
    place.put(root, host(root, "rtx4090-2", "kernel=6.1.0-57-amd64"))
    program = current(root) / "bin" / name
    assert "/run/rackpin-lab" in program.read_text()
    done = subprocess.run(["sh", "-n", str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (current(root) / "kernel" / "release").read_text() == "6.1.0-57-amd64\n"
    place.put(root, host(root))
    assert not (current(root) / "bin" / "uname").exists(), "else the real one answers"


def test_daemons_of_packages_keep_their_units_where_the_disk_decides(tmp_path: Path) -> None:
    home, to = tmp_path / "home", tmp_path / "units"
    (home / "current/kernel").mkdir(parents=True)
    (home / "current/kernel/release").touch()
    (home / "current/fabric").mkdir()
    to.mkdir()
    program = tmp_path / "generator"
    program.write_text(frame(str(home))["generator"])
    subprocess.run(["sh", str(program), str(to)], check=True)
    assert not (to / "nvidia-fabricmanager.service").exists()
    dropin = (to / "nvidia-fabricmanager.service.d/lab.conf").read_text()
    assert dropin.splitlines()[-2:] == ["ExecStart=", "ExecStart=/bin/sleep infinity"]


def test_the_generator_writes_fabric_manager_only_where_it_belongs(tmp_path: Path) -> None:
    def units(name: str, fabric: bool, enabled: bool) -> set[str]:
        home, to = tmp_path / name / "home", tmp_path / name / "units"
        (home / "current").mkdir(parents=True)
        to.mkdir()
        if fabric:
            (home / "current" / "fabric").mkdir()
        if enabled:
            (home / "current" / "fabric" / "enabled").touch()
        program = tmp_path / name / "generator"
        program.write_text(frame(str(home))["generator"])
        subprocess.run(["sh", str(program), str(to)], check=True)
        return {str(path.relative_to(to)) for path in to.rglob("*.service")}

    own = {
        "rackpin-lab-hardware.service",
        "sysinit.target.wants/rackpin-lab-hardware.service",
    }
    assert units("pcie", False, False) == own
    assert units("off", True, False) == own | {"nvidia-fabricmanager.service"}
    wanted = "multi-user.target.wants/nvidia-fabricmanager.service"
    assert units("on", True, True) == own | {"nvidia-fabricmanager.service", wanted}


def test_the_command_lists_the_faults_and_wants_a_host() -> None:
    listed = CliRunner().invoke(main, ["lab", "fault", "--list"])
    assert listed.exit_code == 0
    names = [line.split()[0].partition("[")[0] for line in listed.output.splitlines()]
    assert names == list(FAULTS)
    for words in ([], ["gpu1", "hot", "--clear"]):
        refused = CliRunner().invoke(main, ["lab", "fault", *words])
        assert (refused.exit_code, "--list" in refused.output) == (2, True)
