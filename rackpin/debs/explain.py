"""Why there is no closure: package, wanted, found, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rackpin.debs import proof
from rackpin.debs.index import Stanza, Universe
from rackpin.debs.model import Family, Wanted
from rackpin.debs.walk import Walk

SHOWN = 6  # versions named for one package


def found(stanzas: Iterable[Stanza]) -> str:
    """``535.183.01-1 in nvidia and site, …``: newest first, or ``nothing of that name``."""
    ordered = sorted(stanzas, key=lambda stanza: stanza.sort_key, reverse=True)
    places: dict[str, dict[str, None]] = {}
    for stanza in ordered:
        places.setdefault(stanza.version, {})[stanza.repository] = None
    words = [f"{version} in {' and '.join(where)}" for version, where in places.items()]
    if len(words) > SHOWN:
        words[SHOWN:] = [f"{len(words) - SHOWN} older"]
    return ", ".join(words) or "nothing of that name"


def missing(whole: Universe, wanted: Sequence[Wanted], families: Sequence[Family]) -> list[str]:
    """What is asked for by name and not there at all, before anything is resolved."""
    lines = []
    for item in wanted:
        have = whole.by_name.get(item.name, [])
        family = next((f for f in families if f.has(item.name)), None)
        forbidden = next((f for f in families if f.forbids(item.name)), None)
        if forbidden:
            lines.append(f"{item.name}: family {forbidden.name} ({forbidden.version}) forbids it")
            continue
        fitting = [
            stanza
            for stanza in have
            if item.version in (None, stanza.version)
            and item.allows(stanza.repository)
            and (
                family is None or (family.fits(stanza.version) and family.allows(stanza.repository))
            )
        ]
        if not fitting:
            version = item.version or (family.version if family else "any version")
            member = f" as all of family {family.name}" if family else ""
            elsewhere = any(not item.allows(stanza.repository) for stanza in have)
            place = f" from {' or '.join(item.repositories)}" if elsewhere else ""
            others = sorted({stanza.name for stanza in whole.by_virtual.get(item.name, [])})
            hint = f", but {', '.join(others[:SHOWN])} provides it: name that" if others else ""
            lines.append(f"{item.name}: wanted {version}{place}{member}; found {found(have)}{hint}")
    for family in families:
        lines += _two_vendors(whole, family)
    return lines


def _two_vendors(whole: Universe, family: Family) -> list[str]:
    """One upstream version, packed by two vendors, must not be mixed."""
    if family.repositories:
        return []
    for name, stanzas in sorted(whole.by_name.items()):
        if family.has(name):
            fitting = [stanza for stanza in stanzas if family.fits(stanza.version)]
            if len({stanza.version for stanza in fitting}) > 1:
                return [
                    f"family {family.name}: {name} {family.version} is offered as "
                    f"{found(fitting)}; write the whole version, or name the repository that "
                    "counts in the family's repositories"
                ]
    return []


def explain(
    walk: Walk,
    whole: Universe,
    why_not: Callable[[Stanza], str],
    installed: Sequence[Stanza],
) -> list[str]:
    """One line for each dependency that can't be met, or each conflict."""
    lines = []
    have = Universe(installed)
    for gap in walk.gaps:
        told = []
        for relation in gap.group:
            stanzas = whole.by_name.get(relation.name, []) or whole.matching(relation)
            stanzas = [*stanzas, *have.by_name.get(relation.name, [])]
            reasons = {why for stanza in stanzas if (why := why_not(stanza))}
            if relation.name in walk.reasons:
                reasons.add(walk.reasons[relation.name])
            because = f" ({'; '.join(sorted(reasons))})" if reasons else ""
            told.append(f"{relation.name}: found {found(stanzas)}{because}")
        lines.append(f"{gap}; {'; '.join(told)}")
    return sorted(lines) or proof.problems(list(walk.chosen.values()), installed)
