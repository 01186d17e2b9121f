"""Whether somebody uses a node's cards: then nothing may be measured on them."""

from __future__ import annotations

from rackpin.checks.base import Command, Output

# Programs that keep a card open without using it.
DAEMONS = frozenset(
    # the kernel keeps 15 characters of a name
    {"nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter"}
)

HOLDERS = Command(
    "holders",
    "systemctl list-units --plain --no-legend --state=active,activating,deactivating,reloading "
    "'ray-*.service' 'vllm@*.service' | while read -r u _; do echo \"unit $u\"; done\n"
    'set -- /dev/nvidia[0-9]*; [ ! -e "$1" ] || '
    "timeout 10 find /proc/[0-9]*/fd -lname '/dev/nvidia[0-9]*' 2>/dev/null | cut -d / -f 3 | "
    'sort -u | while read -r p; do echo "process $(cat "/proc/$p/comm" 2>/dev/null) $p"; done\n'
    "echo end",
    deadline_s=15,
)


def busy(output: Output) -> list[str]:
    """What runs there and may use the cards; not told is taken for used."""
    lines = output.stdout.split("\n")
    if not output.ok or "end" not in lines:
        return ["whether anything uses them was not told"]
    found = []
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "unit" and rest:
            found.append(rest.removesuffix(".service"))
        elif kind == "process" and (name := rest.split(" ")[0]) and name not in DAEMONS:
            found.append(rest)
    return found
