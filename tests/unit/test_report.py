"""Reports as people and CI servers see them: verdict, HTML, JUnit, hostile text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml

from rackpin.findings import NodeResult, Report
from rackpin.report import judge, junit, load, page, write
from rackpin.report.shape import presentable, storable

from . import report_samples as samples

ALL = {
    "good": samples.good,
    "troubled": samples.troubled,
    "hostile": samples.hostile,
    "large": lambda: samples.large(30, 8),
    "no node": lambda: samples.report([], []),
    "no check": lambda: samples.report([samples.ready_node("a", 0)], []),
    "says no": lambda: samples.good().model_copy(update={"ready": False}),
    "skipped": lambda: samples.report(
        [samples.ready_node("a", 0).model_copy(update={"state": "skipped"})], samples.passes("a")
    ),
}


class Page(HTMLParser):
    """Collects the elements, the text and the attributes of a page."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def render(report: Report) -> Page:
    return Page(page.render(presentable(report)))


def cases(report: Report) -> dict[str, ET.Element]:
    root = ET.fromstring(junit.render(presentable(report)))
    return {f"{c.get('classname')}:{c.get('name')}": c for c in root.iter("testcase")}


def red(report: Report) -> bool:
    root = ET.fromstring(junit.render(presentable(report)))
    found = sum(1 for _ in root.iter("failure")) + sum(1 for _ in root.iter("error"))
    assert found == int(root.get("failures", 0)) + int(root.get("errors", 0))
    return found > 0


@pytest.mark.parametrize("name", ALL)
def test_ci_is_green_only_when_the_verdict_is_ready(name: str) -> None:
    report = ALL[name]()
    assert red(report) is not judge(report).ready
    assert judge(report).ready is (name == "good")


def test_junit_says_each_outcome_in_its_own_way() -> None:
    found = cases(samples.troubled())
    assert found["paris-1.gpu-002:limits.raylet"].find("failure") is not None
    assert found["paris-1.gpu-002:gpu.count"].find("error") is not None
    skipped = found["paris-1.gpu-002:fabric.counters"].find("skipped")
    assert skipped is not None and skipped.get("message") == "perfquery is not installed"
    warned = found["paris-1.gpu-001:clock.drift"]
    assert [child.tag for child in warned] == ["system-out"]
    assert "2.6 s" in str(warned[0].text) and "chronyc" in str(warned[0].text)
    assert list(found["paris-1.gpu-001:sysctl.live"]) == []
    unreached = found["paris-1.gpu-004:node.state"].find("error")
    assert unreached is not None and "timed out after 10 s" in str(unreached.get("message"))
    xml = JUnitXml.fromstring(junit.render(presentable(samples.troubled())))
    assert {suite.name: suite.tests for suite in xml} == {
        "fleet": 1,
        "gpu-001": 9,
        "gpu-002": 9,
        "gpu-003": 2,
        "gpu-004": 1,
    }
    assert (xml.failures, xml.errors, xml.skipped) == (2, 3, 1)


def test_the_same_check_twice_on_a_node_is_two_cases() -> None:
    twice = [samples.finding("a", "serve.smoke"), samples.finding("a", "serve.smoke", "fail", "x")]
    found = cases(samples.report([samples.ready_node("a", 0)], twice))
    assert set(found) == {"paris-1.a:serve.smoke", "paris-1.a:serve.smoke [2]"}


@pytest.mark.parametrize("required", [True, False])
def test_not_run_is_never_shown_as_pass(required: bool) -> None:
    only = [samples.finding("a", "gpu.count", "not_run", "no answer", required=required)]
    report = samples.report([samples.ready_node("a", 0)], only, ready=not required)
    assert judge(report).ready is not required
    made = render(report)
    mine = [attrs for tag, attrs in made.tags if tag == "div" and "data-o" in attrs]
    assert [attrs["data-o"] for attrs in mine] == ["blocked" if required else "not_run"]
    cells = [str(attrs.get("class")).split()[0] for tag, attrs in made.tags if tag == "td"]
    assert cells == (["fail", "blocked"] if required else ["pass", "not_run"]) * 2
    wanted = "error" if required else "skipped"
    assert [c.tag for c in cases(report)["paris-1.a:gpu.count"]] == [wanted]


