"""The fixed load: the generator and the probe's own one against engines, and its judgement."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackpin.checks import baseline, gpuinfo, judge, of_level, probe
from rackpin.checks.base import INACTIVE, Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.skus import Figure, load_sku
from tests.unit import checks_samples as samples
from tests.unit import serving_samples as serving
from tests.unit.checks_samples import found, ok, probe_text
from tests.unit.fake_engine import KEY, running
from tests.unit.serving_samples import LOAD, bench_facts, own_facts
from tests.unit.test_checks_registry import SILENT

USUAL = {"tokens_per_s": 320.0, "itl_s": 0.024, "ttft_s": 0.076}


@pytest.fixture
def ctx(target: Target) -> Context:
    return samples.context(target)


def judged(ctx: Context, facts: dict[str, Any]) -> Finding:
    return found(ctx, baseline.CHECK, {"baseline.two": ok(probe_text(facts))})["baseline.two"]


def with_history(
    ctx: Context, runs: int = 3, version: float = LOAD.version, **values: float
) -> Context:
    usual = {**USUAL, **values}
    history = {f"baseline.two {name}": [value] * runs for name, value in usual.items()}
    return replace(ctx, history=history | {"baseline.two load_version": [version] * runs})


# -- judgement -----------------------------------------------------------------------------


def test_it_is_asked_at_the_level_of_the_fleet_and_only_when_engines_serve(ctx: Context) -> None:
    assert baseline.CHECK in of_level("fleet") and baseline.CHECK not in of_level("pair")
    assert baseline.CHECK not in of_level("fleet", serving=False)
    (command,) = baseline.CHECK.commands(ctx)
    assert command.slow and command.deadline_s > baseline.TOTAL_S
    assert "api" not in command.shell.lower()


@pytest.mark.parametrize("facts", [bench_facts(), own_facts()])
def test_the_first_run_is_recorded(ctx: Context, facts: dict[str, Any]) -> None:
    finding = judged(ctx, facts)
    assert finding.outcome is Outcome.PASS
    assert "recorded as the first baseline" in finding.summary
    assert finding.metrics.keys() >= {"ttft_s", "itl_s", "tokens_per_s", "load_version"}
    own = "this vLLM has no generator" in finding.summary
    assert own is (facts["generator"] is False)


def test_numbers_are_in_seconds_and_tokens(ctx: Context) -> None:
    metrics = judged(ctx, bench_facts()).metrics
    assert (metrics["ttft_s"], metrics["itl_s"]) == (0.076, 0.024)
    metrics = judged(ctx, own_facts()).metrics
    assert metrics["itl_s"] == pytest.approx(0.01) and metrics["ttft_s"] == pytest.approx(0.05)
    assert metrics["tokens_per_s"] == pytest.approx(LOAD.prompts * LOAD.output_tokens / 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"failed": 3, "completed": 29, "errors": ["Internal Server Error"]},
            "3 of 32 requests failed",
        ),
        ({"completed": 29, "failed": None}, "3 of 32 requests failed"),
        ({"output_lens": [64] * 31 + [3]}, "1 answers have other than 64 tokens (3)"),
        ({"output_lens": None, "total_output_tokens": 1000}, "32 answers have other than"),
        ({"empty_texts": 32}, "32 of 32 texts are empty"),
    ],
)
def test_a_generator_that_ends_well_over_bad_answers_is_seen_through(
    ctx: Context, changes: dict[str, Any], words: str
) -> None:
    finding = judged(with_history(ctx), bench_facts(**changes))
    assert finding.outcome is Outcome.FAIL and words in finding.summary
    assert not finding.metrics  # the speed of wrong answers gets into no history


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"median_itl_ms": None}, "no itl_s was measured"),
        ({"output_throughput": float("nan")}, "no tokens_per_s was measured"),
        ({"output_throughput": 0.0}, "no tokens_per_s"),
        ({"completed": None}, "how many requests were answered"),
        ({"output_lens": [], "completed": 32}, "how many tokens came"),
    ],
)
def test_what_a_generator_does_not_tell_is_no_pass(
    ctx: Context, changes: dict[str, Any], words: str
) -> None:
    finding = judged(ctx, bench_facts(**changes))
    assert finding.outcome is Outcome.NOT_RUN and words in finding.summary


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": 500, "error": ""}, "1 of 32 answers are bad: status 500"),
        ({"done": False}, "ended without [DONE]"),
        ({"empty": True}, "an answer is empty"),
        ({"times": []}, "an answer is empty"),
        ({"tokens": 63}, "63 tokens came, not 64"),
        ({"status": None, "error": "no answer within 60 s"}, "no answer within 60 s"),
    ],
)
def test_bad_answers_to_the_own_load_fail(
    ctx: Context, changes: dict[str, Any], words: str
) -> None:
    finding = judged(ctx, own_facts(**changes))
    assert finding.outcome is Outcome.FAIL and words in finding.summary


def test_a_version_that_counts_no_tokens_in_streams_is_counted_by_its_events(ctx: Context) -> None:
    assert judged(ctx, own_facts(tokens=None)).outcome is Outcome.PASS


# -- comparison ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "outcome", "words"),
    [
        ({}, "pass", "held against the median of 3 earlier runs"),
        ({"tokens_per_s": 420.0}, "warn", "tokens_per_s 320 is 0.76 times the usual 420"),
        ({"tokens_per_s": 700.0}, "fail", "tokens_per_s 320 is 0.46 times"),
        ({"itl_s": 0.018}, "warn", "itl_s 0.024 is 1.33 times"),
        ({"ttft_s": 0.02}, "fail", "ttft_s 0.076 is 3.80 times"),
        ({"tokens_per_s": 100.0, "itl_s": 0.1}, "pass", "held against"),  # faster than ever
    ],
)
def test_it_is_held_against_earlier_runs(
    ctx: Context, values: dict[str, float], outcome: str, words: str
) -> None:
    finding = judged(with_history(ctx, **values), bench_facts())
    assert finding.outcome == outcome and words in finding.summary
    assert finding.metrics["tokens_per_s"] == 320.0  # also when it is slow: it was measured


@pytest.mark.parametrize(
    ("runs", "version", "words"),
    [
        (2, 1, "recorded as baseline 3"),
        (9, 0, "recorded as the first baseline"),
        (3, 1, "median of 3"),
    ],
)
def test_too_few_runs_or_another_load_decide_nothing(
    ctx: Context, runs: int, version: float, words: str
) -> None:
    finding = judged(with_history(ctx, runs, version, tokens_per_s=320.0), bench_facts())
    assert finding.outcome is Outcome.PASS and words in finding.summary
    assert (
        runs == 3
        or judged(with_history(ctx, runs, version, tokens_per_s=9999.0), bench_facts()).outcome
        is Outcome.PASS
    )


def test_one_odd_earlier_run_does_not_decide(ctx: Context) -> None:
    then = with_history(ctx)
    history = {**then.history, "baseline.two tokens_per_s": [320.0, 9000.0, 321.0]}
    assert judged(replace(then, history=history), bench_facts()).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("expected", "conditions", "outcome", "words"),
    [
        (330.0, str(LOAD), "pass", "SKU's figure 330 tokens/s"),
        (380.0, str(LOAD), "warn", "below 342"),
        (700.0, str(LOAD), "fail", "below 350"),
        (700.0, "another load", "warn", "was not measured with"),
    ],
)
def test_the_skus_figure_counts_where_it_has_one(
    ctx: Context, monkeypatch: pytest.MonkeyPatch,
    expected: float, conditions: str, outcome: str, words: str,
) -> None:  # fmt: skip
    figure = Figure(
        name="serving_tokens_per_s two tp2 pp1", unit="tokens/s", expected=expected,
        warn_below=0.9 * expected, fail_below=0.5 * expected, conditions=conditions, source="here",
    )  # fmt: skip
    sku = load_sku("lab-cpu").model_copy(update={"figures": [figure]})
    monkeypatch.setattr(gpuinfo, "sku_of", lambda ctx: sku)
    finding = judged(ctx, bench_facts())
    assert finding.outcome == outcome and words in finding.summary


# -- no load -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "outcome", "words"),
    [
        (Output(rc=INACTIVE), "not_run", "engine is not running"),
        (Output(rc=124, seconds=240.0), "fail", "the engine gave no answer within 240 s"),
        (Output(rc=124, seconds=30.0), "not_run", "no answer within 30 s"),  # the batch's time
        (Output(rc=None), "not_run", "no answer from the node"),
        (Output(rc=1, stderr="Traceback"), "not_run", "printed no answer"),
        (ok(probe_text({"unasked": "another measurement holds it"})), "not_run", "another meas"),
        (ok(probe_text({"error": {"step": "load", "text": "late"}})), "fail", "at the load"),
        (ok(probe_text({"first": {"status": 500, "body": "dead"}})), "fail", "status 500"),
        (ok(probe_text({"first": {}})), "fail", "first request: status None"),
        (ok(probe_text({"first": serving.first(), "generator": True, "rc": 1,
                        "said": "x\nImportError: no pandas"})), "not_run", "no pandas"),
        (ok(probe_text({"first": serving.first(), "generator": False})), "fail", "0 of 32"),
    ],
)  # fmt: skip
def test_without_a_load(ctx: Context, output: Output, outcome: str, words: str) -> None:
    finding = found(ctx, baseline.CHECK, {"baseline.two": output})["baseline.two"]
    assert finding.outcome == outcome and words in finding.summary and finding.remedy


@pytest.mark.parametrize("silence", SILENT)
def test_silence_is_no_pass_at_any_level(ctx: Context, silence: str) -> None:
    checks = [check for check in of_level("burnin") if check not in of_level("pair")]
    names = [command.name for check in checks for command in check.commands(ctx)]
    answer = SILENT[silence]
    findings = judge(ctx, {} if answer is None else dict.fromkeys(names, answer), checks)
    mine = [f for f in findings if f.check.startswith(("baseline.", "long_prompts."))]
    assert len(mine) == 2 and not any(f.outcome is Outcome.PASS for f in mine)
    assert not any("the check itself is broken" in f.summary for f in mine)


def test_a_model_that_is_too_short_for_the_load_has_no_baseline(ctx: Context) -> None:
    two = ctx.fleet.config.instances[0].model_copy(update={"max_model_len": 100})
    then = samples.with_config(ctx, instances=[two])
    assert not baseline.CHECK.commands(then)
    (finding,) = baseline.CHECK.judge(then, {})
    assert finding.outcome is Outcome.NOT_RUN and not finding.required


# -- the probe against engines ---------------------------------------------------------------


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[int]:
    with running(getattr(request, "param", "")) as port:
        yield port


def params(tmp_path: Path, port: int, **changes: Any) -> dict[str, Any]:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 258}}))
    (tmp_path / "two.env").write_text(f"VLLM_API_KEY={KEY}\n")
    return {
        "env_file": str(tmp_path / "two.env"), "host": "127.0.0.1", "port": port, "model": "two",
        "path": str(tmp_path), "load": LOAD.model_dump(exclude={"reason", "version"}), "user": "",
        "temporary": str(tmp_path), "request_s": 20, "total_s": 40, "wait_s": 1,
    } | changes  # fmt: skip


def ask(params: dict[str, Any]) -> Output:
    """The probe as a node runs it, in an environment without vLLM: its own load."""
    done = subprocess.run(
        [sys.executable, "-I", "-"],
        input=probe.text("client", "prompts", "load", params=params),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert KEY not in done.stdout + done.stderr
    return Output(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)


def test_the_own_load_measures_an_engine(ctx: Context, tmp_path: Path, server: int) -> None:
    finding = found(ctx, baseline.CHECK, {"baseline.two": ask(params(tmp_path, server))})
    assert finding["baseline.two"].outcome is Outcome.PASS, finding
    assert "rackpin's own load" in finding["baseline.two"].summary
    assert 0 < finding["baseline.two"].metrics["itl_s"] < 1


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("dead", "first request: status 500"),
        ("static", "first request: status 501"),
        ("fails-some", "answers are bad: status 500"),
        ("stream-breaks", "ended without [DONE]"),
        ("short-streams", "63 tokens came, not 64"),
    ],
    indirect=["server"],
)
def test_a_lying_engine_is_seen_through(
    ctx: Context, tmp_path: Path, server: int, words: str
) -> None:
    answers = {"baseline.two": ask(params(tmp_path, server))}
    finding = found(ctx, baseline.CHECK, answers)["baseline.two"]
    assert finding.outcome is Outcome.FAIL and words in finding.summary


@pytest.mark.parametrize("server", ["hangs"], indirect=True)
def test_an_engine_that_hangs_is_given_up(ctx: Context, tmp_path: Path, server: int) -> None:
    answers = {"baseline.two": ask(params(tmp_path, server, total_s=2))}
    finding = found(ctx, baseline.CHECK, answers)["baseline.two"]
    assert finding.outcome is Outcome.FAIL and "not finished within 2 s" in finding.summary


def test_two_measurements_at_once_are_none(ctx: Context, tmp_path: Path, server: int) -> None:
    names: dict[str, Any] = {"__name__": "probe"}
    exec(compile(probe.source("prompts"), "probe", "exec"), names)
    values = params(tmp_path, server)
    held = names["alone"](values["env_file"], 0)
    finding = found(ctx, baseline.CHECK, {"baseline.two": ask(values)})["baseline.two"]
    held.close()
    assert finding.outcome is Outcome.NOT_RUN and "another measurement" in finding.summary


GENERATOR = """\
import json, os, sys
from pathlib import Path
def add_cli_args(parser):
    for line in {options!r}.split():
        parser.add_argument(line, action="store_true")
    parser.add_argument("rest", nargs="*")
