"""What the kernel said of GPUs and NVSwitches since boot: Xid and SXid codes, cards lost."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin.checks import gpuinfo
from rackpin.checks.base import (
    NO_ANSWER,
    NOTHING,
    Command,
    Context,
    Outputs,
    Question,
    sections,
    unseen,
)
from rackpin.checks.gpuinfo import Told
from rackpin.checks.host_log import after_boot, stamp
from rackpin.diagnose.rules import xids
from rackpin.findings import Finding, Level
from rackpin.parse.kernel_log import Kernel, Sxid, Xid, kernel
from rackpin.parse.loglines import lines

# The ring buffer forgets, the journal may not be kept: both are asked. A storm of one code on one
# device must not crowd out the others, so each is printed three times, and the last time.
LOG = Command(
    "gpu.log",
    r"""few() {
  awk '/Xid|NVRM|nvidia-nvswitch|AER:|PCIe Bus Error/ {
    k = match($0, /S?Xid( \([^)]*\))?: [0-9]+/) ? substr($0, RSTART, RLENGTH) : "other"
    if (n[k]++ < (k == "other" ? 200 : 3)) print substr($0, 1, 500)
    else last[k] = substr($0, 1, 500) }
  END { for (k in last) print last[k] }'
}
echo '## time'; date +%s; cut -d ' ' -f 1 /proc/uptime
t=$(dmesg 2>&1); r=$?
echo '## dmesg'; printf '%s\n' "$t" | few
echo '## dmesg status'; echo "$r $(printf '%s\n' "$t" | wc -l)"; printf '%s\n' "$t" | head -n 1
t=$(journalctl -k -b -q --no-pager -o short-monotonic 2>/dev/null)
echo '## journal'; printf '%s\n' "$t" | few
echo '## journal status'; printf '%s\n' "$t" | wc -l; printf '%s\n' "$t" | head -n 1
echo '## end'
""",
    20.0,
)
SOURCE = "NVIDIA, GPU deployment guide: Xid catalogue (rackpin/diagnose/xids.yaml)"
# What the driver says of a card besides its codes; texts of rackpin.parse.kernel_log.
LOST = ("GPU fell off the bus", "GSP RPC timeout", "GPU not initialised")
ODD = ("PCIe AER error",)
EARLY_S = 120.0  # a log that begins later than this after boot has lost its beginning


class Log:
    id = "gpu.xid"
    title = "The kernel reported no GPU fault since boot"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [LOG] if gpuinfo.has_cards(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not self.commands(ctx):
            return []
        output = outputs.get(LOG.name, NO_ANSWER)
        expected = "no Xid or SXid since boot but those of programs' own errors"
        question = Question(ctx, self.id, LOG, output, expected, SOURCE)
        why = unseen(LOG, output)
        if why and not output.truncated:
            return [question.not_run(why)]
        found = sections(output.stdout)
        told, remedies = Told(), list[str]()
        text = found.get("dmesg", "") + found.get("journal", "")
        said = kernel(lines(text))
        _codes(said, told, remedies)
        _when(ctx, found, text, told)
        if why:
            told.untold.append(why)
        else:
            _reach(found, output.ok, told)
        remedy = "; ".join(dict.fromkeys(remedies)) or "read dmesg and journalctl -k -b on the node"
        return [
            gpuinfo.conclude(question, "no GPU fault since boot", told, shown=text, remedy=remedy)
        ]


def _codes(said: Kernel, told: Told, remedies: list[str]) -> None:
    for xid in sorted({(one.code, one.bus) for one in said.xids}):
        _xid(Xid(xid[1], xid[0], 1), told, remedies)
    for switch in said.sxids:
        _sxid(switch, told, remedies)
    coded = {one.code for one in said.xids}
    for text in LOST:
        if text in said.faults and not coded & {79, 119, 120}:
            told.faults.append(text)
            remedies.append("reset the card or reboot; when it comes again, replace it")
    told.worries += [text for text in ODD if text in said.faults]


def _when(ctx: Context, found: dict[str, str], text: str, told: Told) -> None:
    """Says of each code whether it came since the last verify, where that is known."""
    since = after_boot(ctx.extra.get("last_verify", ""), found.get("time", ""))
    if since is None:
        return
    new, old = set[str](), set[str]()
    for line in text.splitlines():
        at = stamp(line)
        here = kernel(lines(line))
        keys = [f"Xid {one.code}" for one in here.xids] + [f"SXid {x.code}" for x in here.sxids]
        (old if at is not None and at <= since else new).update(keys)
    for listed in (told.faults, told.worries):
        for number, said in enumerate(listed):
            match = re.match(r"S?Xid \d+", said)
            if match and match[0] in new:
                listed[number] = f"{said} (since the last verify)"
            elif match and match[0] in old:
                listed[number] = f"{said} (before the last verify)"


def _xid(xid: Xid, told: Told, remedies: list[str]) -> None:
    """A program's own error is odd, hardware's and the driver's are wrong; so are unknown codes."""
    known = xids().get(xid.code)
    where = f" on {xid.bus}" if xid.bus else ""
    if known is None:
        told.faults.append(f"Xid {xid.code}{where}: not in our table")
        remedies.append(f"look up Xid {xid.code} in NVIDIA's catalogue")
        return
    listed = told.worries if known.kind == "symptom" else told.faults
    listed.append(f"Xid {xid.code}{where}: {known.says}")
    remedies.append(f"Xid {xid.code}: {known.fix}, and reboot the node to clear this finding")


def _sxid(one: Sxid, told: Told, remedies: list[str]) -> None:
    """An NVSwitch's message says itself whether it is fatal; one that doesn't may be."""
    what = f"SXid {one.code} on {one.device or one.bus} ({one.severity or 'severity not told'})"
    (told.worries if one.severity == "Non-fatal" else told.faults).append(what)
    remedies.append("fatal SXid: reset all GPUs and switches of the node, or reboot it")


def _reach(found: dict[str, str], ok: bool, told: Told) -> None:
    """Why the log that was read may not be all of it since boot."""
    if not ok or "end" not in found:
        told.untold.append("the kernel's log came cut")
        return
    dmesg = found.get("dmesg status", "").splitlines()
    journal = found.get("journal status", "").splitlines()
    firsts = journal[1:2] + (dmesg[1:2] if dmesg[:1] and dmesg[0].split()[0] == "0" else [])
    firsts = [first for first in firsts if first.strip()]
    if not firsts:
        told.untold.append("neither dmesg nor the journal gives the kernel's log")
    elif not any((at := _seconds(first)) is not None and at <= EARLY_S for first in firsts):
        told.worries.append(
            "the kernel's log no longer reaches back to the boot: faults may be lost"
        )


def _seconds(line: str) -> float | None:
    """The time after boot of ``[    4.100000] …``."""
    head = line.partition("]")[0].lstrip(" [")
    return float(head) if re.fullmatch(r"\d{1,9}\.\d{1,9}", head) else None


CHECK = Log()
