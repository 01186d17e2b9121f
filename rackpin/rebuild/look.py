"""What a rebuild asks: the node itself, who could be its partner, and who knows its address."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin.checks import Context, gpuinfo
from rackpin.checks.base import NO_ANSWER, Command, Output
from rackpin.fleet import mark as marks
from rackpin.fleet.identity import Identity, IdentityError, parse
from rackpin.fleet.mark import Mark
from rackpin.inventory import Fleet
from rackpin.stack.lock import Lock
from rackpin.stages.base import HOSTS_BEGIN
from rackpin.verify.idle import HOLDERS, busy
from rackpin.verify.run import Ways

SERIALS = Command(
    "serials",
    "nvidia-smi --query-gpu=pci.bus_id,serial --format=csv,noheader",
    deadline_s=30,  # eight cards without persistence are initialised one after the other
)
HOSTS = Command("hosts", "cat /etc/hosts", deadline_s=10)
STOP_S = 600.0  # engines may take their own stop timeouts
UNITS = re.compile(r"(ray-\w+|vllm@[\w-]+)")


class LookError(Exception):
    """The node could not be looked at; the text says why and what to do."""


@dataclass(frozen=True)
class Seen:
    """The node as it is now."""

    identity: Identity
    mark: Mark | None
    busy: list[str] = field(default_factory=list)  # what uses its cards, or may

    @property
    def units(self) -> list[str]:
        """Ray and engines that run; engines first, as they are stopped."""
        return sorted((b for b in self.busy if UNITS.fullmatch(b)), reverse=True)


def look(ways: Ways, name: str) -> Seen:
    """One remote execution. Raises :class:`LookError`."""
    answers = ways.ask({name: [marks.READ, marks.IDENTITY, HOLDERS, SERIALS]}).get(name, {})
    told = answers.get(marks.IDENTITY.name, NO_ANSWER)
    if name in ways.unreachable:
        raise LookError(f"{name} can't be reached: {ways.unreachable[name]}; power and BMC next")
    if not told.ok:
        said = told.stderr.strip() or ("past its deadline" if told.timed_out else "no answer")
        raise LookError(f"{name}: what it is made of was not told: {said}")
    try:
        found = parse(told.stdout.splitlines())
    except IdentityError as error:
        raise LookError(f"{name}: {error}") from error
    mark = answers.get(marks.READ.name, NO_ANSWER)
    return Seen(
        found.with_serials(serials(answers.get(SERIALS.name, NO_ANSWER))),
        marks.read(mark.stdout) if mark.ok else None,
        busy(answers.get(HOLDERS.name, NO_ANSWER)),
    )


def serials(output: Output) -> dict[str, str]:
    """Serial number by slot as /sys names it; none without a driver or where a card has none."""
    found = {}
    for line in output.stdout.splitlines() if output.ok else ():
        slot, _, serial = (word.strip() for word in line.partition(","))
        if re.fullmatch(r"[0-9]{6,}", serial):  # "[N/A]" or "0" on boards without
            found[slot.lower()[-12:]] = serial  # nvidia-smi writes the domain with eight digits
    return found


def has_cards(fleet: Fleet, lock: Lock, name: str) -> bool:
    return gpuinfo.has_cards(Context(fleet, fleet.nodes[name], lock))


def partner(fleet: Fleet, lock: Lock, name: str, ways: Ways) -> tuple[str, list[str]]:
    """A ready node of the same SKU that nobody uses, and why each other one is none."""
    sku = fleet.nodes[name].sku
    others = [n.name for n in fleet.nodes.values() if n.sku == sku and n.name != name]
    why = [f"{n} is quarantined" for n in others if n in fleet.kept_out]
    asked = [n for n in others if n not in fleet.kept_out]
    wanted = [marks.READ, marks.IDENTITY, HOLDERS]
    answers = ways.ask({one: wanted for one in asked}) if asked else {}
    for one in asked:
        if text := _no_partner(answers.get(one, {}), lock):
            why.append(f"{one} {text}")
        else:
            return one, why
    return "", why or [f"no other node is a {sku}"]


def _no_partner(answers: dict[str, Output], lock: Lock) -> str:
    told = answers.get(marks.IDENTITY.name, NO_ANSWER)
    if not told.ok:
        return "does not answer"
    if used := busy(answers.get(HOLDERS.name, NO_ANSWER)):
        return f"is in use ({', '.join(used[:3])})"
    mark = answers.get(marks.READ.name, NO_ANSWER)
    kept = marks.read(mark.stdout) if mark.ok else None
    try:
        why = marks.stale(kept, lock.digest, parse(told.stdout.splitlines()))
    except IdentityError as error:
        return f"can't be told: {error}"
    if why or kept is None or kept.state == "not_ready":
        return f"is not known to be good ({'; '.join(why) or 'its last verify failed'})"
    return ""


@dataclass(frozen=True)
class Known:
    """Other nodes that have another address for this one, and those that did not say."""

    other: dict[str, str] = field(default_factory=dict)  # node → the address it has
    unseen: list[str] = field(default_factory=list)


def who_knows(fleet: Fleet, name: str, ways: Ways) -> Known:
    """Ask every other node which address it has for this one in rackpin's part of /etc/hosts."""
    address = fleet.nodes[name].address
    others = [one for one in fleet.nodes if one != name]
    answers = ways.ask({one: [HOSTS] for one in others}) if others else {}
    known = Known({}, [])
    for one in others:
        output = answers.get(one, {}).get(HOSTS.name, NO_ANSWER)
        if not output.ok:
            known.unseen.append(one)
        elif HOSTS_BEGIN in output.stdout:  # else no run of rackpin has been there
            found = addresses(output.stdout, name)
            if found != [address]:
                known.other[one] = ", ".join(found) or "none"
    return known


def addresses(hosts: str, name: str) -> list[str]:
    rows: Sequence[list[str]] = [line.split("#")[0].split() for line in hosts.splitlines()]
    return list(dict.fromkeys(row[0] for row in rows if name in row[1:]))
