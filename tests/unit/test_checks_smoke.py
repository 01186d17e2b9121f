"""A generation from an engine: the probe against engines that lie, and its judgement."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.checks import probe, smoke
from rackpin.checks.base import INACTIVE, Context, Output
from rackpin.checks.summary import instance_results
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.probes.client import read_key
from tests.unit import checks_samples as samples
from tests.unit.checks_samples import found, good, ok, probe_text, replaced
from tests.unit.fake_engine import KEY, running


@pytest.fixture
def ctx(target: Target) -> Context:
    return samples.context(target)


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "two.env"
    path.write_text(f"# secret\nVLLM_API_KEY={KEY}\n")
    return path


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[int]:
    with running(getattr(request, "param", "")) as port:
        yield port


def ask(env_file: Path, port: int, total_s: int = 30) -> Output:
    """The probe as a node runs it: from stdin, by another Python, with nothing in its arguments."""
    params = {
        "env_file": str(env_file), "host": "127.0.0.1", "port": port, "model": "two",
        "prompt": smoke.PROMPT, "max_tokens": smoke.MAX_TOKENS, "request_s": 20, "total_s": total_s,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-"],
        input=probe.text("client", "smoke", params=params),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert KEY not in done.stdout + done.stderr
    return Output(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)


def test_a_good_engine_passes_with_its_times(ctx: Context, env_file: Path, server: int) -> None:
    findings = found(ctx, smoke.CHECK, smoke_two=ask(env_file, server))
    assert {f.outcome for f in findings.values()} == {"pass"}
    metrics = findings["smoke.two"].metrics
    assert 0 < metrics["ttft_s"] < 5 and 1 < metrics["tokens_per_s"] < 1000


@pytest.mark.parametrize(
    ("server", "outcome", "words"),
    [
        ("dead", Outcome.FAIL, "completion: status 500"),
        ("cut", Outcome.FAIL, "completion: not a completion"),
        ("empty", Outcome.FAIL, "completion: the text is empty"),
        ("short", Outcome.FAIL, "usage says 3 tokens, not 16"),
        ("other-model", Outcome.FAIL, "/v1/models names other, not two"),
        ("static", Outcome.FAIL, "/v1/models names status 200"),
        ("stream-breaks", Outcome.FAIL, "stream: ended without [DONE]"),
        ("other-stream", Outcome.FAIL, "stream, again differ"),
        ("rounds", Outcome.WARN, "2 different texts in 5 answers"),
        ("wanders", Outcome.FAIL, "4 different texts in 5 answers"),
    ],
    indirect=["server"],
)
def test_a_lying_engine_is_seen_through(
    ctx: Context, env_file: Path, server: int, outcome: Outcome, words: str
) -> None:
    finding = found(ctx, smoke.CHECK, smoke_two=ask(env_file, server))["smoke.two"]
    assert finding.outcome is outcome and words in finding.summary


@pytest.mark.parametrize("server", ["hangs"], indirect=True)
def test_an_engine_that_hangs_is_given_up(ctx: Context, env_file: Path, server: int) -> None:
    finding = found(ctx, smoke.CHECK, smoke_two=ask(env_file, server, total_s=2))["smoke.two"]
    assert finding.outcome is Outcome.FAIL
    assert "no whole answer within 2 s" in finding.summary


@pytest.mark.parametrize("server", ["open"], indirect=True)
def test_an_engine_that_answers_to_anybody_fails(ctx: Context, env_file: Path, server: int) -> None:
    findings = found(ctx, smoke.CHECK, smoke_two=ask(env_file, server))
    assert findings["smoke.two"].outcome is Outcome.PASS
    assert findings["smoke.two.auth"].outcome is Outcome.FAIL
    assert "wrong key: status 200" in findings["smoke.two.auth"].summary


@pytest.mark.parametrize("server", ["side-door"], indirect=True)
def test_a_route_beside_v1_that_needs_no_key_warns(
    ctx: Context, env_file: Path, server: int
) -> None:
    finding = found(ctx, smoke.CHECK, smoke_two=ask(env_file, server))["smoke.two.auth"]
    assert finding.outcome is Outcome.WARN
    assert "without it also answer: /invocations" in finding.summary
    assert "gateway" in finding.remedy


def test_nobody_there(ctx: Context, env_file: Path) -> None:
    finding = found(ctx, smoke.CHECK, smoke_two=ask(env_file, 9))["smoke.two"]
    assert finding.outcome is Outcome.FAIL and "ConnectionRefusedError" in finding.summary


def test_without_a_key_file(ctx: Context, tmp_path: Path, server: int) -> None:
    findings = found(ctx, smoke.CHECK, smoke_two=ask(tmp_path / "no.env", server))
    assert findings["smoke.two"].outcome is Outcome.FAIL
    assert "at key: FileNotFoundError" in findings["smoke.two"].summary
    (tmp_path / "empty.env").write_text("# nothing\n")
    findings = found(ctx, smoke.CHECK, smoke_two=ask(tmp_path / "empty.env", server))
    assert "no VLLM_API_KEY" in findings["smoke.two.auth"].summary


@pytest.mark.parametrize(
    ("text", "key"),
    [("VLLM_API_KEY=abc\n", "abc"), (" VLLM_API_KEY='a b' \n", "a b"), ("", ""),
     ('X=1\nVLLM_API_KEY="q"', "q"), ("#VLLM_API_KEY=abc", ""), ("VLLM_API_KEY=", "")],
)  # fmt: skip
def test_read_key(text: str, key: str) -> None:
    assert read_key(text) == key


# -- whose port it is --------------------------------------------------------------------


def port(ctx: Context, old: str, new: str) -> Finding:
    sockets = replaced(good(ctx)["listeners"], old, new)
    return found(ctx, smoke.CHECK, listeners=sockets)["smoke.two"]


def test_an_answer_from_somebody_elses_port_is_none(ctx: Context) -> None:
    finding = port(ctx, '("VLLM::APIServer",pid=1377', '("python3",pid=6666')
    assert finding.outcome is Outcome.FAIL
    assert "python3[6666] holds the port, not vllm@two.service" in finding.summary
    assert port(ctx, "10.9.0.11:8000 ", "10.9.0.11:8001 ").outcome is Outcome.FAIL


def test_a_port_whose_owner_was_not_seen_is_not_run(ctx: Context) -> None:
    finding = found(ctx, smoke.CHECK, listeners=Output(rc=124))["smoke.two"]
    assert finding.outcome is Outcome.NOT_RUN and "whose port" in finding.summary


# -- no answer ---------------------------------------------------------------------------


def test_an_engine_that_is_not_running_is_not_asked(ctx: Context) -> None:
    findings = found(ctx, smoke.CHECK, smoke_two=Output(rc=INACTIVE))
    assert {f.outcome for f in findings.values()} == {"not_run"}
    assert "engine is not running" in findings["smoke.two"].summary


def test_a_mute_engine_fails(ctx: Context) -> None:
    findings = found(ctx, smoke.CHECK, smoke_two=Output(rc=124, seconds=45.0))
    assert findings["smoke.two"].outcome is Outcome.FAIL
    assert "no answer within 45" in findings["smoke.two"].summary
    assert findings["smoke.two.auth"].outcome is Outcome.NOT_RUN


@pytest.mark.parametrize("part", ["models", "completion", "stream", "repeat", "auth"])
def test_a_part_that_was_not_asked_is_no_pass(ctx: Context, part: str) -> None:
    facts = {k: v for k, v in samples.smoke_facts().items() if k != part}
    findings = found(ctx, smoke.CHECK, smoke_two=ok(probe_text(facts)))
    assert {f.outcome for f in findings.values()} != {"pass"}


# -- the report's table --------------------------------------------------------------------


def test_engines_in_the_report(ctx: Context) -> None:
    findings = list(found(ctx, smoke.CHECK).values())
    two, one = instance_results(ctx.fleet, findings)
    assert (two.state, two.ttft_s, two.tokens_per_s) == ("serving", 0.05, 40.0)
    assert two.url == "http://10.9.0.11:8000/v1"
    assert (one.name, one.state, one.ttft_s) == ("one", "unknown", None)
    failed = list(found(ctx, smoke.CHECK, smoke_two=Output(rc=124)).values())
    assert instance_results(ctx.fleet, failed)[0].state == "not_serving"
