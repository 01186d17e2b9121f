"""What a node answered to the scripts of the apt stage, judged. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rackpin.apt.pins import breaking, candidate_faults, move_faults
from rackpin.apt.state import AptState
from rackpin.checks.base import sections
from rackpin.desired import Target
from rackpin.parse.apt_policy import parse_policy
from rackpin.parse.apt_preferences import Pin
from rackpin.parse.apt_simulate import parse_simulation
from rackpin.stages import apt as stage
from rackpin.stages.base import data

HINTS = {
    "NO_PUBKEY|is not signed|EXPKEYSIG|REVKEYSIG|BADSIG": "it is not signed by the pinned key: "
    "find out why before you change key_file and fingerprint",
    "Conflicting values": "another source file names the same repository with another key",
    "unexpected size|Hash Sum mismatch|Mirror sync": "the mirror is not whole: run again later, "
    "or name another in apt_repositories",
    "not valid yet": "the node's clock is behind",
    "is expired": "the mirror is no longer renewed",
    "waited .* for another program": "see what holds the lock; it was left alone",
    "Failed to fetch|did not answer|Could not": "bring the repository up, or correct its address; "
    "a source that nobody needs any more can be removed from the node",
}


def draggers(target: Target) -> list[str]:
    """Metapackages to be tried in simulation; those that are pinned themselves are no danger."""
    wanted = stage.names(target)
    names = [str(name) for name in data("dragging-metapackages.yaml")]
    return [name for name in names if wanted and name not in wanted]


def update_fault(text: str) -> str:
    """Apt's own words about what went wrong, shortened, and what to do."""
    said = [line for line in text.splitlines() if line.startswith(("E: ", "W: ", "Err:"))]
    errors = [line for line in said if line.startswith("E: ") or "GPG error" in line]
    errors = errors or said or text.splitlines()[-3:]
    some = [line for line in errors if "Some index files failed" not in line] or errors
    hint = next((hint for pattern, hint in HINTS.items() if re.search(pattern, text)), "")
    words = " | ".join(line.removeprefix("E: ").removeprefix("W: ") for line in some[:4])
    words = re.sub(r"://[^/@\s]+@", "://***@", words)  # a password of somebody's mirror
    return f"{words or 'apt-get update failed'}{f' -> {hint}' if hint else ''}"


def trial_breaking(target: Target, state: AptState, text: str) -> list[Pin]:
    """The site's stanzas that the trial showed to break a pin."""
    policy = parse_policy(sections(text).get("policy", ""))
    return breaking(stage.pins(target), policy, state.site_pins)


def trial_faults(target: Target, state: AptState, text: str) -> list[str]:
    """Why the new sources and pins can't be put in place; empty when they can."""
    parts = sections(text)
    update = next((title for title in parts if title.startswith("update = ")), "")
    if not update or "end" not in parts:
        return ["the node gave no whole answer; see its log and network"]
    if update != "update = 0":
        return [update_fault(parts[update])]
    policy = parse_policy(parts.get("policy", ""))
    wanted, repositories = stage.pins(target), stage.repositories(target)
    faults = candidate_faults(wanted, repositories, policy, state.site_pins)
    # what is installed already need not be in any repository any more
    there = {name for name, found in state.status.items() if found.installed}
    needed = {
        name: (version, sha256)
        for name, (version, sha256) in stage.hashes(target).items()
        if name not in there or state.status[name].version != version
    }
    return faults or hash_faults(needed, parts.get("hashes", ""))


def hash_faults(locked: Mapping[str, tuple[str, str]], text: str) -> list[str]:
    """Debs that a repository offers under a locked version with another content."""
    offered: dict[tuple[str, str], set[str]] = {}
    for record in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in record.splitlines())
        if "SHA256" in fields:  # what is only installed has none
            place = (fields.get("Package", ""), fields.get("Version", ""))
            offered.setdefault(place, set()).add(fields["SHA256"].strip())
    faults = []
    for name, (version, sha256) in sorted(locked.items()):
        found = offered.get((name, version))
        if not found:
            faults.append(f"{name}: no repository offers {version}, which the lock names")
        elif other := sorted(found - {sha256}):
            faults.append(
                f"{name}: {version} is offered with sha256 {other[0]}, the lock has {sha256}: "
                "refused; find out who changed it, or take a good mirror or bundle"
            )
    return faults


def not_held(name: str, state: AptState, held: Sequence[str]) -> bool:
    return name in state.status and name not in held


def look_faults(target: Target, state: AptState, text: str) -> list[str]:
    """Why the pins in place don't do what they should."""
    parts = sections(text)
    if not {"policy", "held", "end"} <= parts.keys():
        return ["the node gave no whole answer about its pins"]
    wanted, repositories = stage.pins(target), stage.repositories(target)
    faults = candidate_faults(wanted, repositories, parse_policy(parts["policy"]), state.site_pins)
    held = parts["held"].split()
    faults += [f"{pin.name} is not held" for pin in wanted if not_held(pin.name, state, held)]
    steps = {}
    for title, said in parts.items():
        command, found, code = title.partition(" = ")
        if not found:
            continue
        steps[command] = parse_simulation(said)
        if command == "dist-upgrade" and code != "0":
            faults.append(f"`apt-get -s dist-upgrade` fails: {' '.join(said.split())}")
    if "dist-upgrade" not in steps:
        faults.append("`apt-get -s dist-upgrade` gave no answer")
    return faults + move_faults(wanted, steps)
