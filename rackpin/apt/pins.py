"""Pins: the stanzas that make them, and whether apt really does what they say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rackpin.inventory_parts import AptPin, AptRepository
from rackpin.parse.apt_policy import Policy
from rackpin.parse.apt_preferences import PARTS, Pin, in_order, read_by_apt
from rackpin.parse.apt_simulate import Step, moved
from rackpin.parse.apt_sources import same_uri

# Read before the others of preferences.d: of the stanzas that match a version the first counts.
FILE = f"{PARTS}00-rackpin.pref"
# Above what a site's own pins use; above 1000 apt also goes back to an older version.
PRIORITY = 30000
FLAVOURS = "(-open|-server|-server-open)?"


def rivals(pins: Iterable[AptPin]) -> list[str]:
    """Names and globs of the same packages in other driver branches and flavours, sorted.

    ``libnvidia-gl-535`` at 535.129.03 makes ``libnvidia-gl-550``, ``libnvidia-gl-535-server`` and
    a plain ``libnvidia-gl`` its rivals: whichever comes in, the pinned one has to go (F011).
    No regular expressions: seventeen of them make each apt command take 15 s more.
    """
    stems = set()
    for pin in pins:
        branch = re.match(r"(?:\d+:)?(\d{3,})\.", pin.version)
        if branch and (match := re.fullmatch(rf"(.+)-{branch[1]}{FLAVOURS}", pin.name)):
            stems.add(match[1])
    return [name for stem in sorted(stems) for name in (stem, f"{stem}-[0-9]*")]


def unattended_patterns(pins: Iterable[AptPin], guarded: Sequence[str]) -> list[str]:
    """What unattended-upgrades must leave alone: the guarded beginnings, and each other pin."""
    more = [pin.name for pin in pins if not any(re.match(g, pin.name) for g in guarded)]
    return [*guarded, *(f"{_plain(name)}$" for name in sorted(more))]


def _plain(name: str) -> str:
    return re.sub(r"([.+])", r"[\1]", name)  # without a backslash, which apt.conf would eat


def missing(pin: AptPin, policy: Policy) -> str:
    """Why a version isn't there, with those that are."""
    have = [offered.version for offered in policy.versions]
    longer = next((v for v in have if v.startswith(f"{pin.version}-")), "")
    if longer:
        return f"{pin.name}: there is no {pin.version}; write the whole version, {longer}"
    there = f"there are {', '.join(have)}" if have else "there is no version of it at all"
    return f"{pin.name}: no repository has {pin.version} ({there})"


def candidate_faults(
    pins: Iterable[AptPin],
    repositories: Iterable[AptRepository],
    policies: Mapping[str, Policy],
    site: Sequence[Pin],
) -> list[str]:
    """Each pin that apt wouldn't follow, and why. ``site``: pins of others, in apt's order."""
    uris = {repository.name: same_uri(repository.uri) for repository in repositories}
    faults = []
    for pin in pins:
        policy = policies.get(pin.name, Policy())
        entries = [offered for offered in policy.versions if offered.version == pin.version]
        places = {place for offered in entries for place in offered.places}
        offered_by = {place for place in places if not place.startswith("/")}  # dpkg's is a path
        if not entries:
            faults.append(missing(pin, policy))
        elif policy.candidate != pin.version:
            by = [other.place for other in site if other.names(pin.name) and before_ours(other)]
            because = f" because of {', '.join(by)}, which apt reads first" if by else ""
            now = policy.candidate or "nothing"
            faults.append(f"{pin.name}: apt would take {now}, not {pin.version}{because}")
        elif pin.origin and offered_by and uris[pin.origin] not in offered_by:
            where = ", ".join(sorted(offered_by))
            faults.append(f"{pin.name}: {pin.version} is only at {where}, not at {pin.origin}")
        elif pin.origin and not offered_by and policy.installed != pin.version:
            faults.append(f"{pin.name}: {pin.version} is in no repository any more")
        elif len(entries) > 1:
            where = ", ".join(sorted(places))
            faults.append(f"{pin.name}: {pin.version} is two different packages ({where})")
    return faults


def breaking(
    pins: Iterable[AptPin], policies: Mapping[str, Policy], site: Iterable[Pin]
) -> list[Pin]:
    """The site's stanzas because of which apt doesn't follow a pin that it could follow."""
    broken = [
        pin
        for pin in pins
        if (policy := policies.get(pin.name)) is not None
        and policy.candidate != pin.version
        and any(offered.version == pin.version for offered in policy.versions)
    ]
    return [
        other
        for other in site
        if before_ours(other)
        and any(other.names(pin.name) and not other.agrees(pin.version) for pin in broken)
    ]


def before_ours(pin: Pin) -> bool:
    """Whether apt reads this stanza before rackpin's."""
    return read_by_apt(pin.file) and in_order([pin.file, FILE])[0] == pin.file


def conflicts(pins: Iterable[AptPin], site: Iterable[Pin]) -> list[str]:
    """The site's own stanzas that say something else of a pinned package, each with its place."""
    wanted = {pin.name: pin.version for pin in pins}
    found = []
    for other in site:
        about = [name for name in wanted if other.names(name)]
        against = [name for name in about if not other.agrees(wanted[name])]
        if not against:
            continue
        names = against[0] if len(against) == 1 else f"{against[0]} and {len(against) - 1} more"
        said = f"{other.place} pins {names} to {other.pin!r} with priority {other.priority}"
        if not read_by_apt(other.file):
            said += "; apt does not read a file of this name"
        elif before_ours(other):
            said += "; kept, and read before rackpin's"
        else:
            said += "; kept, without effect on the pins"
        found.append(said + (f" ({other.fault})" if other.fault else ""))
    return found


def move_faults(pins: Iterable[AptPin], simulations: Mapping[str, Sequence[Step]]) -> list[str]:
    """What a simulated command would do to a pinned package."""
    wanted = {pin.name: pin.version for pin in pins}
    return [
        f"`apt-get {command}` {step}"
        for command, steps in simulations.items()
        for step in moved(steps, wanted)
    ]
