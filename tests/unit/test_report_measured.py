"""Collectives, outliers, quarantine and cut-short runs, in the verdict, the page and JUnit."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

import pytest

from rackpin.findings import Measurement, NodeResult, Outcome, Report
from rackpin.report import judge, page, write
from rackpin.report.gauges import MOST_GAUGES, MOST_PASSES, groups_of
from rackpin.report.heat import BANDS, HOVER_UP_TO, band_of, maps_of
from rackpin.report.shape import presentable, storable
from rackpin.report.slow import slow_of

from . import report_samples as samples
from .report_fleet import CHECKS, EXPECTED, fleet, measurement, pairs
from .test_report import Page, cases, red, render


def with_node(report: Report, state: str, *findings, **more) -> Report:
    node = NodeResult(name="gpu-009", state=state, **more)
    return report.model_copy(
        update={"nodes": [*report.nodes, node], "findings": [*report.findings, *findings]}
    )


@cache
def bad_night(partial: bool = False) -> str:
    """The words of the sample fleet's page, made once."""
    return spoken(fleet(partial=partial))


def spoken(report: Report) -> str:
    return " ".join(render(report).text.split())


# -- a run that was cut short -------------------------------------------------------------------
@pytest.mark.parametrize("claims", [True, False])
def test_a_partial_report_is_never_ready(claims: bool) -> None:
    report = samples.good().model_copy(update={"partial": True, "ready": claims})
    verdict = judge(report)
    assert not verdict.ready and verdict.line.startswith("ended early, 3 of 3 nodes ready")
    assert bool(verdict.contradictions) is claims
    assert red(report)
    said = cases(report)["paris-1.fleet:report.partial"].find("error")
    assert said is not None and "the run ended early" in str(said.get("message"))
    text = spoken(report)
    assert text.count("ENDED EARLY: what is here is right, but not all") >= 2
    assert "Nothing failed, and every required check ran" not in text
    assert "(ended early): paris-1" in text and "ended early" not in spoken(samples.good())


def test_a_partial_report_says_so_beside_its_failures() -> None:
    assert "paris-1.fleet:report.partial" in cases(fleet(partial=True))
    assert "paris-1.fleet:report.partial" not in cases(fleet())
    assert "No check was made on gpu-034." in bad_night(partial=True)


# -- quarantine -----------------------------------------------------------------------------------
def test_quarantined_nodes_are_left_out_of_the_verdict_but_told() -> None:
    bad = samples.finding("gpu-009", "gpu.xid", "fail", "XID 79", remedy="See its ticket.")
    report = with_node(samples.good(), "quarantined", bad, reason="ana: fan 4, RMA 88120")
    verdict = judge(report)
    assert verdict.ready and verdict.contradictions == []
    assert verdict.line.startswith("3 of 3 nodes ready, 1 quarantined, ")
    assert " fail" not in verdict.line and not red(report)
    found = cases(report)
    state = found["paris-1.gpu-009:node.state"].find("skipped")
    assert state is not None and state.get("message") == "quarantined: ana: fan 4, RMA 88120"
    kept = found["paris-1.gpu-009:gpu.xid"].find("skipped")
    assert kept is not None and "quarantined node, fail: XID 79" in str(kept.get("message"))
    text = spoken(report)
    assert "⊘ quarantined gpu-009: ana: fan 4, RMA 88120" in text
    assert "See its ticket." not in text.split("Quarantined")[0], "its owner has it in hand"


def test_a_fleet_of_quarantined_nodes_is_not_ready() -> None:
    report = samples.report([NodeResult(name="a", state="quarantined", reason="ana: RMA")], [])
    assert not judge(report).ready and red(report)
    assert judge(report).contradictions == ["every node is quarantined"]


def test_a_quarantined_node_hides_no_other_nodes_trouble() -> None:
    report = with_node(samples.troubled(), "quarantined", reason="ana: RMA")
    assert judge(report).counts == judge(samples.troubled()).counts
    other = with_node(samples.good(), "quarantined", samples.finding("fleet", "x.y", "fail", "z"))
    assert not judge(other).ready