def test_a_report_that_contradicts_itself_is_not_ready() -> None:
    report = samples.troubled().model_copy(update={"ready": True})
    verdict = judge(report)
    assert not verdict.ready and verdict.contradictions
    assert "called itself ready" in render(report).text
    silent = judge(ALL["no check"]())
    assert silent.contradictions[0] == "a is reported ready, but no check was made"


def test_the_page_shows_what_an_engineer_needs() -> None:
    text = " ".join(render(samples.troubled()).text.split())
    for wanted in (
        "NOT READY",
        "1 of 4 nodes ready, 1 unreachable, 1 failed",
        "wheelhouse refused vllm-0.4.2",
        "Do: systemctl daemon-reload, then drain gpu-002",
        "Expected: unlimited",
        "Source: skus/h100-sxm.yaml",
        "No check was made. That is not a pass.",
        "212, expected 360 (59 %), at least 320",
        "1 min 28 s",
        "TP 8 × PP 2 on 2 nodes",
        "2 operations changed something on 1 node of 4",
        samples.LOCK,
        "20 in all, median 5 a node, most 9 on gpu-002",
    ):
        assert wanted in text, wanted
    good = " ".join(render(samples.good()).text.split())
    assert "0.312 s" in good and "1480 tokens/s" in good and "no operation changed" in good
    assert text.index("What to do first") < text.index("Serving instances")


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    written = write(samples.hostile(), tmp_path)
    markup = written.html.read_text(encoding="utf-8")
    made = Page(markup)
    assert [tag for tag, _ in made.tags if tag in ("img", "link", "iframe", "object")] == []
    assert sum(tag == "script" for tag, _ in made.tags) == 1
    assert not any(key.startswith("on") for _, attrs in made.tags for key in attrs)
    assert "<script>alert(1)</script>" in made.text and "{{ 7*7 }}" in made.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", markup)
    assert "\\x1b]0;title\\x07" in made.text and "[31m" not in made.text
    assert ET.fromstring(written.junit.read_bytes()) is not None
    kept = load(written.json)
    assert "\x1b[31m" in kept.findings[0].summary, "the record keeps what the node printed"
    assert kept.findings[0].metrics == {samples.HOSTILE.replace("\udcff", "\ufffd"): 1.0}
    assert "nothing was nan" in kept.notes[-1]


def test_the_page_asks_nothing_of_the_network() -> None:
    made = render(samples.good())
    links = {
        v for _, attrs in made.tags for k, v in attrs.items() if k in ("src", "href", "srcset")
    }
    assert links and all(str(link).startswith("#") for link in links)
    policy = next(a["content"] for t, a in made.tags if a.get("http-equiv"))
    assert policy and policy.startswith("default-src 'none'") and "unsafe" not in policy
    for tag, name in (("script", "report.js"), ("style", "report.css")):
        text = (Path(page.__file__).parent / name).read_text(encoding="utf-8").strip()
        assert text in page.render(presentable(samples.good()))
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not any("style" in attrs for _, attrs in made.tags), "the policy would drop them"


@settings(deadline=None)  # the first page compiles the templates
@given(st.text(st.characters(), max_size=80))
def test_any_text_gives_valid_files(text: str) -> None:
    report = samples.report(
        [NodeResult(name=text, state="failed", stage=text, reason=text)],
        [samples.finding(text, text, "fail", text, remedy=text, source=text)],
        ready=False,
    )
    shown = presentable(report)
    assert ET.fromstring(junit.render(shown)) is not None
    assert page.render(shown).encode()
    assert json.dumps(storable(report).model_dump(mode="json"), ensure_ascii=False).encode()
