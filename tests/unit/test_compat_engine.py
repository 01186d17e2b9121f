"""The engine that holds facts against rules."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rackpin.compat.engine import Note, fits, judge
from rackpin.compat.facts import Facts
from rackpin.compat.rules import Rule, Table, Topic, load_topics
from rackpin.stack.hostpins import EolPin
from rackpin.stack.model import StackError

TODAY = date(2026, 6, 1)
TEXTS = {"say": "{a} needs {needs}", "remedy": "do something else", "source": "a test says so"}


def notes(facts: Facts, **rule: Any) -> list[Note]:
    topic = Topic(rules=[Rule(**{"id": "test.rule", "level": "error", **TEXTS, **rule})])
    return judge([topic], facts, TODAY)


@pytest.mark.parametrize(
    ("condition", "value", "good"),
    [
        (">=535.104.05", "535.129.03", True),
        (">=535.104.05", "535.98", False),
        ("==12.*", "12.1.105", True),
        ("==2.13.0", "2.13.0+cpu", True),
        (">=2.0", "2.1rc1", True),
        ("<2", "not-a-version", False),
        ("open", "open", True),
        (["closed", "open"], "open", True),
        ("12.2", "12.20", False),
        ("any", "x", True),
        ("any", None, False),
        ("none", None, True),
        ("none", "x", False),
        (">=1", None, False),
        ("=={driver}", "535.129.3", True),
    ],
)
def test_conditions(condition: str | list[str], value: str | None, good: bool) -> None:
    assert fits(condition, value, {"driver": "535.129.03"}) is good


def test_a_wrong_specifier_is_no_silent_no() -> None:
    with pytest.raises(ValueError, match="no version specifier"):
        fits(">=?", "1.0", {})


def test_absent_items_are_judged_only_where_the_rule_says_so() -> None:
    rule: dict[str, Any] = {"when": {"a": "any"}, "need": {"b": ">=2"}}
    assert notes({"a": ["1"]}, **rule) == []
    assert [n.summary for n in notes({"a": ["1"], "b": ["1"]}, **rule)] == ["1 needs b >=2"]
    assert len(notes({"a": ["1"]}, **rule, absent="fail")) == 1
    assert notes({}, **rule, absent="fail") == []
    gone: dict[str, Any] = {"when": {"a": "any"}, "need": {"b": "none"}}
    assert notes({"a": ["1"]}, **gone) == [] and len(notes({"a": ["1"], "b": ["2"]}, **gone)) == 1


def test_every_value_of_an_item_is_judged() -> None:
    rule: dict[str, Any] = {"when": {"a": ["x", "y"]}, "need": {"b": ">=2"}}
    found = notes({"a": ["x", "z", "y"], "b": ["1", "2", "1.5"]}, **rule)
    assert [n.items for n in found] == [{"a": "x", "b": "1, 1.5"}, {"a": "y", "b": "1, 1.5"}]
    assert len(notes({"a": ["x"]}, when={"a": "x"})) == 1, "without need, being so is the finding"


def test_tables_say_what_they_do_not_know() -> None:
    table = Table(
        id="test.table", level="warning", when=["a"], need=["b"],
        rows=[["==1.*", "==10"], [["==2.*", "==3.*"], "==20"]], **TEXTS,
        unknown={"level": "hint", "say": "nothing known of {a}", "remedy": "add a row to it"},
    )  # fmt: skip

    def rules(facts: Facts) -> list[str]:
        return [n.rule for n in judge([Topic(tables=[table])], facts, TODAY)]

    assert rules({"a": ["1.5"], "b": ["10"]}) == []
    assert rules({"a": ["3.1"], "b": ["10"]}) == ["test.table"]
    assert rules({"a": ["4"], "b": ["10"]}) == ["test.table.unknown"]
    assert rules({"b": ["10"]}) == []
    with pytest.raises(ValidationError, match="row 1 has 1 conditions, not 2"):
        Table(id="test.table", level="hint", when=["a"], need=["b"], rows=[["x"]], **TEXTS)


EOL = """\
eol:
  - {name: thing-1, when: {thing: "1"}, date: 2026-05-31, next: take thing 2, source: a test page}
  - {name: thing-2, when: {thing: "2"}, date: 2026-08-31, next: take thing 3, source: a test page}
  - {name: thing-3, when: {thing: "3"}, date: 2028-01-01, next: take thing 4, source: a test page}
"""


@pytest.mark.parametrize(
    ("things", "own", "expected"),
    [
        (["1"], {}, ["eol.reached"]),
        (["2"], {}, ["eol.soon"]),
        (["3"], {}, []),
        (["1", "2"], {}, ["eol.reached", "eol.soon"]),
        (["3"], {"thing-3": date(2026, 1, 1)}, ["eol.reached", "eol.differs"]),
        (["3"], {"other": date(2026, 1, 1)}, ["eol.reached"]),
        (["1"], {"thing-1": date(2026, 5, 31)}, ["eol.reached"]),
    ],
)
def test_ends_of_life(
    tmp_path: Path, things: list[str], own: dict[str, date], expected: list[str]
) -> None:
    (tmp_path / "eol.yaml").write_text(EOL, encoding="utf-8")
    mine = {name: EolPin(date=day, source="our own page") for name, day in own.items()}
    found = judge(load_topics(tmp_path), {"thing": things}, TODAY, mine)
    assert [n.rule for n in found] == expected
    assert all(n.source for n in found)


def test_errors_come_first() -> None:
    rules = [
        Rule(id=f"test.{level}", level=level, when={"a": "any"}, **TEXTS)
        for level in ("hint", "error", "warning")
    ]
    found = judge([Topic(rules=rules)], {"a": ["1"]}, TODAY)
    assert [n.level for n in found] == ["error", "warning", "hint"]


def test_a_damaged_rule_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("rules: [{id: x.y, lvl: error}]\n", encoding="utf-8")
    with pytest.raises(
        StackError, match=r"bad.yaml.*(?s:.*)lvl: unknown key; did you mean 'level'"
    ):
        load_topics(tmp_path)