# -- a failed measurement without a finding -------------------------------------------------------
@pytest.mark.parametrize("value", [33.0, None])
def test_a_bad_measurement_that_no_finding_tells_is_not_ready(value: float | None) -> None:
    one = measurement("pair", ["gpu-001", "gpu-002"], value)
    report = samples.good().model_copy(update={"measurements": [one]})
    assert not judge(report).ready and "no finding says so" in judge(report).contradictions[0]
    silent = report.model_copy(update={"ready": False})
    assert "1 collective failed or not run without a finding" in judge(silent).line
    many = [measurement("pair", ["gpu-001", f"n{k}"], value) for k in range(99)]
    assert len(judge(report.model_copy(update={"measurements": many})).contradictions) < 10
    again = measurement("pair", ["gpu-002", "gpu-001"], 48.4, round=1)
    assert judge(report.model_copy(update={"measurements": [one, again]})).ready
    told = samples.finding("gpu-002", "fabric.hcas", "warn", "it was slow once")
    assert judge(report.model_copy(update={"findings": [*report.findings, told]})).ready


# -- the heat map ---------------------------------------------------------------------------------
def test_each_pair_is_in_both_halves_with_its_value() -> None:
    (made,) = maps_of(fleet())
    assert len(made.nodes) == 60 and made.missing == 0 and made.expected == EXPECTED
    assert len(made.cells) == 60 * 59 - 2, "one pair has no figure"
    slow = [cell for cell in made.cells if cell.title.startswith("gpu-005 – gpu-033")]
    assert {(cell.x, cell.y) for cell in slow} == {(4, 30), (30, 4)}
    assert slow[0].title == "gpu-005 – gpu-033: 44.9, 93% !"
    assert made.signs["fail"].count("M") == 2 * 59 and made.signs["blocked"].count("M") == 2
    markup = page.render(presentable(fleet()))
    assert markup.count("<title>gpu-") == len(made.cells)
    assert made.rows[0].node == "gpu-018" and made.rows[0].measured == 59


def test_a_node_that_is_slow_with_all_is_one_line_and_hides_no_other_pair() -> None:
    (made,) = maps_of(fleet())
    told = [(one.nodes, one.kind, one.bad) for one in made.worst]
    assert told == [
        (["gpu-018"], "fail", 59),
        (["gpu-013", "gpu-044"], "blocked", 1),
        (["gpu-005", "gpu-033"], "warn", 1),
    ]
    text = bad_night()
    assert "gpu-018 with 59 of 59 partners" in text and "gpu-005 – gpu-033 44.9" in text
    assert "no answer in 60 s; both nodes answered again afterwards" in text


def test_two_bad_nodes_are_two_lines() -> None:
    names = [f"n{k}" for k in range(8)]
    made = {
        frozenset(one.nodes): one.model_copy(update={"outcome": Outcome.FAIL})
        if {"n1", "n6"} & set(one.nodes)
        else one.model_copy(update={"outcome": Outcome.PASS})
        for one in (
            measurement("pair", [a, b], 48.0) for k, a in enumerate(names) for b in names[k + 1 :]
        )
    }
    found = slow_of(made)
    assert {tuple(one.nodes) for one in found} == {("n1",), ("n6",)}
    assert sum(one.bad for one in found) == 13


def test_what_was_not_measured_is_marked_and_counted() -> None:
    (made,) = maps_of(fleet(partial=True))
    assert made.missing == 60 * 59 // 2 - 29 * 30
    assert made.signs["missing"].count("M") == 2 * made.missing
    assert f"{made.missing} not measured" in bad_night(partial=True)


def test_colours_are_relative_to_what_is_expected() -> None:
    assert [band_of(share) for share in (1.5, 1.0, 0.96, 0.9, 0.85, 0.7, 0.1, 0.0)] == [
        0, 1, 2, 3, 4, 5, 6, 6,
    ]  # fmt: skip
    assert len(BANDS) == 7, "the style sheet has that many colours"
    style = (Path(page.__file__).parent / "report.css").read_text()
    assert all(f".h{band} {{" in style for band in range(len(BANDS)))
    blank = [one.model_copy(update={"expected_gb_s": None}) for one in fleet().measurements]
    text = spoken(fleet().model_copy(update={"measurements": blank}))
    assert "no expectation is recorded: colours are relative to the median" in text


def test_each_library_has_its_own_map() -> None:
    report = fleet()
    host = [one.model_copy(update={"library": "host"}) for one in report.measurements]
    both = report.model_copy(update={"measurements": [*report.measurements, *host]})
    assert [made.library for made in maps_of(both)] == ["engine", "host"]


@pytest.mark.parametrize("count", [64, 200])
def test_pairs_of_a_large_fleet_stay_small(tmp_path: Path, count: int) -> None:
    report = samples.large(200, 20, "<é\"'&>" * 20_000)
    more = fleet(count)
    report = report.model_copy(
        update={"measurements": more.measurements, "outliers": more.outliers}
    )
    markup = write(report, tmp_path).html.read_text()
    assert len(markup.encode()) < 5_000_000
    assert ("<title>gpu-" in markup) is (count <= HOVER_UP_TO)


