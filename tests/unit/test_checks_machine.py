"""The machine itself: kernel, CPUs, memory, drives, services, clock source."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from rackpin.checks import (
    clock_source,
    host_boot,
    host_cpu,
    host_memory,
    host_services,
    host_storage,
)
from rackpin.checks.base import Check, Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.stack.hostpins import KernelPin, RdmaPin
from tests.unit import checks_samples, gpu_samples
from tests.unit import host_samples as samples

PASS, FAIL, WARN, NOT_RUN = Outcome.PASS, Outcome.FAIL, Outcome.WARN, Outcome.NOT_RUN
STATE = "host.state"


@pytest.fixture
def ctx(target: Target) -> Context:
    return checks_samples.context(target)


@pytest.fixture
def cards(target: Target) -> Context:
    return gpu_samples.context(target, "h100-sxm-8")


def judged(ctx: Context, check: Check, output: Output) -> list[Finding]:
    return check.judge(ctx, {command.name: output for command in check.commands(ctx)})


def state(ctx: Context, check: Check, **changes: str | None) -> Finding:
    (found,) = judged(ctx, check, samples.sectioned(samples.STATE, **changes))
    return found


# check, changed section, its text, outcome, what the summary names.
CASES: list[tuple[Check, str, str, Outcome, str]] = [
    (host_boot.BOOT, "kernels", "running 6.5.0-45-generic", FAIL, "/lib/modules has nothing"),
    (host_boot.BOOT, "grub", "!", NOT_RUN, "garbled"),
    (host_boot.BOOT, "grub", base64.b64encode(b"set default=9\n").decode(), NOT_RUN, "'9'"),
    (host_boot.REBOOT, "reboot", "required\nlibc6", WARN, "libc6 asks for a reboot"),
    (host_boot.REBOOT, "reboot", "maybe", NOT_RUN, "whether"),
    (host_cpu.CHECK, "cpu", "present 0-3\nonline 0,2-3\n  3 model name : X", WARN, "1 of 4 CPUs"),
    (host_cpu.CHECK, "cpu", "present 0-3\nonline 0-3\n  2 microcode : 0x1\n  2 microcode : 0x2",
     FAIL, "0x1, 0x2"),
    (host_cpu.CHECK, "cpu", "present 0-3\nonline 0-3\n  2 model name : X\n  2 model name : Y", WARN,
     "2 models"),
    (host_cpu.CHECK, "cpu", "model name : X", NOT_RUN, "online"),
    (host_cpu.CHECK, "numa", "node0 1000000\nnode1 500000\nnode2 0", WARN, "NUMA node1"),
    (host_memory.ERRORS, "edac", "mc0 ce=0 ue=1", FAIL, "1 memory errors not corrected"),
    (host_memory.ERRORS, "edac", "mc0 ce=100 ue=0", WARN, "100 memory errors corrected"),
    (host_memory.ERRORS, "edac", "mc0 ce=99 ue=0", PASS, ""),
    (host_memory.ERRORS, "edac", "mc0 ce=x ue=0", NOT_RUN, "memory controller"),
    (host_memory.ERRORS, "memory", "MemTotal: 100 kB\nHardwareCorrupted:    4 kB", FAIL, "4 KiB"),
    (host_memory.ERRORS, "memory", "", NOT_RUN, "meminfo"),
    (host_memory.FREE, "memory", "MemTotal: 1000 kB\nMemAvailable: 99 kB", WARN, "short"),
    (host_memory.FREE, "memory", "MemTotal: 1000 kB\nMemAvailable: 29 kB", FAIL, "short"),
    (host_memory.FREE, "memory", "MemTotal: 1000 kB", NOT_RUN, "available"),
    (host_memory.SHM, "shm", "shm  65536 0 65536 0% /dev/shm", FAIL, "64 MiB"),
    (host_memory.SHM, "shm", "shm  524288 0 524288 0% /dev/shm", WARN, "512 MiB"),
    (host_memory.SHM, "shm", "/dev/sda1  9524288 0 9524288 0% /", NOT_RUN, "of its own"),
    (host_storage.MOUNTS, "mounts", "/ ext4 ro,relatime", FAIL, "/ is mounted read-only"),
    (host_storage.MOUNTS, "mounts", "/opt xfs rw", NOT_RUN, "root"),
    (host_storage.MOUNTS, "mounts", "/ ext4 rw\n/srv/models xfs ro", PASS, ""),
    (host_storage.STATE, "nvme", "nvme0|dead|X|1\nnvme1|resetting|Y|1", FAIL, "nvme1 (Y)"),
    (host_storage.STATE, "scsi", "sda|offline|X|1", FAIL, "sda (X) is offline"),
    (host_storage.STATE, "nvme", "nvme0", NOT_RUN, "a drive"),
    (host_services.SERVICES, "services", "Failed to connect to bus", NOT_RUN, "names no unit"),
    (host_services.SERVICES, "services", samples.service("docker", active="failed"), FAIL,
     "docker"),
    (host_services.SERVICES, "services", samples.service("chrony", active=""), NOT_RUN, "chrony"),
    (host_services.SERVICES, "services",
     samples.service("chrony", active="inactive", condition="no"), WARN, "condition"),
    (host_services.PACKAGES, "dpkg", "0001", FAIL, "interrupted"),
    (host_services.PACKAGES, "dpkg", "The following packages are only half configured:\n gdm x",
     FAIL, "gdm"),
    (clock_source.CHECK, "synchronized", "NTPSynchronized=no", FAIL, "not synchronized"),
    (clock_source.CHECK, "synchronized", "Failed to connect to bus", NOT_RUN, "synchronized"),
    (clock_source.CHECK, "chrony", "506 Cannot talk to daemon", WARN, "names a source"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "section", "text", "outcome", "named"), CASES)
def test_one_section_decides(
    ctx: Context, check: Check, section: str, text: str, outcome: Outcome, named: str
) -> None:
    found = state(ctx, check, **{section: text})
    assert found.outcome is outcome, found.summary
    assert named in found.summary and (found.remedy or outcome is PASS)


@pytest.mark.parametrize("check", dict.fromkeys(case[0] for case in CASES))
def test_a_section_that_is_not_there_is_no_answer(ctx: Context, check: Check) -> None:
    assert state(ctx, check).outcome is PASS
    for part in check.parts:  # type: ignore[attr-defined]
        found = state(ctx, check, **{part: None})
        assert found.outcome is NOT_RUN and found.required and part in found.summary
    assert state(ctx, check, place="container=\nvm=").outcome is NOT_RUN


def test_a_container_is_not_judged_by_its_hosts_kernel_and_clock(ctx: Context) -> None:
    for check in (host_boot.BOOT, clock_source.CHECK):
        output = samples.sectioned(
            samples.STATE, place=samples.CONTAINER, synchronized="NTPSynchronized=no", kernels=
            "running 6.18.44"
        )  # fmt: skip
        assert judged(ctx, check, output) == []
    found = state(ctx, host_services.SERVICES, place=samples.CONTAINER,
                  services=samples.service("chrony", active="inactive"))  # fmt: skip
    assert found.outcome is PASS


def test_the_pinned_kernel(ctx: Context) -> None:
    pin = KernelPin(release="6.5.0-44-generic", compiler="gcc-12")
    host = ctx.lock.host.model_copy(update={"kernel": pin})
    found = state(replace(ctx, lock=ctx.lock.but(host=host)), host_boot.BOOT)
    assert found.outcome is FAIL
    assert "6.5.0-45-generic runs, 6.5.0-44-generic is pinned" in found.summary
    assert "the next boot takes 6.5.0-45-generic" in found.summary


def test_the_network_stacks_own_modules_for_the_next_boot(cards: Context) -> None:
    rdma = RdmaPin(stack="doca", version="2.9.1")
    host = cards.lock.host.model_copy(update={"rdma": rdma})
    ctx = replace(cards, lock=cards.lock.but(host=host))
    found = state(ctx, host_boot.BOOT)
    assert found.outcome is FAIL and "doca has no mlx5_core for 6.5.0-45" in found.summary
    built = samples.STATE["kernels"] + "\nmlx5 6.5.0-45-generic"
    assert state(ctx, host_boot.BOOT, kernels=built).outcome is PASS


def test_another_kernel_next_is_worth_a_look(ctx: Context) -> None:
    text = samples.STATE["kernels"].replace("running 6.5.0-45", "running 6.5.0-44")
    found = state(ctx, host_boot.BOOT, kernels=text)
    assert found.outcome is WARN and "the next boot takes 6.5.0-45" in found.summary


def test_governor_counts_only_on_bare_metal_with_cards(ctx: Context, cards: Context) -> None:
    slow = "    190 powersave\n      2 performance"
    assert "190 CPUs powersave" in state(cards, host_cpu.CHECK, governor=slow).summary
    assert state(ctx, host_cpu.CHECK, governor=slow).outcome is PASS
    virtual = state(cards, host_cpu.CHECK, governor=slow, place=samples.MACHINE)
    assert virtual.outcome is PASS
    assert state(cards, host_cpu.CHECK, governor="").outcome is PASS


def test_persistenced_must_come_back_after_a_boot(ctx: Context, cards: Context) -> None:
    units = samples.service("nvidia-persistenced", file="disabled") + "\n" + samples.SERVICES
    units = units.replace(samples.service("nvidia-persistenced"), "")
    assert "is disabled" in state(cards, host_services.SERVICES, services=units).summary
    gone = samples.service("chrony")
    assert "not installed" in state(cards, host_services.SERVICES, services=gone).summary
    assert state(ctx, host_services.SERVICES, services=gone).outcome is PASS


def test_time_servers_of_the_inventory(ctx: Context) -> None:
    other = checks_samples.with_config(ctx, time_servers=["10.0.0.9"])
    assert "time comes from 10.0.0.1" in state(other, clock_source.CHECK).summary
    for servers in (["10.0.0.1"], ["ntp.site"]):  # a name can't be compared with an address
        same = checks_samples.with_config(ctx, time_servers=servers)
        assert state(same, clock_source.CHECK).outcome is PASS
    named = "ServerName=ntp.site\nServerAddress=10.0.0.7"
    found = state(checks_samples.with_config(ctx, time_servers=["ntp.site"]), clock_source.CHECK,
                  chrony="", timesyncd=named)  # fmt: skip
    assert found.outcome is PASS


# -- drives ----------------------------------------------------------------------------


def disks(ctx: Context, **changes: str) -> list[Finding]:
    return judged(ctx, host_storage.SMART, samples.sectioned(samples.DISKS, **changes))


@pytest.mark.parametrize(
    ("old", "new", "outcome", "named"),
    [
        ("result: PASSED", "result: FAILED!", FAIL, "FAILED!"),
        ("Critical Warning: 0x00", "Critical Warning: 0x04", FAIL, "0x04"),
        ("Percentage Used: 3%", "Percentage Used: 97%", WARN, "97 %"),
        ("Integrity Errors: 0", "Integrity Errors: 1,024", FAIL, "1024 media errors"),
        (samples.SMART, "nothing", NOT_RUN, "whether it is healthy"),
        (samples.SMART, "SMART Health Status: OK", PASS, ""),
    ],
)  # fmt: skip
def test_what_drives_say_of_themselves(
    ctx: Context, old: str, new: str, outcome: Outcome, named: str
) -> None:
    (found,) = disks(ctx, smart=samples.DISKS["smart"].replace(old, new))
    assert found.outcome is outcome and named in found.summary


def test_without_smartctl_nothing_is_said_and_nothing_passes(ctx: Context) -> None:
    (found,) = disks(ctx, tool="none", smart="")
    assert found.outcome is NOT_RUN and not found.required and "smartmontools" in found.remedy
    assert disks(ctx, drives="", tool="none", smart="") == []
