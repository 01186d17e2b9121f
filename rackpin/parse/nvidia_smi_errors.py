"""What nvidia-smi says instead of an answer, by class.

Sources: the strings of nvmlReturn_t in nvml.h (nvmlErrorString), and issues of the driver's users.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rackpin.parse.text import unlabelled

# The first that matches counts; the order goes from the cause to its consequences.
CLASSES = (
    ("library-mismatch", re.compile(r"driver/library version mismatch", re.I)),
    ("gpu-lost", re.compile(r"gpu is lost|has fallen off the bus", re.I)),
    (
        "driver-not-loaded",
        re.compile(
            r"couldn'?t communicate with the nvidia driver|driver not loaded"
            r"|nvidia kernel module .*not (?:be )?loaded",
            re.I,
        ),
    ),
    ("insufficient-permissions", re.compile(r"insufficient permissions|permission denied", re.I)),
    ("no-devices", re.compile(r"no devices (?:were|was) found|no supported gpus were found", re.I)),
    ("nvml-unknown", re.compile(r"unknown error", re.I)),
)
OTHER = "other"
# Lines that are a failure of the whole tool or of one GPU. Each begins its line.
_LINES = re.compile(
    r"(?:NVIDIA-SMI has failed|NVIDIA-SMI couldn'?t|NVIDIA-SMI was unable"
    r"|Failed to (?:initialize|properly shut ?down|load|query|get) "
    r"|Failed to \w+ NVML"
    r"|No devices were found|No supported GPUs were found|No devices found\."
    r"|Unable to determine the device handle|Unable to (?:set|change|reset|enable|disable) "
    r"|GPU [\w:.]+ is currently in use|(?:GPU|Gpu) (?:at|with) .*\blost"
    r"|Insufficient Permissions|ERROR: |Error: |Error: Unable|Field \".*\" is not a valid field"
    r"|Invalid combination of input arguments|Invalid (?:argument|option)|Unknown Error\.?$"
    r"|GPU access blocked|The nvidia driver|Driver not loaded|Driver/library version mismatch"
    r"|(?:Option|Device) \S+ (?:is|was) not (?:supported|recognized|found))",
    re.IGNORECASE,
)
_PROMPT = re.compile(r"^[\s#>|*]*")
_HANDLE = re.compile(
    r"device handle for (?:gpu)?\s*(?:\d{1,3}: *)?(?:gpu ?)?"
    r"(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])?",
    re.IGNORECASE,
)
_LIBRARY = re.compile(r"\s*NVML library version: ?(?P<version>[\d.]+)")
_LONGEST = 1000  # characters of a line that can be such a message


@dataclass(frozen=True)
class Failure:
    """``bus_id`` of the GPU that it is about, None when it is about all or none."""

    error: str
    text: str
    bus_id: str | None = None


def failures(found: Sequence[str]) -> list[Failure]:
    """The failures in these lines, each distinct line once, in order."""
    seen: dict[str, Failure] = {}
    for line in found:
        if len(line) > _LONGEST:
            continue
        text = _PROMPT.sub("", line, count=1).rstrip()
        if not _LINES.match(text):
            text = unlabelled(text)
        if text and text not in seen and _LINES.match(text):
            handle = _HANDLE.search(text)
            seen[text] = Failure(classify(text), text, handle["bus"] if handle else None)
    return list(seen.values())


def classify(text: str) -> str:
    """The class of a message; ``other`` for one that is in no class."""
    return next((name for name, words in CLASSES if words.search(text)), OTHER)


def worst(found: Sequence[Failure]) -> str | None:
    """The class that explains most: that of the earliest row of ``CLASSES``."""
    classes = {failure.error for failure in found}
    return next((name for name, _ in CLASSES if name in classes), OTHER if classes else None)


def library_version(found: Sequence[str]) -> str | None:
    """``NVML library version: 570.124`` below a mismatch; None without it."""
    return next((match["version"] for line in found if (match := _LIBRARY.match(line))), None)