def main(args):
    given = dict(word[2:].split("=", 1) for word in args.rest if "=" in word)
    seen = {{"argv": sys.argv, "key": os.environ["OPENAI_API_KEY"], "home": os.environ["HOME"]}}
    Path({seen!r}).write_text(json.dumps(seen))
    result = {{"completed": int(given["num-prompts"]), "failed": 0, "output_throughput": 10.5,
              "generated_texts": ["a", ""], "errors": ["", "boom"], "ttfts": [1, 2]}}
    Path(given["result-dir"], given["result-filename"]).write_text(json.dumps(result))
    sys.exit({status})
"""


@pytest.mark.parametrize("status", [0, 3])
def test_the_generator_gets_the_key_by_its_environment_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The engine's own generator is a module of its package; here one of that name."""
    package = tmp_path / "site" / "vllm" / "benchmarks"
    package.mkdir(parents=True)
    text = GENERATOR.format(
        options="--ignore-eos --disable-tqdm --save-result --save-detailed",
        seen=str(tmp_path / "seen"), status=status,
    )  # fmt: skip
    text = text.replace("args.rest", "sys.argv[1:]").replace(
        '    parser.add_argument("rest", nargs="*")\n',
        "    for word in sys.argv[1:]:\n"
        "        if '=' in word: parser.add_argument(word.split('=')[0])\n",
    )
    (package / "serve.py").write_text(text)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    names: dict[str, Any] = {"__name__": "probe"}
    source = probe.text("client", "prompts", "load", params={})
    exec(compile(source, "probe", "exec"), names)
    assert names["has_generator"]() is False
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert names["has_generator"]() is True
    monkeypatch.setattr(sys, "executable", str(python))
    run = tmp_path / "run"
    run.mkdir()
    facts = names["by_generator"](params(tmp_path, 8000, temporary=str(run)), KEY)
    seen = json.loads((tmp_path / "seen").read_text())
    assert facts["rc"] == status and facts["result"]["completed"] == LOAD.prompts
    assert facts["result"]["empty_texts"] == 1 and facts["result"]["errors"] == ["boom"]
    assert "ttfts" not in facts["result"]
    assert seen["key"] == KEY and KEY not in " ".join(seen["argv"])
    assert seen["home"].startswith(str(run)) and not list(run.iterdir())
