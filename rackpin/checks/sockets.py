"""Listening TCP sockets with the unit of their owner, as ``ss`` and ``/proc`` have them."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from rackpin.checks.base import NO_ANSWER, Command, Outputs, one_line, sections, unseen
from rackpin.checks.procinfo import SERVING_UNITS
from rackpin.stack import share

OWNERS = re.compile(rf"/({SERVING_UNITS}|{share.UNIT.removesuffix('.service')})\.service(/|$)")
# Processes come and go while we look (our own probe starts some): what is in both lists was
# there in between as well, when the owners' units were read. Only that is judged.
COMMAND = Command(
    "listeners",
    """\
first=$(ss -H -ltnp) || exit $?
echo '## first'; echo "$first"
cd /proc || exit 71
echo '## cgroup'
for p in $(echo "$first" | grep -o 'pid=[0-9]*' | cut -d= -f2 | sort -un); do
  grep -sH '' $p/cgroup
done
echo '## second'; ss -H -ltnp && echo '## end'
""",
)


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket; ``pids`` is empty when the kernel itself or a hidden one owns it."""

    address: str
    port: int
    pids: tuple[int, ...] = ()
    program: str = ""
    units: frozenset[str] = frozenset()  # of ours, with .service; empty for a stranger

    @property
    def loopback(self) -> bool:
        return is_loopback(self.address)

    def __str__(self) -> str:
        owner = f"{self.program}[{self.pids[0]}]" if self.pids else "no process (the kernel's own)"
        return f"{self.address}:{self.port} by {owner}"


def is_loopback(host: str) -> bool:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"  # "*" is every address
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def read(outputs: Outputs) -> tuple[list[Listener] | None, str]:
    """The listeners that stayed while we looked, or None and why they are not known."""
    output = outputs.get(COMMAND.name, NO_ANSWER)
    if why := unseen(COMMAND, output):
        return None, why
    parts = sections(output.stdout)
    if not output.ok or not {"first", "cgroup", "second", "end"} <= parts.keys():
        text = one_line(output.stderr) or one_line(output.stdout, 120)
        return None, f"ss gave no whole answer (exit status {output.rc}): {text}"
    units = parse_units(parts["cgroup"])
    first, odd = parse(parts["first"], units)
    second, also_odd = parse(parts["second"], units)
    if odd or also_odd:
        return None, f"a line of ss is not readable: {one_line((odd + also_odd)[0], 120)}"
    if not any(listener.pids for listener in first):
        return None, "ss shows no listener with its process, not even sshd's: not run as root?"
    before = set(first)
    return [listener for listener in second if listener in before], ""


def parse_units(text: str) -> dict[int, str]:
    """Unit of ours by pid, from ``PID/cgroup:…`` lines."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"(\d+)/cgroup:(.*)", line)
        unit = OWNERS.search(match[2]) if match else None
        if match and unit:
            found[int(match[1])] = f"{unit[1]}.service"
    return found


def parse(text: str, units: dict[int, str]) -> tuple[list[Listener], list[str]]:
    """Listeners from ``ss -H -ltnp``, and lines that are none."""
    found, odd = [], []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        local = re.fullmatch(r"(.+):(\d+)", words[3]) if len(words) >= 5 else None
        if words[0] != "LISTEN" or local is None:
            odd.append(line)
            continue
        address = local[1].strip("[]").partition("%")[0].strip("[]")
        owners = re.findall(r'\("([^"]*)",pid=(\d+),', line)
        pids = tuple(dict.fromkeys(int(pid) for _, pid in owners))
        mine = frozenset(units[pid] for pid in pids if pid in units)
        program = owners[0][0] if owners else ""
        found.append(Listener(address, int(local[2]), pids, program, mine))
    return found, odd
