"""Following dependencies the way apt does, to steer it and to say why there is no answer.

apt looks at one candidate of each package only: ``libnccl-dev=2.19.3`` fails by itself where a
newer libnccl2 lies beside the one it needs. The walk finds such places and narrows the choice;
what can't be narrowed is the explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rackpin.debs.index import Relation, Stanza, Universe

ROUNDS = 500  # narrowings of one resolution; each takes a version away, so it ends anyway


@dataclass(frozen=True)
class Gap:
    """A dependency that nothing allowed fulfils."""

    stanza: Stanza
    group: list[Relation]
    path: tuple[str, ...]  # names from a root to the stanza

    def __str__(self) -> str:
        wanted = " | ".join(str(relation) for relation in self.group)
        through = f" (through {' → '.join(self.path[:-1])})" if len(self.path) > 1 else ""
        return f"{self.stanza}{through} needs {wanted}"


@dataclass
class Walk:
    """What was reached from the roots: the likely closure, and the gaps in it."""

    chosen: dict[str, Stanza] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # why a name was narrowed


def narrow(universe: Universe, roots: Sequence[str], base: Iterable[Stanza]) -> Walk:
    """Walk from the roots and take from ``universe``, in place, what would lead apt astray."""
    have = Universe(base)
    reasons: dict[str, str] = {}
    for _ in range(ROUNDS):
        walk = Walk(reasons=reasons)
        found = _walk(universe, roots, have, walk)
        if found is None:
            break
        stanza, relation = found
        kept = [s for s in universe.by_name[relation.name] if s.matched_by(relation)]
        universe.limit(relation.name, kept)
        reasons[relation.name] = f"{stanza.name} {stanza.version} needs {relation}"
    return walk


def _walk(
    universe: Universe, roots: Sequence[str], have: Universe, walk: Walk
) -> tuple[Stanza, Relation] | None:
    """Fill ``walk``; returns at once when a candidate has to make way for an older one."""
    queue: list[tuple[Stanza, tuple[str, ...]]] = [
        (stanza, (name,)) for name in roots if (stanza := universe.best(name))
    ]
    while queue:
        stanza, path = queue.pop(0)
        if stanza.name in walk.chosen:
            continue
        walk.chosen[stanza.name] = stanza
        for group in stanza.depends:
            if any(have.matching(relation) for relation in group):
                continue
            step = _step(universe, group, walk)
            if step is None:
                walk.gaps.append(Gap(stanza, group, path))
            elif isinstance(step, Relation):
                return stanza, step
            else:
                queue.append((step, (*path, step.name)))
    return None


def _step(universe: Universe, group: list[Relation], walk: Walk) -> Stanza | Relation | None:
    """The stanza to go on with, the relation to narrow by, or None when nothing does."""
    later: Relation | None = None
    for relation in group:
        fitting = universe.matching(relation)
        for stanza in fitting:
            if stanza.name in walk.chosen or stanza is universe.best(stanza.name):
                return stanza
        if fitting and later is None and any(s.name == relation.name for s in fitting):
            later = relation
    return later
