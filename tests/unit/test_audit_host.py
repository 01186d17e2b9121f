"""Units, packages, boot and processes: what commands print, and what they don't answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackpin.audit.node.boot import (
    grub_choice,
    grub_entries,
    grub_kernel,
    next_kernel,
    parse_loaded,
    version_key,
)
from rackpin.audit.node.packages import parse_debs
from rackpin.audit.node.place import Place, run_command
from rackpin.audit.node.processes import parse_maps
from rackpin.audit.node.sheet import Unseen
from rackpin.audit.node.units import parse_units
from rackpin.desired import Target
from tests.unit.audit_samples import DATA, NVRM, OPEN, Machine, healthy

GRUB = (DATA / "grub.cfg").read_text(encoding="utf-8")


@pytest.fixture
def machine(target: Target, tmp_path: Path) -> Machine:
    return healthy(target, tmp_path / "root")


@pytest.mark.parametrize(
    ("program", "ran", "area"),
    [
        ("dpkg-query", (2, "", "dpkg-query: error: parsing file status"), "deb"),
        ("dpkg-query", (0, "half a li", ""), "deb"),
        ("apt-cache", (124, "", "apt-cache: no answer within 30 s"), "deb"),
        ("systemctl", (1, "", "System has not been booted with systemd"), "unit"),
        ("systemctl", (0, "", ""), "unit"),
        ("ip", (127, "", "ip: not installed"), "file"),
        ("modinfo", (127, "", "modinfo: not installed"), "kernel"),
    ],
)
def test_a_command_without_an_answer_is_no_pass(
    machine: Machine, program: str, ran: tuple[int, str, str], area: str
) -> None:
    machine.broken[program] = ran
    found = machine.audit()
    assert found["state"] == "could_not_look"
    assert [item["area"] for item in found["unseen"]] == [area]
    assert {item["area"] for item in found["same"]} >= {"wheel", "running"}, "the others went on"


def test_drift_is_told_also_when_something_was_unseen(machine: Machine) -> None:
    machine.broken["systemctl"] = (1, "", "")
    machine.at("/etc/sysctl.d/90-rackpin.conf").unlink()
    found = machine.audit()
    assert found["state"] == "could_not_look" and found["counts"] == {"file.missing": 1}


def test_a_node_whose_address_is_nowhere(machine: Machine) -> None:
    machine.wish = machine.wish.model_copy(update={"address": "10.9.0.99"})
    found = machine.audit()
    assert "10.9.0.99" in found["unseen"][0]["why"]


def test_the_file_with_the_nic_in_it_is_compared_for_the_nodes_own(machine: Machine) -> None:
    machine.broken["ip"] = (0, "2: eno1    inet 10.9.0.11/24 scope global eno1\n", "")
    found = machine.audit()
    assert [d["subject"] for d in found["drift"]] == ["/etc/rackpin/node.env"]


def test_a_secret_shows_no_digest(machine: Machine) -> None:
    machine.write("/etc/rackpin/vllm/two.env", "VLLM_API_KEY=other\n", 0o600)
    found = machine.audit()
    assert found["counts"] == {"file.edited": 1}
    assert found["drift"][0]["expected"] == "content"
    assert "other content, written" in found["drift"][0]["found"]
    assert "sk-test" not in str(found)


@pytest.mark.parametrize("make", ["link", "directory"])
def test_a_file_that_became_something_else(machine: Machine, make: str) -> None:
    path = machine.at("/etc/sysctl.d/90-rackpin.conf")
    path.rename(path.with_name("away"))
    path.symlink_to("away") if make == "link" else path.mkdir()
    found = machine.audit()
    assert found["counts"] == {"file.edited": 1} and found["drift"][0]["found"] == f"a {make}"


def test_the_hosts_block_and_the_swap_link(machine: Machine) -> None:
    hosts = machine.at("/etc/hosts")
    hosts.write_text(hosts.read_text().replace("10.9.0.12 worker1", "10.9.0.99 worker1"))
    for link in machine.wish.links:
        machine.at(link).unlink()
    found = {d["subject"]: d for d in machine.audit()["drift"]}
    block = found["/etc/hosts (rackpin's block)"]
    assert (block["expected"], block["found"]) == ("10.9.0.12 worker1", "10.9.0.99 worker1")
    assert found["/etc/systemd/system/swap.target"]["kind"] == "file.missing"


def test_lines_outside_the_block_are_the_sites(machine: Machine) -> None:
    hosts = machine.at("/etc/hosts")
    hosts.write_text("192.0.2.7 nfs\n" + hosts.read_text())
    assert machine.audit()["state"] == "same"


# -- packages


def test_debs_of_two_architectures() -> None:
    text = "libc6\tamd64\tii \t2.36-9\nlibc6\ti386\tii \t2.36-9\nold\tall\trc \t1\n"
    assert set(parse_debs(text)) == {"libc6", "libc6:i386"}
    text = "libc6\ti386\tii \t2.36-9\nlibc6\tamd64\tii \t2.36-10\n"
    assert parse_debs(text)["libc6"].version == "2.36-10"


def test_a_held_package_is_installed_and_a_removed_one_is_not(machine: Machine) -> None:
    machine.debs["python3"][0] = "hi"
    machine.debs["never-installed"] = ["rc", "1"]
    assert machine.audit()["state"] == "same"


def test_a_pinned_package_that_isnt_installed_needs_no_hold(machine: Machine) -> None:
    del machine.debs["libcuda1"]
    assert machine.audit()["state"] == "same"


def test_no_stranger_can_be_told_without_a_closure(machine: Machine) -> None:
    machine.wish = machine.wish.model_copy(update={"family_known": []})
    found = machine.audit()
    assert found["state"] == "could_not_look" and "rackpin lock" in found["unseen"][0]["why"]


# -- kernel and driver


@pytest.mark.parametrize(
    ("default", "kernel"),
    [
        ("0", "6.1.0-50-amd64"),
        ("1>1", "6.1.0-9-amd64"),
        ("1>gnulinux-6.1.0-9-amd64-advanced-11d8", "6.1.0-9-amd64"),
        (
            "Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux 6.1.0-9-amd64",
            "6.1.0-9-amd64",
        ),
        ("gnulinux-advanced-11d8", "6.1.0-50-amd64"),
        ("7", None),
    ],
)
def test_grub_boots_its_default(default: str, kernel: str | None) -> None:
    text = GRUB.replace('set default="0"', f'set default="{default}"')
    assert grub_kernel(text, "# GRUB Environment Block\n####") == kernel


def test_grub_remembers_a_choice() -> None:
    text = GRUB.replace('set default="0"', 'set default="${saved_entry}"')
    assert grub_choice(text, "saved_entry=1>1\n###") == "1>1"
    assert grub_choice(text, "###") == "0"
    assert grub_choice(GRUB, "next_entry=1>1\n###") == "1>1", "one boot only, the next"
    assert len(grub_entries(GRUB)) == 3


def test_without_grub_the_newest_kernel_counts(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    assert next_kernel(place) == ("", "no kernel in /boot")
    for version in ("6.1.0-9-amd64", "6.1.0-50-amd64", "6.1.0-50-rc1-amd64"):
        (tmp_path / "boot").mkdir(exist_ok=True)
        (tmp_path / f"boot/vmlinuz-{version}").touch()
    assert next_kernel(place) == ("6.1.0-50-amd64", "newest in /boot")


def test_kernel_versions_sort_as_numbers() -> None:
    names = ["6.8.0-100-generic", "6.8.0-31-generic", "6.8.0-31-generic-rc", "5.15.0-1-generic"]
    assert sorted(names, key=version_key)[0] == "5.15.0-1-generic"
    assert sorted(names, key=version_key)[-1] == "6.8.0-100-generic"


def test_the_modules_flavour() -> None:
    assert parse_loaded(NVRM) == ("535.129.03", "closed")
    assert parse_loaded(OPEN) == ("580.65.06", "open")
    with pytest.raises(Unseen):
        parse_loaded("nothing\n")


def test_an_open_module_in_place_of_the_closed_one(machine: Machine) -> None:
    machine.write("/proc/driver/nvidia/version", OPEN.replace("580.65.06", "535.129.03"))
    found = machine.audit()
    assert found["counts"] == {"driver.loaded": 1} and found["drift"][0]["subject"] == "flavour"


def test_a_module_known_from_sysfs_only(machine: Machine) -> None:
    machine.at("/proc/driver/nvidia/version").unlink()
    machine.write("/sys/module/nvidia/version", "535.129.03\n")
    assert machine.audit()["state"] == "same"


# -- units and processes


def test_units_parse_as_systemctl_prints_them() -> None:
    text = "Id=a.service\nDropInPaths=\nFragmentPath=/x=y\n\nId=b.timer\nLoadState=not-found\n"
    assert parse_units(text) == {
        "a.service": {"Id": "a.service", "DropInPaths": "", "FragmentPath": "/x=y"},
        "b.timer": {"Id": "b.timer", "LoadState": "not-found"},
    }


def test_a_property_set_at_run_time_is_a_drop_in(machine: Machine) -> None:
    path = "/etc/systemd/system.control/ray-head.service.d/50-MemoryMax.conf"
    machine.units["ray-head.service"]["DropInPaths"] = path
    assert machine.audit()["counts"] == {"unit.dropin": 1}


def test_maps_name_environments_and_nccl() -> None:
    text = (
        "7f-80 r-xp 0 08:01 1 /opt/rackpin/env/a-1/lib/python3.11/x.so\n"
        "7f-80 r-xp 0 08:01 1 /opt/rackpin/env/a-1/lib/nvidia/nccl/lib/libnccl.so.2 (deleted)\n"
        "7f-80 r-xp 0 08:01 1 /usr/lib/libnccl-net.so\n"
        "7f-80 rw-p 0 00:00 0 [heap]\n"
    )
    envs, libraries = parse_maps(text, "/opt/rackpin/env")
    assert envs == {"/opt/rackpin/env/a-1"}
    # a network plugin is no NCCL
    assert libraries == {"/opt/rackpin/env/a-1/lib/nvidia/nccl/lib/libnccl.so.2 (deleted)"}


def test_an_nccl_that_was_replaced_under_a_running_engine(machine: Machine) -> None:
    maps = machine.at("/proc/41/maps")
    maps.write_text(maps.read_text().replace("libnccl.so.2", "libnccl.so.2 (deleted)"))
    found = machine.audit()
    assert found["counts"] == {"nccl.mapped": 1} and "deleted" in found["drift"][0]["found"]


def test_an_engine_that_mapped_no_nccl_could_not_be_looked_at(machine: Machine) -> None:
    machine.write("/proc/41/maps", "")
    found = machine.audit()
    assert found["state"] == "could_not_look" and "vllm@two" in found["unseen"][0]["why"]


def test_any_nccl_is_drift_where_the_lock_has_none(machine: Machine) -> None:
    machine.wish = machine.wish.model_copy(update={"nccl": None, "engines": []})
    assert machine.audit()["counts"] == {"nccl.mapped": 1}


def test_commands_have_deadlines_and_no_surprises() -> None:
    assert run_command(["sleep", "5"], 0.1)[0] == 124
    assert run_command(["/no/such/program"], 1)[0] == 127
    assert run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], 5) == (3, "out\n", "err\n")
