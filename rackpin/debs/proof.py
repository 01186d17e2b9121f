"""The solver's answer, judged by the rules themselves: nothing missing, nothing that conflicts."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.debs.index import Stanza, Universe
from rackpin.debs.model import Family


def problems(chosen: Sequence[Stanza], base: Sequence[Stanza]) -> list[str]:
    """What is wrong with installing ``chosen`` on ``base``, one line each; empty when sound."""
    names = {stanza.name for stanza in chosen}
    everything = [*chosen, *(stanza for stanza in base if stanza.name not in names)]
    universe = Universe(everything)
    lines = []
    for stanza in chosen:
        for group in stanza.depends:
            if not any(universe.matching(relation) for relation in group):
                wanted = " | ".join(str(relation) for relation in group)
                lines.append(f"{stanza}: needs {wanted}, which nothing chosen fulfils")
    for stanza in everything:
        for relation in stanza.excludes:
            for other in universe.matching(relation):
                # Its own Provides don't count, and of two base packages dpkg has judged.
                if other is not stanza and (stanza.name in names or other.name in names):
                    lines.append(f"{stanza}: conflicts with {other} by {relation}")
    return sorted(set(lines))


def family_problems(chosen: Sequence[Stanza], families: Sequence[Family]) -> list[str]:
    """Members at another version or from mixed repositories, and what must never come."""
    lines = []
    for family in families:
        members = [stanza for stanza in chosen if family.has(stanza.name)]
        lines += [
            f"{stanza}: family {family.name} is pinned at {family.version}"
            for stanza in members
            if not family.fits(stanza.version)
        ]
        lines += [
            f"{stanza}: family {family.name} forbids it"
            for stanza in chosen
            if family.forbids(stanza.name)
        ]
        origins = sorted({stanza.repository for stanza in members})
        if len(origins) > 1 and not family.repositories:
            lines.append(
                f"family {family.name}: members from {', '.join(origins)}; name the one that "
                "counts in its repositories, or all if they may mix"
            )
    return lines
