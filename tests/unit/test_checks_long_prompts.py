"""Prompts near the limit: the probe against engines that break there, and its judgement."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackpin.checks import long_prompts, of_level, probe
from rackpin.checks.base import INACTIVE, Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from tests.unit import checks_samples as samples
from tests.unit.checks_samples import found, ok, probe_text
from tests.unit.fake_engine import KEY, running
from tests.unit.serving_samples import LONG, long_facts
from tests.unit.test_checks_tensor_parallel import with_cards

MIB = 2**20


@pytest.fixture
def ctx(target: Target) -> Context:
    return samples.context(target)


def judged(ctx: Context, facts: dict[str, Any]) -> Finding:
    answers = {"long_prompts.two": ok(probe_text(facts))}
    return found(ctx, long_prompts.CHECK, answers)["long_prompts.two"]


def test_it_is_asked_at_the_last_level_only(ctx: Context) -> None:
    assert long_prompts.CHECK in of_level("burnin")
    assert long_prompts.CHECK not in of_level("fleet")
    (command,) = long_prompts.CHECK.commands(ctx)
    assert command.slow and command.deadline_s > long_prompts.TOTAL_S > long_prompts.WAIT_S


def test_whole_answers_and_memory_that_stays_pass(ctx: Context) -> None:
    finding = judged(ctx, long_facts())
    assert finding.outcome is Outcome.PASS
    assert "10 prompts of 240 tokens answered whole" in finding.summary
    assert finding.metrics == {
        "slowest_s": 0.4, "prompt_tokens": 240, "rss_growth_bytes": 0.0, "shm_growth_bytes": 0.0,
    }  # fmt: skip


def changed(number: int, **changes: Any) -> dict[str, Any]:
    facts = long_facts()
    facts["answers"][number - 1] |= changes
    return facts


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": 500, "body": "EngineDeadError"}, "prompt 7: status 500 EngineDeadError"),
        ({"empty": True}, "prompt 7: the text is empty"),
        ({"tokens": 3}, "usage says 3 tokens came, not 16"),
        ({"prompt_tokens": 233}, "usage says 233 tokens of prompt, 240 were sent"),
        ({"prompt_tokens": None}, "usage says None tokens of prompt"),
        ({"total_tokens": 16}, "usage says 16 tokens in all"),
        ({"finish": "stop"}, "ended by stop"),
    ],
)
def test_an_answer_that_is_not_whole_fails(
    ctx: Context, changes: dict[str, Any], words: str
) -> None:
    finding = judged(ctx, changed(7, **changes))
    assert finding.outcome is Outcome.FAIL and words in finding.summary


def test_several_faults_are_all_named(ctx: Context) -> None:
    facts = changed(2, empty=True) | {"journal": ["torch.OutOfMemoryError: CUDA out of memory."]}
    facts["answers"][3] |= {"empty": True}
    facts["memory"][-1]["rss"] *= 2
    summary = judged(ctx, facts).summary
    assert "prompt 2, 4: the text is empty" in summary
    assert "CUDA out of memory" in summary and "memory of its processes grew" in summary


def test_another_limit_than_the_inventorys_fails(ctx: Context) -> None:
    finding = judged(ctx, long_facts(limit=128))
    assert (
        finding.outcome is Outcome.FAIL
        and "limit is 128 tokens, the inventory's 256" in finding.summary
    )


# -- memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "grown", "outcome"),
    [("rss", 100 * MIB, "pass"), ("rss", 140 * MIB, "fail"), ("shm", 40 * MIB, "fail")],
)
def test_growth_after_the_third_answer(ctx: Context, kind: str, grown: int, outcome: str) -> None:
    facts = long_facts()
    facts["memory"][-1][kind] += grown
    finding = judged(ctx, facts)
    assert finding.outcome == outcome and finding.metrics[f"{kind}_growth_bytes"] == grown


def test_what_the_first_prompts_take_does_not_count(ctx: Context) -> None:
    facts = long_facts()
    for row in facts["memory"][: LONG.settled - 1]:
        row["rss"] //= 2
    assert judged(ctx, facts).outcome is Outcome.PASS


def test_each_card_counts(ctx: Context) -> None:
    then = with_cards(ctx)
    facts = long_facts()
    for row in facts["memory"]:
        row["cards"] = {"GPU-aa": 70_000 * MIB, "GPU-bb": 70_000 * MIB}
    assert judged(then, facts).outcome is Outcome.PASS
    facts["memory"][-1]["cards"]["GPU-bb"] += 800 * MIB
    finding = judged(then, facts)
    assert (
        finding.outcome is Outcome.FAIL and "GPU-bb memory of cards grew by 800" in finding.summary
    )
    del facts["memory"][-1]["cards"]["GPU-bb"]
    assert judged(then, facts).outcome is Outcome.NOT_RUN  # a card was lost on the way


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory": []}, "memory of its processes: 0 samples"),
        ({"journal": None}, "the journal of that time"),
        ({"state": [None, None]}, "whether its unit was restarted"),
        ({"answers": []}, "0 of 10 prompts were recorded"),
    ],
)
def test_what_was_not_seen_is_no_pass(ctx: Context, changes: dict[str, Any], words: str) -> None:
    finding = judged(ctx, long_facts(**changes))
    assert finding.outcome is Outcome.NOT_RUN and words in finding.summary


def test_memory_that_could_not_be_read_is_no_pass(ctx: Context) -> None:
    facts = long_facts()
    facts["memory"][-1]["rss"] = None
    assert judged(ctx, facts).outcome is Outcome.NOT_RUN


# -- afterwards ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"after": {"status": 500, "body": "dead"}}, "the short prompt after: status 500, dead"),
        ({"after": {"status": 200, "text": ""}}, "the short prompt after: status 200"),
        ({"after": {"status": 200, "text": "other"}}, "is another afterwards"),
        ({"before": {"status": 503, "body": "x"}}, "the short prompt before: status 503"),
        ({"state": ["MainPID=1\n", "MainPID=2\n"]}, "the unit changed meanwhile"),
        ({"preemptions": [3.0, 5.0]}, "2 requests were preempted"),
        ({"journal": ["oom-kill: python", "x"]}, "the journal says: oom-kill: python and 1 more"),
        ({"error": "ConnectionResetError: x", "step": "prompt 4"}, "at prompt 4: ConnectionReset"),
    ],
)
def test_an_engine_that_suffered_fails(ctx: Context, changes: dict[str, Any], words: str) -> None:
    finding = judged(ctx, long_facts(**changes))
    assert finding.outcome is Outcome.FAIL and words in finding.summary


def test_a_count_of_preemptions_that_is_not_told_is_no_fault(ctx: Context) -> None:
    assert judged(ctx, long_facts(preemptions=[None, None])).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        (Output(rc=INACTIVE), "not_run"),
        (Output(rc=None), "not_run"),
        (Output(rc=124, seconds=50.0), "not_run"),
        (Output(rc=137, seconds=long_prompts.DEADLINE_S), "fail"),
        (ok("no answer"), "not_run"),
        (ok(probe_text({"unasked": "no vocab_size"})), "not_run"),
        (ok(probe_text({})), "not_run"),
        (ok(probe_text({"answers": 3, "memory": "x", "journal": [], "state": {}})), "not_run"),
    ],
)
def test_without_an_answer(ctx: Context, output: Output, outcome: str) -> None:
    answers = {"long_prompts.two": output}
    finding = found(ctx, long_prompts.CHECK, answers)["long_prompts.two"]
    assert finding.outcome == outcome and finding.remedy
    assert "the check itself is broken" not in finding.summary


# -- the probe against engines ---------------------------------------------------------------


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[int]:
    with running(getattr(request, "param", "")) as port:
        yield port


PROGRAMS = {
    "systemctl": "echo MainPID=7",
    "journalctl": 'case "$*" in *-k*) ;; *) cat @journal@ ;; esac',
    "nvidia-smi": "printf 'GPU-aa, 70000\\nGPU-bb, 70000\\n'",
}


def ask(tmp_path: Path, port: int, journal: str = "", **changes: Any) -> dict[str, Any]:
    """The probe as a node runs it, among programs that answer for this test."""
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 258}))
    (tmp_path / "two.env").write_text(f"VLLM_API_KEY={KEY}\n")
    (tmp_path / "journal").write_text(journal)
    for name, body in PROGRAMS.items():
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{body.replace('@journal@', str(tmp_path / 'journal'))}\n")
        file.chmod(0o755)
    params = {
        "env_file": str(tmp_path / "two.env"), "host": "127.0.0.1", "port": port, "model": "two",
        "path": str(tmp_path), "prompts": LONG.prompts, "output_tokens": LONG.output_tokens,
        "seed": LONG.seed, "max_model_len": 256, "unit": "vllm@two.service", "workers": "",
        "cards": True, "request_s": 10, "total_s": 30, "wait_s": 1, "after_s": 0,
    } | changes  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-"],
        input=probe.text("client", "prompts", "long_prompts", params=params),
        capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert KEY not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    return probe.answer(done.stdout)


def test_the_probe_asks_ten_prompts_of_all_but_the_output(tmp_path: Path, server: int) -> None:
    facts = ask(tmp_path, server)
    assert "error" not in facts and facts["limit"] == 256
    assert [a["prompt_tokens"] for a in facts["answers"]] == [240] * 10
    assert [a["total_tokens"] for a in facts["answers"]] == [256] * 10
    assert facts["preemptions"] == [0.0, 0.0] and facts["state"] == ["MainPID=7\n"] * 2
    assert facts["before"]["text"] == facts["after"]["text"] != ""
    assert facts["memory"][9]["cards"] == {"GPU-aa": 70000 * MIB, "GPU-bb": 70000 * MIB}
    assert facts["memory"][9]["rss"] is None  # there is no such unit here
    assert facts["journal"] == []


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("dead", "prompt 1, 2, 3, 4, 5, 6, 7, 8, 9, 10: status 500"),
        ("empty", "the text is empty"),
        ("short", "usage says 3 tokens came"),
        ("cuts-prompts", "usage says 233 tokens of prompt, 240 were sent"),
        ("dies", "at prompt 4: "),
        ("small", "the engine's limit is 128 tokens"),
        ("preempts", "requests were preempted"),
        ("wanders", "is another afterwards"),
    ],
    indirect=["server"],
)
def test_a_lying_engine_is_seen_through(
    ctx: Context, tmp_path: Path, server: int, words: str
) -> None:
    finding = judged(ctx, ask(tmp_path, server))
    assert finding.outcome is Outcome.FAIL and words in finding.summary


@pytest.mark.parametrize("server", ["hangs"], indirect=True)
def test_an_engine_that_hangs_is_given_up(ctx: Context, tmp_path: Path, server: int) -> None:
    finding = judged(ctx, ask(tmp_path, server, total_s=2))
    assert finding.outcome is Outcome.FAIL and "not finished within 2 s" in finding.summary


def test_the_journal_is_searched_for_what_matters(tmp_path: Path, server: int) -> None:
    text = (
        "INFO Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
        "INFO: 10.0.0.1 - POST /v1/completions 200 OK\n"
    )
    assert ask(tmp_path, server, journal=text)["journal"] == text.splitlines()[:2]


def test_a_model_without_a_vocabulary_is_not_asked(
    ctx: Context, tmp_path: Path, server: int
) -> None:
    facts = ask(tmp_path, server, path=str(tmp_path / "nothing"))
    finding = judged(ctx, facts)
    assert finding.outcome is Outcome.NOT_RUN and "config.json" in finding.summary


def test_prompts_have_no_common_beginning_and_no_control_tokens() -> None:
    names: dict[str, Any] = {"__name__": "probe"}
    exec(compile(probe.source("prompts"), "probe", "exec"), names)
    many = [names["prompt"](32000, 50, f"7 {number}") for number in range(20)]
    assert len({tuple(one[:8]) for one in many}) == 20
    assert all(8000 <= token < 24000 for one in many for token in one)
    assert many[0] == names["prompt"](32000, 50, "7 0")
