"""Holding the facts of a stack against the rules. Pure: no file, no network, no clock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from itertools import product
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from rackpin.compat.facts import Facts
from rackpin.compat.rules import Condition, Ending, Level, Rule, Table, Topic
from rackpin.stack.hostpins import EolPin
from rackpin.stack.pins import SITE_PACKAGES

SOON = timedelta(days=180)
LEVELS: tuple[Level, ...] = ("error", "warning", "hint")
_PLACE = re.compile(r"\{([A-Za-z0-9_.-]+)\}")


@dataclass(frozen=True)
class Note:
    """One thing to say about a stack. ``items`` are the values that led to it."""

    level: Level
    rule: str
    summary: str
    remedy: str
    source: str
    items: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def fill(text: str, values: dict[str, str]) -> str:
    """``{item}`` replaced by its value; an item without one by ``no item``."""

    def value(match: re.Match[str]) -> str:
        if match[0] == SITE_PACKAGES:  # no item of ours: pins write it in values of variables
            return match[0]
        return values.get(match[1], f"no {match[1]}")

    return _PLACE.sub(value, text)


def _fits_one(condition: str, value: str | None) -> bool:
    if condition in ("any", "none"):
        return (value is not None) == (condition == "any")
    if value is None:
        return False
    if condition[:1] not in "<>=!~":
        return condition == value
    try:
        return SpecifierSet(condition).contains(Version(value), prereleases=True)
    except InvalidVersion:
        return False
    except InvalidSpecifier:
        raise ValueError(f"{condition!r} is no version specifier") from None


def fits(condition: Condition, value: str | None, values: dict[str, str]) -> bool:
    """Whether a value (None: absent) is as a condition says; any entry of a list will do."""
    parts = [condition] if isinstance(condition, str) else condition
    return any(_fits_one(fill(part, values), value) for part in parts)


def _cases(items: Iterable[str], facts: Facts) -> Iterator[dict[str, str | None]]:
    """Every combination of values of some items; an absent item is None."""
    names = list(items)
    nothing: list[str | None] = [None]
    every = [list(facts[name]) if facts.get(name) else nothing for name in names]
    for chosen in product(*every):
        yield dict(zip(names, chosen, strict=True))


def _firsts(facts: Facts) -> dict[str, str]:
    return {item: ", ".join(values) for item, values in facts.items()}


def _judge(rule: Rule, facts: Facts, names: dict[str, str]) -> Iterator[Note]:
    for case in _cases(rule.when, facts):
        values = {**names, **{item: value for item, value in case.items() if value is not None}}
        if not all(fits(wish, case[item], values) for item, wish in rule.when.items()):
            continue
        wrong = dict(case) if not rule.need else {}
        for item, wish in rule.need.items():
            found: list[str | None] = list(facts.get(item) or [])
            # "none" is a wish about absence; else an absent item is judged by `absent` alone
            if not found and (rule.absent == "fail" or wish == "none"):
                found = [None]
            if bad := [value for value in found if not fits(wish, value, values)]:
                wrong[item] = ", ".join(value or "absent" for value in bad)
        if wrong:
            shown = {**case, **wrong}
            items = {item: value for item, value in shown.items() if value is not None}
            needs = "; ".join(f"{i} {_wish(w, values)}" for i, w in rule.need.items())
            texts = {**values, **items, "needs": needs}
            yield Note(
                level=rule.level,
                rule=rule.id,
                summary=fill(rule.say, texts),
                remedy=fill(rule.remedy, texts),
                source=rule.source,
                items=items,
            )


def _wish(condition: Condition, values: dict[str, str]) -> str:
    parts = [condition] if isinstance(condition, str) else condition
    return " or ".join(fill(part, values) for part in parts)


def _judge_table(table: Table, facts: Facts, names: dict[str, str]) -> Iterator[Note]:
    rules = table.rules()
    for rule in rules:
        yield from _judge(rule, facts, names)
    if table.unknown is None:
        return
    for case in _cases(table.when, facts):
        if None in case.values():
            continue
        values = {**names, **{item: str(value) for item, value in case.items()}}
        if not any(all(fits(w, case[i], values) for i, w in rule.when.items()) for rule in rules):
            yield Note(
                level=table.unknown.level,
                rule=f"{table.id}.unknown",
                summary=fill(table.unknown.say, values),
                remedy=fill(table.unknown.remedy, values),
                source=table.source,
                items={item: str(value) for item, value in case.items()},
            )


def _judge_end(name: str, end: EolPin, what: str, remedy: str, today: date) -> Iterator[Note]:
    level: Level = "warning" if end.date <= today else "hint"
    if end.date > today + SOON:
        return
    verb = "ended" if end.date <= today else "ends"
    yield Note(
        level=level,
        rule="eol.reached" if level == "warning" else "eol.soon",
        summary=f"{what} {verb} on {end.date}: from then on nobody upstream mends it",
        remedy=remedy,
        source=end.source,
        items={"eol": name, "date": str(end.date)},
    )


def _ends(
    endings: list[Ending], own: dict[str, EolPin], facts: Facts, today: date
) -> Iterator[Note]:
    """Ends of life: the pins' own dates count first, what they don't name comes from the table."""
    names = _firsts(facts)
    reached = [
        ending
        for ending in endings
        if any(
            all(fits(wish, case[item], names) for item, wish in ending.when.items())
            for case in _cases(ending.when, facts)
        )
    ]
    table = {ending.name: ending for ending in reached}
    for name in sorted({*own, *table}):
        end = own.get(name) or table[name]
        known = table.get(name)
        remedy = known.next if known else "see its source for what follows, and plan the change"
        yield from _judge_end(name, end, f"support of {name}", remedy, today)
        if known and name in own and own[name].date != known.date:
            yield Note(
                level="warning",
                rule="eol.differs",
                summary=f"eol.{name}: pins.yaml says {own[name].date}, the table {known.date}",
                remedy="look at both sources and correct the one that is wrong",
                source=known.source,
                items={"eol": name, "date": str(own[name].date)},
            )


def judge(
    topics: Iterable[Topic], facts: Facts, today: date, own_eol: dict[str, EolPin] | None = None
) -> list[Note]:
    """Everything that the rules have to say of these facts, errors first."""
    names = _firsts(facts)
    notes: list[Note] = []
    endings: list[Ending] = []
    for topic in topics:
        for rule in topic.rules:
            notes += _judge(rule, facts, names)
        for table in topic.tables:
            notes += _judge_table(table, facts, names)
        endings += topic.eol
    notes += _ends(endings, own_eol or {}, facts, today)
    return sorted(notes, key=lambda note: LEVELS.index(note.level))
