"""The rule files: ``rackpin/compat/*.yaml``, read whole and checked.

A **rule** says what must hold: where every item of ``when`` is as given, every item of ``need``
must be too; without ``need``, being as ``when`` says is the finding. A condition is a version
specifier (``>=12,<13``), a word or a list of words, ``any`` (present) or ``none`` (absent).
``{item}`` in a condition or a text stands for the item's value. A needed item that the stack
doesn't have is no finding, unless the rule says ``absent: fail``.

A **table** is one rule for each of its ``rows``: the conditions of the ``when`` items, then
those of the ``need`` items. ``unknown`` is said when the stack has the ``when`` items and no row
fits: what isn't known is not called good.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from rackpin.stack.hostpins import EolPin
from rackpin.stack.model import Model, StackError, explain, read_yaml

HERE = Path(__file__).resolve().parent
Level = Literal["error", "warning", "hint"]
Condition = str | list[str]
REINSTALL = "it belongs to the program; install it again"


class Rule(Model):
    """One thing that must hold."""

    id: str = Field(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")
    level: Level
    when: dict[str, Condition]
    need: dict[str, Condition] = Field(default_factory=dict)
    absent: Literal["ok", "fail"] = "ok"
    say: str = Field(min_length=10)
    remedy: str = Field(min_length=10)
    source: str = Field(min_length=8)


class Unknown(Model):
    """What to say of a version that a table has no row for."""

    level: Level
    say: str = Field(min_length=10)
    remedy: str = Field(min_length=10)


class Table(Model):
    """Many rules of one kind. A row is one condition for each ``when`` item, then ``need``."""

    id: str = Field(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")
    level: Level
    when: list[str] = Field(min_length=1)
    need: list[str] = Field(min_length=1)
    rows: list[list[Condition]] = Field(min_length=1)
    say: str = Field(min_length=10)
    remedy: str = Field(min_length=10)
    source: str = Field(min_length=8)
    unknown: Unknown | None = None

    @model_validator(mode="after")
    def _regular(self) -> Table:
        width = len(self.when) + len(self.need)
        for number, row in enumerate(self.rows, 1):
            if len(row) != width:
                raise ValueError(f"row {number} has {len(row)} conditions, not {width}")
        return self

    def rules(self) -> list[Rule]:
        """The table as single rules, all with the table's id."""
        split = len(self.when)
        return [
            Rule(
                id=self.id,
                level=self.level,
                when=dict(zip(self.when, row[:split], strict=True)),
                need=dict(zip(self.need, row[split:], strict=True)),
                say=self.say,
                remedy=self.remedy,
                source=self.source,
            )
            for row in self.rows
        ]


class Ending(EolPin):
    """When upstream stops mending what ``when`` describes; ``name`` is its key in pins.yaml."""

    name: str
    when: dict[str, Condition]
    next: str = Field(min_length=5)  # where to go from there


class Topic(Model):
    """One file of rules."""

    rules: list[Rule] = Field(default_factory=list)
    tables: list[Table] = Field(default_factory=list)
    eol: list[Ending] = Field(default_factory=list)


@lru_cache(maxsize=4)
def load_topics(directory: Path = HERE) -> tuple[Topic, ...]:
    """All rule files of a directory, in the order of their names."""
    topics = []
    for file in sorted(directory.glob("*.yaml")):
        try:
            topics.append(Topic.model_validate(read_yaml(file, REINSTALL)))
        except ValidationError as error:
            text = explain(
                error, file, "rackpin/compat/rules.py says how rules are written.", Topic
            )
            raise StackError(text) from None
    return tuple(topics)
