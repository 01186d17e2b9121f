"""Kernel messages that mean trouble, by topic: texts of the kernel's own sources.

Block layer, ext4, xfs, nvme, libata, EDAC, GHES, AER, IOMMU drivers, hung_task, module loader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """``fault``: proves trouble. ``who``: which part of the line names the device."""

    pattern: re.Pattern[str]
    says: str
    fault: bool


def _rule(pattern: str, says: str, fault: bool = True) -> Rule:
    return Rule(re.compile(pattern), says, fault)


@dataclass(frozen=True)
class Topic:
    id: str
    title: str
    rules: tuple[Rule, ...]
    remedy: str


TOPICS = (
    Topic(
        "log.storage",
        "The kernel reported no error of a drive or file system",
        (
            _rule(r"I/O error, dev (?P<who>\w+)", "I/O errors"),
            _rule(r"critical medium error, dev (?P<who>\w+)", "medium errors"),
            _rule(r"EXT4-fs error \(device (?P<who>[\w-]+)\)", "ext4 errors"),
            _rule(r"(?:EXT4-fs \((?P<who>[\w-]+)\): )?Remounting filesystem read-only",
                  "a file system turned read-only"),
            _rule(r"XFS \((?P<who>[\w-]+)\): .*(?:Corruption|I/O Error|shutdown|Shutting)",
                  "xfs errors"),
            _rule(r"BTRFS (?:error|critical) \(device (?P<who>[\w-]+)", "btrfs errors"),
            _rule(r"nvme (?P<who>nvme\d+): (?:controller is down|Removing after probe|"
                  r"Device not ready|Abort status.*)", "the drive went away"),
            _rule(r"nvme (?P<who>nvme\d+): I/O .*timeout", "I/O timeouts", False),
            _rule(r"(?P<who>ata\d+(?:\.\d+)?): (?:failed command|hard resetting)", "ATA errors",
                  False),
        ),
        "smartctl -a of the drive; copy what is needed, replace it",
    ),
    Topic(
        "log.memory",
        "The kernel reported no memory or CPU error",
        (
            _rule(r"\[Hardware Error\]: .*(?:Uncorrected|severity: (?:fatal|recoverable))",
                  "uncorrected hardware errors"),
            _rule(r"Memory failure: (?P<who>0x[0-9a-f]+)", "a page of memory is lost"),
            _rule(r"EDAC (?P<who>MC\d+): [1-9]\d* UE ", "memory errors not corrected"),
            _rule(r"mce: .*(?:Uncorrected|Fatal)|Machine Check Exception", "machine checks"),
            _rule(r"EDAC (?P<who>MC\d+): [1-9]\d* CE ", "memory errors corrected", False),
            _rule(r"mce: \[Hardware Error\]|\[Hardware Error\]: (?:Corrected|Machine)",
                  "machine checks logged", False),
            _rule(r"Killed process \d+ \((?P<who>[^)]+)\)", "killed for want of memory", False),
        ),
        "BMC event log and ras-mc-ctl --errors name the part; replace it. OOM: see memory.free",
    ),
    Topic(
        "log.pcie",
        "The kernel reported no PCIe or IOMMU error",
        (
            _rule(r"(?P<who>[0-9a-f:.]{7,12}): PCIe Bus Error: severity=Uncorrect\w+ \(Fatal",
                  "fatal PCIe errors"),
            _rule(r"(?P<who>[0-9a-f:.]{7,12}): PCIe Bus Error: severity=Uncorrect",
                  "uncorrected PCIe errors", False),
            _rule(r"IO_PAGE_FAULT device=(?P<who>[0-9a-f:.]{7,12})|"
                  r"(?P<who2>[0-9a-f:.]{7,12}): AMD-Vi: Event logged \[IO_PAGE_FAULT|"
                  r"DMAR: .*Request device \[(?P<who3>[0-9a-f:.]{7,12})\]",
                  "the IOMMU refused memory accesses"),
            _rule(r"IO_PAGE_FAULT", "the IOMMU refused memory accesses"),
            _rule(r"mlx5_core (?P<who>[0-9a-f:.]{12}).*limited by .*PCIe",
                  "the adapter's PCIe link is slower than it could be"),
            _rule(r"(?P<who>[0-9a-f:.]{7,12}): PCIe Bus Error: severity=Corrected",
                  "corrected PCIe errors", False),
        ),
        "reseat the device and its riser, check the slot's settings; IOMMU: see fabric.iommu",
    ),
    Topic(
        "log.kernel",
        "The kernel did not stall, and took every module",
        (
            _rule(r"(?P<who>[\w-]+): (?:disagrees about version of symbol|Unknown symbol)",
                  "the module doesn't fit the kernel or another module"),
            _rule(r"(?P<who>[\w-]+): version magic ", "the module is built for another kernel"),
            _rule(r"Loading of (?:unsigned )?module .*rejected|Key was rejected by service",
                  "Secure Boot rejected a module"),
            _rule(r"task (?P<who>[^:]+):\d+ blocked for more than", "a task hung", False),
            _rule(r"soft lockup|hard LOCKUP|rcu.*(?:self-detected|detected) stalls?",
                  "a CPU was stuck"),
            _rule(r"Kernel panic|BUG: unable to handle|kernel BUG at", "the kernel broke"),
        ),
        "dmesg -T | less around it; modules: dkms status, run the deploy. Reboot after a BUG",
    ),
)  # fmt: skip
