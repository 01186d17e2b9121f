"""Versions: what is installed, and what the running processes have in memory."""

from __future__ import annotations

import json

import pytest

from rackpin.checks import running, versions
from rackpin.checks.base import Context, Output
from rackpin.desired import Target
from rackpin.findings import Outcome
from tests.unit import checks_samples as samples
from tests.unit.checks_samples import found, good, ok, replaced

OLD = "cpu-lab-0123456789ab"


@pytest.fixture
def ctx(target: Target) -> Context:
    return samples.context(target)


def survey(ctx: Context, old: str, new: str) -> Output:
    return replaced(good(ctx)["procs"], old, new)


def test_an_old_environment_in_memory_is_a_pending_restart(ctx: Context) -> None:
    line = "1440/maps:/opt/rackpin/env/"
    old = survey(ctx, f"{line}{ctx.lock.env_name}", f"{line}{OLD}")
    finding = found(ctx, running.CHECK, procs=old)["versions.running"]
    assert finding.outcome is Outcome.FAIL
    assert "restart pending, roll needed" in finding.summary and OLD in finding.summary
    assert "vllm@two.service" in finding.remedy and "ray" not in finding.remedy


def test_both_environments_in_one_process_fail_too(ctx: Context) -> None:
    env = f"901/maps:/opt/rackpin/env/{ctx.lock.env_name}"
    both = survey(ctx, env, f"{env}\n901/maps:/opt/rackpin/env/{OLD}")
    assert found(ctx, running.CHECK, procs=both)["versions.running"].outcome is Outcome.FAIL


def test_a_unit_that_runs_something_else_fails(ctx: Context) -> None:
    lines = good(ctx)["procs"].stdout.splitlines()
    other = "\n".join(x for x in lines if not x.startswith(("1377/maps", "1440/maps")))
    finding = found(ctx, running.CHECK, procs=ok(other))["versions.running"]
    assert finding.outcome is Outcome.FAIL and "vllm@two" in finding.summary


def test_no_process_is_not_run(ctx: Context) -> None:
    lines = good(ctx)["procs"].stdout.splitlines()
    gone = "\n".join(x for x in lines if not x.startswith(("1377/", "1440/")))
    assert found(ctx, running.CHECK, procs=ok(gone))["versions.running"].outcome == "not_run"


def test_a_gate_before_the_start_is_no_process_of_the_engine(ctx: Context) -> None:
    """While a unit waits in ExecStartPre, its processes use no library of the environment."""
    lines = good(ctx)["procs"].stdout.splitlines()
    gate = ok("\n".join(x for x in lines if not x.startswith(("1377/maps", "1440/maps"))))
    starting = ok(good(ctx)["units.show"].stdout.replace("ActiveState=active", "ActiveState=x"))
    finding = found(ctx, running.CHECK, procs=gate, units_show=starting)["versions.running"]
    assert finding.outcome is Outcome.NOT_RUN and "vllm@two" in finding.summary


def dists(ctx: Context, **changes: str | None) -> Output:
    have: dict[str, str | None] = {**ctx.lock.dists, **changes}
    have = {name: version for name, version in have.items() if version is not None}
    return ok(json.dumps({"python": f"{ctx.lock.python}.2", "dists": have}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ray": "2.9.0"}, "1 at another version: ray is 2.9.0"),
        ({"ray": None}, "1 missing: ray"),
        ({"pip": "24.0"}, "1 not in the lock: pip 24.0"),
        ({"ray": None, "torch": "2.3.0", "cowsay": "6"}, "not in the lock"),
        ({"torch": "?"}, "torch is ?"),
    ],
)
def test_the_environment_must_be_the_lock_exactly(ctx: Context, changes, words: str) -> None:
    found_ = found(ctx, versions.CHECK, versions_installed=dists(ctx, **changes))
    assert found_["versions.wheels"].outcome is Outcome.FAIL
    assert words in found_["versions.wheels"].summary
    assert found_["versions.python"].outcome is Outcome.PASS


def test_names_are_compared_normalised(ctx: Context) -> None:
    have = {name.replace("-", "_").upper(): v for name, v in ctx.lock.dists.items()}
    output = ok(json.dumps({"python": f"{ctx.lock.python}.2", "dists": have}))
    outcome = found(ctx, versions.CHECK, versions_installed=output)["versions.wheels"].outcome
    assert outcome is Outcome.PASS


@pytest.mark.parametrize("python", ["3.12.1", "3.1", "3.110.2", ""])
def test_another_python_fails(ctx: Context, python: str) -> None:
    output = ok(json.dumps({"python": python, "dists": ctx.lock.dists}))
    findings = found(ctx, versions.CHECK, versions_installed=output)
    assert findings["versions.python"].outcome is Outcome.FAIL


@pytest.mark.parametrize(
    "text", ["{}", "[]", "3.11", '{"python": "3.11.2"}', '{"python": "3.11.2", "dists": {}}',
             '{"python": "3.11.2", "dists": ["ray"]}', '{"python": null, "dists": {"a": "1"}}'],
)  # fmt: skip
def test_an_odd_answer_of_the_probe_is_not_run(ctx: Context, text: str) -> None:
    findings = found(ctx, versions.CHECK, versions_installed=ok(text))
    assert {findings[c].outcome for c in ("versions.python", "versions.wheels")} == {"not_run"}


@pytest.mark.parametrize(
    ("text", "outcome", "words"),
    [
        ("no link\n", Outcome.FAIL, "no link"),
        (f"/opt/rackpin/env/{OLD}\ncomplete\n", Outcome.FAIL, OLD),
        ("/opt/rackpin/env/@ENV@\nincomplete\n", Outcome.FAIL, "never finished"),
        ("/opt/rackpin/env/@ENV@\n", Outcome.NOT_RUN, "not a path"),
        ("\ncomplete\n", Outcome.NOT_RUN, "not a path"),
        (f"/opt/rackpin/env/{OLD}\nincomplete\n", Outcome.FAIL, ".complete"),
    ],
)
def test_the_link_in_use(ctx: Context, text: str, outcome: Outcome, words: str) -> None:
    output = ok(text.replace("@ENV@", ctx.lock.env_name))
    finding = found(ctx, versions.CHECK, versions_current=output)["versions.current"]
    assert finding.outcome is outcome and words in finding.summary
