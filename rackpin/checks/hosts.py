"""Names must lead to the addresses that the nodes use among themselves (F104-F106)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from rackpin.checks.base import NO_ANSWER, NOTHING, Command, Context, Outputs, Question, unseen
from rackpin.findings import Finding, Level

EXPECTED = "the node's own name and all other nodes' names give their inventory addresses"


# Each name's first line has its canonical name too. One program asks for all, and only names that
# lead elsewhere are told: 256 answers of each of 256 nodes were most of what verify cost. Where a
# name isn't known at all, each is asked and told.
_ASK = """\
h=$(uname -n); echo "## self $h"; getent ahostsv4 "$h"
set -- {names}
if all=$(getent ahostsv4 "$@") && [ "$(echo "$all" | awk 'NF > 2' | wc -l)" -eq $# ]; then
  echo "$all" | awk -v names="$*" -v wanted='{addresses}' '
    BEGIN {{ split(names, name, " "); split(wanted, address, " ") }}
    NF > 2 {{ n++ }}
    {{ told[n] = told[n] $0 "\\n"; if ($1 != address[n]) other[n] = 1 }}
    END {{
      for (i = 1; i <= n; i++) if (i in other) printf "## %s\\n%s", name[i], told[i]; else right++
      print "## right " right + 0
    }}'
else
  for n; do echo "## $n"; getent ahostsv4 "$n"; done
fi
echo '## end'"""


def command(ctx: Context) -> Command:
    nodes = ctx.fleet.nodes
    shell = _ASK.format(
        names=" ".join(nodes), addresses=" ".join(node.address for node in nodes.values())
    )
    return Command("hosts", shell, deadline_s=15)


class Hosts:
    id = "hosts.self"
    title = "Node names and their addresses"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command(ctx)]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        asked, output = command(ctx), outputs.get("hosts", NO_ANSWER)
        question = Question(ctx, self.id, asked, output, EXPECTED, "inventory: address")
        why = unseen(asked, output)
        own, names, right, whole = parse(output.stdout)
        if why is None and "getent: not found" in output.stderr:
            why = "getent is missing"
        nodes = ctx.fleet.nodes
        if why is None and not (whole and len(names) + right == len(nodes)):
            why = "the answer is not whole"
        if why is not None or own is None:
            return [question.not_run(why or "the host says no name of its own")]
        as_wished = {name: [node.address] for name, node in nodes.items()} if right else {}
        faults, worries = judge_names(ctx, own, as_wished | names)
        good = f"{own[0]} is {ctx.node.address}, {len(ctx.fleet.nodes) - 1} other names are right"
        remedy = (
            "run the deploy: it owns these lines of /etc/hosts, and drops 127.0.1.1 for the name"
        )
        return [question.verdict(good, faults, worries, remedy=remedy)]


def parse(text: str) -> tuple[tuple[str, list[str]] | None, dict[str, list[str]], int, bool]:
    """Own name and its addresses; of nodes that were told, by name; how many others are right.

    At last whether the end was seen.
    """
    own: tuple[str, list[str]] | None = None
    names: dict[str, list[str]] = {}
    current: list[str] = []
    right, whole = 0, False
    for line in text.splitlines():
        words = line.split()
        if line.startswith("## self "):
            current = []
            own = (words[2], current) if len(words) == 3 else None
        elif line.startswith("## right ") and len(words) == 3 and words[2].isdigit():
            right = int(words[2])
        elif line == "## end":
            whole = True
        elif line.startswith("## ") and len(words) == 2:
            current = names.setdefault(words[1], [])
        elif words and _is_address(words[0]) and words[0] not in current:
            current.append(words[0])
    return own, names, right, whole


def judge_names(
    ctx: Context, own: tuple[str, list[str]], names: dict[str, list[str]]
) -> tuple[list[str], list[str]]:
    """Faults and worries: own name, the name in the inventory, the others."""
    hostname, addresses = own
    faults, worries = [], []
    for label, found in ((hostname, addresses), (ctx.node.name, names.get(ctx.node.name, []))):
        loopback = [a for a in found if ipaddress.ip_address(a).is_loopback]
        if not found:
            faults.append(f"own name {label} has no address")
        elif loopback:
            faults.append(f"own name {label} is {loopback[0]}: Ray would announce loopback")
        elif found != [ctx.node.address]:
            faults.append(f"own name {label} is {', '.join(found)}, not {ctx.node.address}")
    if hostname.split(".")[0] != ctx.node.name.split(".")[0]:
        worries.append(f"the host calls itself {hostname}, the inventory {ctx.node.name}")
    for name, node in ctx.fleet.nodes.items():
        if name != ctx.node.name and names.get(name) != [node.address]:
            has = ", ".join(names.get(name, [])) or "nothing"
            faults.append(f"{name} is {has}, not {node.address}")
    return list(dict.fromkeys(faults)), worries


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


CHECK = Hosts()
