"""DCGM's own word on the cards, where it is installed: what it watched since its start."""

from __future__ import annotations

import re

from rackpin.checks import gpuinfo
from rackpin.checks.base import Command, Context, one_line
from rackpin.checks.host import PLACE, Answer, HostCheck

HEALTH = Command(
    "gpu.dcgm",
    PLACE
    + """echo '## dcgmi'; command -v dcgmi || echo none
echo '## health'
command -v dcgmi >/dev/null && { timeout 20 dcgmi health -c 2>&1; echo "status $?"; }
echo '## end'
""",
    deadline_s=25.0,
    slow=True,
)
_OVERALL = re.compile(r"Overall Health[ :|]+(?P<word>[A-Za-z]+)")
_BAD = re.compile(r"\b(?:Warning|Failure|Fail|Error)\b")


def _health(ctx: Context, answer: Answer) -> str | None:
    told, lines = answer.told, answer.lines("health")
    if answer.lines("dcgmi") in ([], ["none"]):
        return None
    text = "\n".join(lines)
    words = [match["word"] for match in _OVERALL.finditer(text)]
    if re.search(r"watches not enabled", text, re.IGNORECASE):
        told.untold.append("DCGM watches nothing: dcgmi health -s a enables it")
    elif not words:
        why = one_line(text.replace("|", " "), 120) or "no answer"
        told.untold.append(f"dcgmi says nothing of health: {why}")
    elif words != ["Healthy"]:
        details = [one_line(line.strip("|+- "), 160) for line in lines if _BAD.search(line)]
        listed = told.worries if words == ["Warning"] else told.faults
        listed += [f"DCGM: {', '.join(words)}", *details[:6]]
    elif lines[-1] != "status 0":
        told.untold.append(f"dcgmi health ended with {lines[-1]}")
    return "DCGM: healthy"


CHECK = HostCheck(
    id="gpu.dcgm",
    title="DCGM finds the cards healthy, where it is installed",
    expected="dcgmi health -c: Overall Health Healthy",
    source="NVIDIA, DCGM user guide: health and diagnostics",
    remedy="dcgmi health -c and dcgmi diag -r 1 on the node; systemctl status nvidia-dcgm",
    parts=("dcgmi", "health"),
    look=_health,
    command=HEALTH,
    level="node",
    asks=gpuinfo.has_cards,
    may_miss=True,
)
