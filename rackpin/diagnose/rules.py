"""The rule files ``rackpin/diagnose/*.yaml``, read whole and checked; docs/diagnose.md tells how
to write one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from rackpin.stack.model import Model

HERE = Path(__file__).resolve().parent
XIDS = "xids.yaml"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times faster
T = TypeVar("T")
Kind = Literal["root", "symptom", "wrapper"]
Confidence = Literal["high", "medium", "low"]


class RuleError(ValueError):
    """A rule file is wrong; the message names file and rule."""


class Rule(Model):
    """One known failure. ``match``: any of these patterns; ``reading``: the name of a fact that
    ``readings.py`` finds instead. ``echoes``: rules (``*`` allowed) that this one explains."""

    id: str = Field(pattern=r"^[a-z0-9]+\.[A-Za-z0-9-]+$")
    match: list[str] = Field(default_factory=list)
    reading: str | None = None
    needs: list[str] = Field(default_factory=list)
    unless: list[str] = Field(default_factory=list)
    settled_by: list[str] = Field(default_factory=list)
    least: int = Field(default=1, ge=1)
    level: Literal["any", "error"] = "any"
    kind: Kind = "root"
    cause: str = Field(min_length=8)
    fix: str = Field(min_length=8)
    source: str = Field(min_length=3)
    confidence: Confidence = "high"
    echoes: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_way(self) -> Rule:
        if bool(self.match) == bool(self.reading):
            raise ValueError("a rule has either match or reading")
        return self


class Xid(Model):
    """What a Xid code means; ``echoes`` as in a rule."""

    says: str = Field(min_length=8)
    fix: str = Field(min_length=4)
    kind: Kind
    echoes: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class Pattern:
    """A pattern with a word that any match contains ("" for none): a cheap look comes first."""

    regex: re.Pattern[str]
    word: str

    def maybe(self, text: str) -> bool:
        return not self.word or self.word in text


@dataclass(frozen=True)
class Ready:
    """A rule with its patterns compiled."""

    rule: Rule
    match: tuple[Pattern, ...]
    needs: tuple[Pattern, ...]
    unless: tuple[Pattern, ...]
    settled_by: tuple[Pattern, ...]


@lru_cache(maxsize=1)
def rules() -> tuple[Ready, ...]:
    """All rules of all files. Raises RuleError."""
    found: dict[str, Ready] = {}
    for path in sorted(HERE.glob("*.yaml")):
        if path.name == XIDS:
            continue
        for rule in _checked(path, TypeAdapter(list[Rule])):
            if rule.id in found:
                raise RuleError(f"{path.name}: the id {rule.id} is there twice")
            found[rule.id] = _ready(path, rule)
    return tuple(found.values())


@lru_cache(maxsize=1)
def xids() -> dict[int, Xid]:
    """Xid code → its meaning. Raises RuleError."""
    return _checked(HERE / XIDS, TypeAdapter(dict[int, Xid]))


def _checked(path: Path, shape: TypeAdapter[T]) -> T:
    try:
        return shape.validate_python(yaml.load(path.read_text(encoding="utf-8"), LOADER))
    except (yaml.YAMLError, ValidationError) as why:
        raise RuleError(f"{path.name}: {why}") from None


def _ready(path: Path, rule: Rule) -> Ready:
    def compiled(patterns: list[str]) -> tuple[Pattern, ...]:
        try:
            return tuple(Pattern(re.compile(loose(p)), word_of(p)) for p in patterns)
        except re.error as why:
            raise RuleError(f"{path.name}: {rule.id}: {why}") from None

    groups = (rule.match, rule.needs, rule.unless, rule.settled_by)
    return Ready(rule, *(compiled(patterns) for patterns in groups))


def loose(pattern: str) -> str:
    """A blank outside of ``[…]`` stands for any white space: messages come wrapped. In a
    look-behind it is one character of it, as those have a fixed width."""
    made, inside, behind, at = "", False, False, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            made += pattern[at : at + 2]
            at += 2
            continue
        if char == "[":
            inside = True
        elif char == "]":
            inside = False
        elif pattern.startswith(("(?<!", "(?<="), at):
            behind = True
        elif char == ")":
            behind = False
        if char == " " and not inside:
            made += r"\s" if behind or pattern[at + 1 : at + 2] in ("?", "*", "+", "{") else r"\s+"
        else:
            made += char
        at += 1
    return made


def word_of(pattern: str) -> str:
    """The longest run of plain characters that every match must have, or ""."""
    runs, run, depth, inside, at = [""], "", 0, False, 0
    while at < len(pattern):
        char, step = pattern[at], 1
        if char == "\\":
            char, step = pattern[at + 1 : at + 2], 2
            plain = not char.isalnum()
        else:
            plain = char.isalnum() or char in "_-/'\",:;=<>@#%&`~"
        if char == "|" and step == 1 and depth == 0 and not inside:
            return ""
        if step == 1 and char in "([" and not inside:
            depth, inside = depth + (char == "("), char == "["
        elif step == 1 and char == "]":
            inside = False
        elif step == 1 and char == ")" and not inside:
            depth -= 1
        elif plain and depth == 0 and not inside:
            follows = pattern[at + step : at + step + 1]
            if follows in ("?", "*", "{"):
                runs, run = [*runs, run], ""
            else:
                run += char
            at += step
            continue
        runs, run = [*runs, run], ""
        at += step
    return max((*runs, run), key=len)
