"""The rules themselves: each has a failing example, each row of each table is alive."""

from datetime import date

import pytest

from rackpin.compat.engine import Note, fits, judge
from rackpin.compat.facts import Facts
from rackpin.compat.rules import Condition, Rule, load_topics
from tests.unit.compat_examples import EXAMPLES

TODAY = date(2026, 11, 29)
TOPICS = load_topics()
TABLES = [table for topic in TOPICS for table in topic.tables]
RULES = [rule for topic in TOPICS for rule in topic.rules]
ROWS = [
    pytest.param(rule, id=f"{table.id}[{number}]")
    for table in TABLES
    for number, rule in enumerate(table.rules())
]


def found(facts: Facts) -> dict[str, Note]:
    return {note.rule: note for note in judge(TOPICS, facts, TODAY)}


def test_every_rule_has_an_example_and_every_example_a_rule() -> None:
    ids = [rule.id for rule in RULES] + [table.id for table in TABLES]
    assert len(ids) == len(set(ids)), "an id twice"
    unknown = [f"{table.id}.unknown" for table in TABLES if table.unknown]
    assert set(EXAMPLES) == {*ids, *unknown}


@pytest.mark.parametrize("rule", sorted(EXAMPLES))
def test_example(rule: str) -> None:
    note = found(EXAMPLES[rule])[rule]
    assert "{" not in note.summary.replace("{site_packages}", "") and "no dist" not in note.summary
    assert note.remedy and note.source and note.items
    assert note.level in ("error", "warning", "hint")


def sample(condition: Condition) -> str:
    """Some value that a condition takes."""
    text = condition if isinstance(condition, str) else condition[0]
    first = text.split(",")[0]
    if first[:1] not in "<>=!~":
        return "1" if first == "any" else first
    value = first.lstrip("<>=!~").removesuffix(".*")
    low = "0.1" if first.startswith("<") and not first.startswith("<=") else value
    return f"{value}.1" if first.startswith(">") and not first.startswith(">=") else low


@pytest.mark.parametrize("rule", ROWS)
def test_every_row_of_every_table_can_fail_and_pass(rule: Rule) -> None:
    facts = {item: [sample(wish)] for item, wish in rule.when.items()}
    values = {item: v[0] for item, v in facts.items()}
    assert all(fits(wish, values[item], values) for item, wish in rule.when.items())
    for item, wish in rule.need.items():
        good = {**facts, item: [sample(wish)]}
        assert fits(wish, good[item][0], values), f"{wish}: the sample must be good"
        assert rule.id not in found(good)
        bad = next(v for v in ("0.0.1", "99999", "nonsense") if not fits(wish, v, values))
        assert found({**facts, item: [bad]})[rule.id].level == rule.level


def test_sources_can_be_looked_up() -> None:
    for item in [*RULES, *TABLES, *(end for topic in TOPICS for end in topic.eol)]:
        assert item.source.startswith("https://") or " " in item.source, item


def test_vllm_042_with_nccl_2193_is_refused_with_the_explanation() -> None:
    facts = EXAMPLES["nccl.vllm-0-4-2"] | {"dist.torch": ["2.3.0"]}
    note = found(facts)["nccl.vllm-0-4-2"]
    assert note.level == "error"
    assert "torch 2.3.0, which brings 2.20.5" in note.summary
    assert "vllm-nccl-cu12, which brings 2.18.1" in note.summary
    assert "override: true" in note.remedy and "VLLM_NCCL_SO_PATH" in note.remedy
    forced = facts | {
        "nccl.override": ["yes"],
        "excluded.vllm-nccl-cu12": ["yes"],
        "env.NCCL_CUMEM_ENABLE": ["0"],
        "env.VLLM_NCCL_SO_PATH": ["{site_packages}/nvidia/nccl/lib/libnccl.so.2"],
    }
    assert not {r for r, n in found(forced).items() if n.level == "error"}


@pytest.mark.parametrize(
    ("gpu", "driver", "flavour", "errors"),
    [
        ("h100", "535.129.03", "closed", set()),
        ("h200", "535.309.01", "closed", {"gpu.driver"}),
        ("h200", "550.90.07", "closed", set()),
        ("b200", "535.309.01", "closed", {"gpu.driver", "gpu.open-modules"}),
        ("b200", "570.124.06", "open", {"gpu.driver"}),
        ("b200", "580.178.04", "closed", {"gpu.open-modules"}),
        ("b200", "580.178.04", "open", set()),
        ("gh200", "535.129.03", "open", {"gpu.driver"}),
    ],
)
def test_gpu_generations(gpu: str, driver: str, flavour: str, errors: set[str]) -> None:
    notes = found({"gpu": [gpu], "driver": [driver], "driver.flavour": [flavour]})
    assert {r for r, n in notes.items() if n.level == "error"} == errors


@pytest.mark.parametrize(
    ("cuda", "driver", "rules"),
    [
        ("12.2.2", "535.104.05", set()),
        ("12.2.2", "535.98", {"cuda.own-driver"}),
        ("12.9.1", "535.129.03", {"cuda.own-driver"}),
        ("12.0.0", "520.61.05", {"cuda.own-driver", "cuda.floor"}),
        ("13.0.3", "580.65.06", {"cuda.own-driver"}),
        ("13.0.3", "535.309.01", {"cuda.own-driver", "cuda.floor"}),
    ],
)
def test_cuda_and_minor_version_compatibility(cuda: str, driver: str, rules: set[str]) -> None:
    notes = found({"cuda": [cuda], "driver": [driver]})
    assert {rule for rule in notes if rule.startswith("cuda.")} == rules
    if rules:
        assert notes["cuda.own-driver"].level == "warning"