def test_how_it_was_found_is_told_in_order() -> None:
    text = bad_night()
    steps = re.findall(r"(retest|bisect), round (\d+)", text.split("How it was found")[1])
    assert [kind for kind, _ in steps] == ["retest"] * 3 + ["bisect"] * 2
    assert "33.4 GB/s is below 43 with a sound node" in text


# -- bars, outliers, matrix -----------------------------------------------------------------------
def test_bars_are_in_groups_that_can_be_compared() -> None:
    groups = {group.title: group for group in groups_of(fleet())}
    assert list(groups)[:2] == ["collective.pairs", "all nodes at once, engine's NCCL"]
    node = groups["within a node, engine's NCCL"]
    assert len(node.gauges) == MOST_PASSES and len(node.gauges) + len(node.rest) == 60
    assert max(g.value for g in node.gauges) <= min(g.value for g in node.rest)
    assert groups["adapter loop, engine's NCCL"].scale < 60 < node.scale
    slow = [measurement("node", [f"n{k}"], 400.0 + k / 10) for k in range(40)]
    (made,) = groups_of(samples.report([], []).model_copy(update={"measurements": slow}))
    assert len(made.gauges) == MOST_GAUGES


def test_the_outlier_table_has_value_usual_and_distance() -> None:
    markup = page.render(presentable(fleet())).split('<section id="outliers">')[1]
    rows = [
        [re.sub("<[^>]*>", "", cell) for cell in re.findall("<t[hd].*?</t[hd]>", row)]
        for row in re.findall("<tr>(.*?)</tr>", markup, re.DOTALL)
    ]
    assert rows[0] == ["what", "node", "value", "usual", "siblings", "distance", "outcome"]
    assert rows[1][:4] == ["hca.firmware", "gpu-018", "28.39.1002", "28.39.2048 on all others"]
    assert rows[1][4:] == ["62", "–", "✕ fail"]
    assert ["temperature_c", "gpu-022", "81", "61 ± 3", "62", "6.7 MAD", "! warn"] in rows
    assert "<h3>h100-sxm-8</h3>" in markup and 'id="outliers"' not in page.render(samples.good())


def test_the_matrix_has_a_column_for_each_check() -> None:
    report = fleet()
    made = render(report)
    fine, groups = page.render(presentable(report)).split("<table")[1:3]
    assert fine.count('<th scope="col"') == 2 + len(CHECKS) + 1
    assert groups.count('<th scope="col"') < 25
    assert fine.count("<tr data-row") == groups.count("<tr data-row") == 65
    assert '<td class="fail" title="gpu.xid: 1 fail"><a href="#n' in fine
    assert sum(tag == "input" and a.get("name") == "columns" for tag, a in made.tags) == 2


def test_hostile_text_in_the_new_fields_stays_text(tmp_path: Path) -> None:
    text = samples.HOSTILE
    one = Measurement(kind="pair", nodes=[text, "b"], transport=text, outcome=Outcome.FAIL,
                      why=text, busbw_gb_s=float("nan"), expected_gb_s=1.0)  # fmt: skip
    two = one.model_copy(update={"kind": "bisect", "busbw_gb_s": 0.5})
    three = one.model_copy(update={"busbw_gb_s": 0.4, "nodes": ["c", text]})
    other = (
        fleet()
        .outliers[0]
        .model_copy(
            update={
                "sku": text,
                "what": text,
                "value": text,
                "usual": text,
                "distance": float("inf"),
            }
        )
    )
    report = samples.hostile().model_copy(
        update={"measurements": [one, two, three], "outliers": [other]}
    )
    kept = storable(report)
    assert kept.measurements[0].busbw_gb_s is None and kept.outliers[0].distance is None
    markup = write(report, tmp_path).html.read_text(encoding="utf-8")
    made = Page(markup)
    assert sum(tag == "script" for tag, _ in made.tags) == 1
    assert not any(tag == "img" or "style" in attrs for tag, attrs in made.tags)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", markup)


def test_the_sample_is_a_whole_round_robin() -> None:
    names = [f"n{k:02d}" for k in range(48)]
    made = pairs(names, "n17", random.Random(1))
    assert len({frozenset(one.nodes) for one in made}) == len(made) == 48 * 47 // 2
