"""In which dress a text of the system comes: which form of dmesg, lspci, dkms it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin.parse.loglines import Line

_KMSG = re.compile(r"^\d{1,3},\d+,\d+,[-c+,\w=]+;")
_DECODED = re.compile(r"^(?:kern|user|daemon|syslog) *:\w+ *: ")
_HUMAN = re.compile(r"^\[\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}\]")
_SECONDS = re.compile(r"^\[ *\d+\.\d{3,9}\]")
_ISO_JOURNAL = re.compile(r"^\d{4}-\d\d-\d\dT\S+ [\w.-]+ [\w./@()-]+(?:\[\d+\])?: ")
_SYSLOG = re.compile(
    r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? [\w.-]+ [\w./@()-]+(?:\[\d+\])?: "
)
_DRESSES = (
    ("kmsg", "/dev/kmsg raw", _KMSG),
    ("dmesg", "dmesg --decode", _DECODED),
    ("dmesg", "dmesg -T", _HUMAN),
    ("dmesg", "dmesg", _SECONDS),
    ("journalctl", "journalctl -o short-iso", _ISO_JOURNAL),
    ("syslog", "syslog or journalctl", _SYSLOG),
)


def _dress(every: Sequence[Line]) -> tuple[str, str] | None:
    for line in every:
        for tool, form, pattern in _DRESSES:
            if pattern.match(line.shown):
                return tool, form
    return None


def kernel_lines(every: Sequence[Line]) -> str:
    """The tool whose stamps the lines carry, or "" when they carry none."""
    dress = _dress(every)
    return dress[0] if dress else ""


def form_of(tool: str, every: Sequence[Line]) -> str:
    """The tool with its options or dress, as far as the text shows them."""
    dress = _dress(every)
    if dress and dress[0] == tool:
        return dress[1]
    shown = "\n".join(line.shown for line in every)
    if tool == "dmesg":
        return "dmesg (no time)"
    if tool == "lspci":
        if "ACSCtl" in shown and "LnkCap" not in shown:
            return "lspci -vvv | grep ACSCtl"
        if "LnkCap" in shown or "Kernel driver" in shown:
            return "lspci -vvv"
        return "lspci -nn" if re.search(r"\[[0-9a-f]{4}:[0-9a-f]{4}\]", shown) else "lspci"
    if tool == "dkms":
        return "dkms status (2.x)" if re.search(r"^[\w.+-]+, \d", shown, re.M) else "dkms status"
    if tool == "fabricmanager":
        return "/var/log/fabricmanager.log" if "] [tid " in shown else "journal or status"
    if tool == "apt-cache":
        return "apt-cache madison" if " | " in shown else "apt-cache policy"
    return tool
