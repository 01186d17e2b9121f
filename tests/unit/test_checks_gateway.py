"""The gateway's checks: who is drained, what listens, and that no key is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rackpin.checks import gateway, gateway_engines, judge, listeners, of_level
from rackpin.checks.base import Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.gateway.routes import bearer
from rackpin.probes import gateway as probe
from tests.unit import checks_samples, gateway_samples
from tests.unit.checks_samples import ok, probe_text

CHECKS = (gateway.CHECK, gateway_engines.UPSTREAMS, gateway_engines.ANSWERS)


@pytest.fixture
def ctx(target: Target) -> Context:
    return gateway_samples.context(checks_samples.context(target))


def with_fleet(ctx: Context, **changes: Any) -> Context:
    return replace(ctx, fleet=ctx.fleet.model_copy(update=changes))


def found(ctx: Context, **outputs: Output) -> dict[str, Finding]:
    answers = gateway_samples.answers(ctx) | {f"gateway.{k}": v for k, v in outputs.items()}
    return {f.check: f for f in judge(ctx, answers, CHECKS)}


def test_a_healthy_gateway(ctx: Context) -> None:
    good = found(ctx)
    assert set(good) == {
        "gateway.unit", "gateway.config", "gateway.key", "gateway.upstreams",
        "gateway.answers.two", "gateway.answers.one",
    }  # fmt: skip
    assert {f.outcome for f in good.values()} == {Outcome.PASS}


def test_other_nodes_and_kept_out_gateways_are_asked_nothing(ctx: Context) -> None:
    for other in (
        replace(ctx, node=ctx.fleet.nodes["head1"]),
        with_fleet(ctx, kept_out={"gate1": "ops"}),
    ):
        assert not [c for check in CHECKS for c in check.commands(other)]
        assert judge(other, {}, CHECKS) == []
    assert not [c for c in of_level("node", serving=False) if c in CHECKS]


def test_a_drained_model_is_said_and_not_asked(ctx: Context) -> None:
    bad = found(with_fleet(ctx, drained={"one": "ada: x"}))
    assert bad["gateway.upstreams"].outcome is Outcome.WARN
    assert "one: every engine is drained" in bad["gateway.upstreams"].summary
    assert bad["gateway.answers.one"].outcome is Outcome.NOT_RUN
    assert bad["gateway.answers.two"].outcome is Outcome.PASS


def test_one_of_two_engines_is_a_worry_both_are_a_fault(ctx: Context) -> None:
    twins = [i.model_copy(update={"served_name": "m"}) for i in ctx.fleet.config.instances]
    both = checks_samples.with_config(ctx, instances=twins)
    facts = {"one": [0, "ConnectionRefusedError"], "two": [200, "0.1 s"]}
    answer = found(both, upstreams=ok(probe_text({"upstreams": facts})))
    assert answer["gateway.upstreams"].outcome is Outcome.WARN
    facts["two"] = [502, ""]
    answer = found(both, upstreams=ok(probe_text({"upstreams": facts})))
    assert answer["gateway.upstreams"].outcome is Outcome.FAIL


def test_a_drain_that_the_gateway_was_not_told_is_seen(ctx: Context) -> None:
    before = gateway_samples.answers(ctx)
    after = with_fleet(ctx, drained={"one": "ada: x"})
    bad = {f.check: f for f in judge(after, before, CHECKS)}["gateway.config"]
    assert bad.outcome is Outcome.FAIL and "not in force" in bad.summary
    assert "nginx.conf is not as wished" in bad.summary


def test_digests_of_secret_files_are_in_no_report(ctx: Context) -> None:
    files = {f.path: f for f in gateway.stage.config_files(gateway.target(ctx))}
    digest = files["/etc/rackpin/gateway/keys.conf"].sha256
    facts = gateway_samples.facts(ctx)["gate"]
    facts["files"] = {path: text.replace(" 6", " 7") for path, text in facts["files"].items()}
    for findings in (found(ctx), found(ctx, gate=ok(probe_text(facts)))):
        assert digest not in "".join(f.model_dump_json() for f in findings.values())


def test_the_probe_reads_the_keys_back(tmp_path: Any) -> None:
    file = tmp_path / "keys.conf"
    some = ["plain123", 'a"b\\c$d{e}.*', "schlüssel|x"]
    file.write_text("".join(f'  "{bearer(key)}" 1;\n' for key in some), encoding="utf-8")
    assert probe.keys(str(file)) == some


def test_nginx_may_listen_on_the_gateways_port_and_nobody_else(ctx: Context) -> None:
    text = (
        'LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=301,fd=3))\n'
        'LISTEN 0 511 10.9.0.14:8080 0.0.0.0:* users:(("%s",pid=9,fd=6))'
    )
    for program, outcome in (("nginx", Outcome.PASS), ("python3", Outcome.FAIL)):
        output = checks_samples.listening(text % program)
        (finding,) = judge(ctx, {"listeners": output}, [listeners.CHECK])
        assert finding.outcome is outcome, finding.summary
