"""What the kernel said since boot: which part fails, which warns, when the log isn't all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackpin.checks import host_log
from rackpin.checks.base import Context
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from tests.unit import checks_samples
from tests.unit import host_samples as samples
from tests.unit.test_checks_machine import judged

PASS, FAIL, WARN, NOT_RUN = Outcome.PASS, Outcome.FAIL, Outcome.WARN, Outcome.NOT_RUN


@pytest.fixture
def ctx(target: Target) -> Context:
    return checks_samples.context(target)


LINES = [
    ("log.storage", "I/O error, dev sdb, sector 4096", FAIL, "sdb: I/O errors"),
    ("log.storage", "EXT4-fs error (device nvme0n1p2): ext4_lookup", FAIL, "nvme0n1p2"),
    ("log.storage", "EXT4-fs (sda2): Remounting filesystem read-only", FAIL, "sda2"),
    ("log.storage", "XFS (dm-0): Corruption detected. Unmount", FAIL, "dm-0"),
    ("log.storage", "nvme nvme3: controller is down; will reset", FAIL, "nvme3"),
    ("log.storage", "nvme nvme3: I/O 12 QID 4 timeout, aborting", WARN, "nvme3"),
    ("log.memory", "EDAC MC1: 1 UE memory read error on CPU_SrcID#0", FAIL, "MC1"),
    ("log.memory", "EDAC MC1: 3 CE memory read error on CPU_SrcID#0", WARN, "MC1"),
    ("log.memory", "{1}[Hardware Error]: event severity: recoverable", FAIL, "uncorrected"),
    ("log.memory", "Out of memory: Killed process 77 (python) total-vm:1", WARN, "python"),
    ("log.pcie", "pcieport 0000:17:01.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal)",
     WARN, "0000:17:01.0: uncorrected"),
    ("log.pcie", "pcieport 0000:17:01.0: PCIe Bus Error: severity=Uncorrectable (Fatal), id=9",
     FAIL, "0000:17:01.0: fatal"),
    ("log.pcie", "pcieport 0000:17:01.0: PCIe Bus Error: severity=Corrected, type=Physical",
     WARN, "0000:17:01.0"),
    ("log.pcie", "DMAR: [DMA Read] Request device [17:00.0] fault addr 0", FAIL, "17:00.0"),
    ("log.pcie", "mlx5_core 0000:18:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 "
     "GT/s PCIe x8 link", FAIL, "0000:18:00.0"),
    ("log.kernel", "mlx5_ib: disagrees about version of symbol ib_register", FAIL, "mlx5_ib"),
    ("log.kernel", "nvidia: version magic '6.5.0-44' should be '6.5.0-45'", FAIL, "nvidia"),
    ("log.kernel", "INFO: task nvidia-smi:4242 blocked for more than 120 seconds.", WARN,
     "nvidia-smi"),
    ("log.kernel", "watchdog: BUG: soft lockup - CPU#3 stuck for 23s!", FAIL, "stuck"),
]  # fmt: skip


def log(ctx: Context, *lines: str, **changes: str) -> dict[str, Finding]:
    text = "\n".join(line if line.startswith("[") else f"[  99.100000] {line}" for line in lines)
    output = samples.sectioned(samples.LOG, **{"dmesg": text, **changes})
    return {one.check: one for one in judged(ctx, host_log.CHECK, output)}


@pytest.mark.parametrize(("topic", "line", "outcome", "named"), LINES)
def test_what_the_kernel_said(
    ctx: Context, topic: str, line: str, outcome: Outcome, named: str
) -> None:
    found = log(ctx, line)
    assert found[topic].outcome is outcome and named in found[topic].summary
    assert line[:40] in found[topic].evidence.output
    assert [name for name, one in found.items() if one.outcome is not PASS] == [topic]


def test_all_that_was_said_is_named(ctx: Context) -> None:
    found = log(ctx, *[line for topic, line, *_ in LINES if topic == "log.storage"])
    summary = found["log.storage"].summary
    assert all(name in summary for name in ("sdb", "nvme0n1p2", "sda2", "dm-0", "nvme3"))


def test_a_link_that_goes_again_and_again(ctx: Context) -> None:
    down = "mlx5_core 0000:18:00.0 ib0: Link down"
    assert log(ctx, down)["log.links"].outcome is PASS
    assert log(ctx, down, down, down)["log.links"].outcome is WARN
    flapping = log(ctx, *[down] * 5, "igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down",
                   "igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down")["log.links"]  # fmt: skip
    assert flapping.outcome is FAIL and "ib0 went down 5" in flapping.summary
    assert "eno1 went down 2" in flapping.summary
    # The journal repeats what dmesg says.
    lines = "\n".join(f"[  99.1] head1 kernel: {down}" for _ in range(4))
    assert "4 times" in log(ctx, *[down] * 4, journal=lines)["log.links"].summary


def test_new_is_told_from_old(ctx: Context) -> None:
    """Boot was 86400 s before 1800000000; the last verify an hour after it."""
    known = replace(ctx, extra={"last_verify": "2027-01-14T09:00:00+00:00"})
    old, new = "[  100.0] I/O error, dev sda, sector 1", "[80000.0] I/O error, dev sdb, sector 1"
    summary = log(known, old, new)["log.storage"].summary
    assert "sda: I/O errors, before the last verify" in summary
    assert "sdb: I/O errors, since the last verify" in summary
    for wrong in ("", "yesterday", "2027-01-14T09:00:00"):
        odd = replace(ctx, extra={"last_verify": wrong})
        assert "verify" not in log(odd, old)["log.storage"].summary


def test_a_log_that_is_not_all(ctx: Context) -> None:
    lost = log(ctx, dmesg_status="0\n[ 9999.1] something later")
    assert {one.outcome for one in lost.values()} == {WARN}
    more = log(ctx, "MORE", dmesg="[ 9.1] x\nMORE")
    assert {one.outcome for one in more.values()} == {NOT_RUN}
    denied = log(ctx, dmesg_status="1\n")
    assert all(one.outcome is NOT_RUN and one.required for one in denied.values())
    both = log(ctx, "I/O error, dev sda, sector 1", dmesg_status="1\n")
    assert both["log.storage"].outcome is FAIL and "sda" in both["log.storage"].summary


def test_a_container_answers_for_itself_only(ctx: Context) -> None:
    denied = log(ctx, dmesg_status="1\n", place=samples.CONTAINER)
    assert all(one.outcome is NOT_RUN and not one.required for one in denied.values())
    part = log(ctx, "I/O error, dev sda, sector 1", dmesg_status="1\n", place=samples.CONTAINER)
    assert part["log.storage"].outcome is WARN and "sda" in part["log.storage"].summary
    shared = log(ctx, "I/O error, dev sda, sector 1", place=samples.CONTAINER)
    assert shared["log.storage"].outcome is WARN and "the machine" in shared["log.storage"].summary
