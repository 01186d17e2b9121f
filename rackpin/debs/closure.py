"""From what is wanted to every deb that it takes: ``resolve``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rackpin.debs import proof
from rackpin.debs.apt import Apt, AptFailed
from rackpin.debs.base import Base, as_installed, status_text
from rackpin.debs.explain import explain, missing
from rackpin.debs.index import Stanza, Universe
from rackpin.debs.model import Closure, Deb, DebError, Family, Refused, Wanted
from rackpin.debs.repository import Index
from rackpin.debs.walk import Walk, narrow


@dataclass
class Task:
    """One resolution: what is offered, what is asked for, and what limits the choice."""

    indices: Sequence[Index]
    wanted: Sequence[Wanted]
    families: Sequence[Family]
    keep: dict[str, Deb] = field(default_factory=dict)

    @property
    def roots(self) -> list[str]:
        return sorted({item.name for item in self.wanted})

    def why_not(self, stanza: Stanza) -> str:
        """Why a stanza must not be chosen, or an empty text."""
        for family in self.families:
            if family.has(stanza.name):
                if not family.fits(stanza.version):
                    return f"family {family.name} is pinned at {family.version}"
                if not family.allows(stanza.repository):
                    return f"family {family.name} comes from {', '.join(family.repositories)}"
            elif family.forbids(stanza.name):
                return f"family {family.name} forbids it"
        for item in self.wanted:
            if item.name == stanza.name:
                if item.version and item.version != stanza.version:
                    return f"pinned at {item.version}"
                if not item.allows(stanza.repository):
                    return f"pinned to {', '.join(item.repositories)}"
        return ""

    @cached_property
    def whole(self) -> Universe:
        """Everything there is."""
        demoted = (i for i in self.indices if i.release.fields.get("NotAutomatic") == "yes")
        return Universe(
            (stanza for index in self.indices for stanza in index.stanzas),
            frozenset(index.repository.name for index in demoted),
        )

    @cached_property
    def _allowed(self) -> Universe:
        universe = self.whole.copy()
        wanted = {item.name for item in self.wanted}
        for name, stanzas in self.whole.by_name.items():
            if name in wanted or any(f.has(name) or f.forbids(name) for f in self.families):
                universe.limit(name, [s for s in stanzas if not self.why_not(s)])
        return universe

    def universe(self, keep: Iterable[str]) -> Universe:
        """What may be chosen, with the names in ``keep`` at the version they were locked at."""
        universe = self._allowed.copy()
        for name in keep:
            if before := [s for s in universe.by_name.get(name, []) if same(s, self.keep[name])]:
                universe.limit(name, before)
        return universe


def same(stanza: Stanza, deb: Deb) -> bool:
    return (stanza.version, stanza.repository) == (deb.version, deb.repository)


def resolve(
    indices: Sequence[Index],
    wanted: Sequence[Wanted],
    families: Sequence[Family] = (),
    base: Base | None = None,
    keep: Iterable[Deb] = (),
    label: str = "debs",
) -> Closure:
    """The closure of ``wanted`` without what ``base`` has. Same inputs, same answer.

    ``keep`` is the lock before: each of its versions stays where nothing asked for now speaks
    against it. ``label`` starts the error (``stack x, debian-12``). Raises :class:`DebError`
    with everything that is wrong, each package with what was wanted and what was found.
    """
    task = Task(indices, wanted, families, {deb.name: deb for deb in keep})
    if lines := missing(task.whole, wanted, families):
        raise DebError(_text(label, lines))
    try:
        with tempfile.TemporaryDirectory(prefix="rackpin-apt-") as temp:
            apt = Apt(Path(temp) / "apt", indices)
            return _resolve(apt, task, base or Base(), label)
    except OSError as error:  # apt's own copy of the indices takes some 200 MB
        raise DebError(f"{label}: {error.filename}: {error.strerror}; make room there") from None


def _resolve(apt: Apt, task: Task, base: Base, label: str) -> Closure:
    installed = _installed(apt, task, base, label)
    held = set(task.keep)
    while True:
        universe = task.universe(sorted(held))
        walk = narrow(universe, task.roots, installed)
        apt.offer(universe)
        names = [f"{name}={_version(universe, name)}" for name in task.roots]
        try:
            chosen = apt.solve(names, status_text(installed), universe)
            break
        except AptFailed as error:
            if not (freed := _free(walk, held, installed)):
                told = explain(walk, task.whole, task.why_not, installed)
                raise DebError(_text(label, told or str(error).splitlines())) from None
            held -= freed
    wrong = proof.problems(chosen, installed) + proof.family_problems(chosen, task.families)
    absent = sorted(set(task.roots) - {stanza.name for stanza in chosen})
    wrong += [f"{name}: apt left it out" for name in absent]
    if wrong:
        raise DebError(_text(label, wrong))
    debs = tuple(sorted(stanza.deb() for stanza in chosen))
    _same_content(debs, task.whole)
    moved = {name for name in task.keep if name not in held} & {deb.name for deb in debs}
    return Closure(debs, tuple(sorted(moved)))


def _installed(apt: Apt, task: Task, base: Base, label: str) -> list[Stanza]:
    """The base as stanzas of dpkg's status file."""
    if base.status is not None:
        return base.installed()
    universe = task.universe(())
    roots = base.wanted(universe)
    if not roots:
        return []  # no OS repository among them: everything is counted
    walk = narrow(universe, roots, ())
    apt.offer(universe)
    try:
        return [as_installed(stanza) for stanza in apt.solve(roots, "", universe)]
    except AptFailed as error:
        gaps = [str(gap) for gap in walk.gaps] or str(error).splitlines()
        raise DebError(
            _text(f"{label}: base", [*gaps, "name all repositories of the OS, or give a status"])
        ) from None


def _version(universe: Universe, name: str) -> str:
    best = universe.best(name)
    assert best is not None  # missing() has seen to it
    return best.version


def _free(walk: Walk, held: set[str], installed: Sequence[Stanza]) -> set[str]:
    """Names whose old version stands in the way: those a gap or conflict is about, else all."""
    if not held:
        return set()
    named = {name for gap in walk.gaps for name in (gap.stanza.name, *(r.name for r in gap.group))}
    for line in proof.problems(list(walk.chosen.values()), installed):
        named |= {word.strip("|,:()") for word in line.split()}
    return (named & held) or set(held)


def _same_content(debs: Sequence[Deb], whole: Universe) -> None:
    """Refuse one name, version and architecture that stands for two contents."""
    for deb in debs:
        for stanza in whole.by_name[deb.name]:
            if (stanza.version, stanza.fields.get("Architecture")) == (
                deb.version, deb.architecture,
            ) and stanza.deb().sha256 != deb.sha256:  # fmt: skip
                raise Refused(
                    f"{deb.name} {deb.version}: {deb.repository} and {stanza.repository} have "
                    f"different files under this version (sha256 {deb.sha256} and "
                    f"{stanza.deb().sha256}); name one repository for it"
                )


def _text(label: str, lines: Iterable[str]) -> str:
    listed = list(lines)
    return f"{label}: the packages can't be had as pinned:\n  " + "\n  ".join(listed)
