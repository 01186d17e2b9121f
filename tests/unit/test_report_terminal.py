"""The terminal summary at real widths, and the words it is made of."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rackpin.findings import Report
from rackpin.report import terminal
from rackpin.report.text import clean, cut, duration, fair_cap, fold, plural

from . import report_samples as samples
from .report_fleet import fleet


def screen(report: Report, width: int = 80, height: int = 24, **more) -> list[str]:
    made = io.StringIO()
    tty = more.pop("tty", True)
    console = Console(
        file=made,
        width=width,
        height=height,
        force_terminal=tty,
        color_system=None,
        legacy_windows=False,
    )
    terminal(report, console, html=Path("reports/latest.html"), **more)
    return made.getvalue().splitlines()


def three_in_trouble() -> Report:
    report = samples.troubled()
    return report.model_copy(
        update={
            "nodes": report.nodes[1:],
            "findings": [f for f in report.findings if f.node != "gpu-001"],
        }
    )


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("make", [samples.good, samples.troubled, three_in_trouble])
def test_a_small_fleet_fits_a_small_terminal(make, width: int) -> None:
    lines = screen(make(), width)
    assert len(lines) < 24 and max(map(len, lines)) <= width
    assert lines[-1] == "reports/latest.html"
    assert any(line.startswith(("READY", "NOT READY")) for line in lines[-3:-1])


def test_each_thing_to_do_has_node_check_found_and_remedy() -> None:
    text = "\n".join(screen(samples.troubled(), 120, 50))
    assert "✕ gpu-002 limits.raylet: raylet (pid 812) has memlock 8388608; expected unlim" in text
    assert "→ systemctl daemon-reload, then drain gpu-002" in text
    assert "gpu-003  failed       ✓ 1" in text and "python: wheelhouse refused" in text
    assert "gpu-004  unreachable  none made" in text
    assert "! gpu-001 clock.drift" in text and "rackpin report --all" not in text
    assert text.index("gpu-004 unreachable") < text.index("gpu-002 limits") < text.index("clock")


def test_two_hundred_nodes_stay_useful() -> None:
    lines = screen(samples.large(200, 20))
    text = " ".join(" ".join(lines).split())
    assert len(lines) < 24
    assert "178 ready: gpu-[000-003,005-012" in text and "✓ 3560" in text
    assert "more not ready: gpu-[" in text and "(22 nodes) limits.raylet.1" in text
    assert "NOT READY: 178 of 200 nodes ready, 22 not ready, 22 fail, 3978 pass" in text


@pytest.mark.parametrize("partial", [True, False])
def test_a_bad_night_fits_a_small_terminal(partial: bool) -> None:
    lines = screen(fleet(partial=partial))
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "⊘ 2 quarantined: gpu-[009,060] (--all: by whom, why)" in text
    assert "✕ gpu-018 with " in text and "✓ 2 instances serving" in text
    assert text.count("ENDED EARLY: what is here is right, but not all") == partial
    assert ("NOT READY: ended early, 58 of 62" in text) is partial
    assert ("✕ 6 outliers among siblings on gpu-[018,022,037" in text) is not partial
    last = next(n for n, line in enumerate(lines) if line.startswith("NOT READY"))
    assert not partial or "ENDED EARLY" in lines[last - 1]


def test_a_larger_window_names_owners_pairs_and_figures() -> None:
    text = "\n".join(screen(fleet(partial=True), 130, 50))
    assert "⊘ gpu-009 quarantined: asked for by m.lindqvist since 2026-11-21: NVLink 3" in text
    assert text.count("ENDED EARLY") == 2
    text = "\n".join(screen(fleet(), 130, 50))
    assert "✕ 59  ? 1  ! 1  ✓ 1709  of 1770 pairs, engine's NCCL: median 48.4 GB/s of 48.5" in text
    assert "✕ gpu-018 with 59 of 59 partners: from 32.2; ? gpu-013 – gpu-044: no figure" in text
    assert "; ! gpu-005 – gpu-033: 44.9" in text
    assert "✕ all nodes at once, engine's NCCL: 33.0 GB/s busbw, at least 43.0" in text


def many_failures(count: int = 80) -> Report:
    findings = [
        samples.finding("a", f"sysctl.k{n}", "fail", f"is {n}", remedy=f"Set {n}.")
        for n in range(count)
    ]
    return samples.report([samples.ready_node("a", 0)], findings, ready=False)


def test_what_is_left_out_is_counted() -> None:
    text = "\n".join(screen(many_failures()))
    shown = len(re.findall(r"→ Set \d+\.", text))
    assert shown >= 2 and f"… and {80 - shown} fail: `rackpin report --all`" in text
    piped = "\n".join(screen(many_failures(), tty=False))
    assert len(re.findall(r"→ Set", piped)) == 50 and "… and 30 fail" in piped
    everything = "\n".join(screen(many_failures(), everything=True))
    assert len(re.findall(r"→ Set", everything)) == 80 and "… and" not in everything


def test_the_path_of_the_html_stays_one_word() -> None:
    made = io.StringIO()
    path = Path("/srv") / ("long-" * 30) / "latest.html"
    terminal(samples.good(), Console(file=made, width=80), html=path)
    assert made.getvalue().splitlines()[-1] == str(path)


def test_no_text_acts_on_the_terminal() -> None:
    text = "\n".join(screen(samples.hostile(), 100, 60))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "[red]markup[/red]" in text and ":smile:" not in text


def test_a_console_without_utf8_gets_plain_signs() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal(samples.troubled(), Console(file=file, width=100, height=60))
    file.flush()
    text = file.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "x gpu-002 limits.raylet" in text and "> systemctl" in text


def test_names_fold_as_operators_write_them() -> None:
    assert fold(["gpu-3", "gpu-1", "gpu-2", "head"]) == "gpu-[1-3], head"
    assert fold(["n9", "n10", "n11"]) == "n9, n[10-11]"
    assert fold(["a1.dc2.net", "a3.dc2.net"]) == "a[1,3].dc2.net"
    assert fold(["one"]) == "one" and fold(["n7"]) == "n7" and fold([]) == ""
    assert fold([f"{c}-x" for c in "abcdefgh"], 12) == "a-x, b-x and 6 more"
    assert fold([f"n{n:03}" for n in range(0, 99, 2)], 20) == "n[000,002,004,006,…]"


def test_times_and_counts_in_words() -> None:
    assert [duration(s) for s in (0.0214, 1.44, 42, 59.6, 181.8, 7620)] == [
        "21 ms",
        "1.4 s",
        "42 s",
        "1 min 00 s",
        "3 min 02 s",
        "2 h 07 min",
    ]
    assert plural(1, "node") == "1 node" and plural(0, "node") == "0 nodes"


@given(st.text(st.characters()))
def test_clean_leaves_nothing_that_acts_and_changes_nothing_twice(text: str) -> None:
    made = clean(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\ud800-\udfff]", made)
    assert clean(made) == made
    made.encode()


@given(st.text(max_size=600), st.integers(0, 400))
def test_cut_never_exceeds_its_limit(text: str, limit: int) -> None:
    made = cut(text, limit)
    assert len(made) <= limit or (made == text and len(text) <= limit)
    assert cut(made, limit) == made


@given(st.lists(st.integers(0, 500)), st.integers(0, 5000))
def test_fair_cap_keeps_the_budget_and_wastes_none(sizes: list[int], budget: int) -> None:
    cap = fair_cap(sizes, budget)
    used = sum(min(size, cap) for size in sizes)
    assert used <= budget
    if sum(sizes) <= budget:
        assert used == sum(sizes)
    elif sizes:
        assert used + len(sizes) > budget - cap
