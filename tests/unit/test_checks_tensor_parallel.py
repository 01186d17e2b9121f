"""TP in effect: the log, a process a rank, cards filled alike; and what lies about each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackpin.checks import tensor_parallel
from rackpin.checks.base import INACTIVE, Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.stack.lock import load_stack
from tests.unit import checks_samples as samples
from tests.unit import serving_samples as serving
from tests.unit.checks_samples import found, good, ok, replaced

MIB = 2**20


@pytest.fixture
def ctx(target: Target) -> Context:
    return samples.context(target)


def log(ctx: Context, text: str) -> Finding:
    answers = good(ctx) | {"tp.log.two": ok(serving.journal(text))}
    return found(ctx, tensor_parallel.CHECK, answers)["tp.two"]


def test_a_sound_engine_passes_with_its_kv_cache(ctx: Context) -> None:
    finding = log(ctx, serving.log_text())
    assert finding.outcome is Outcome.PASS
    assert finding.metrics == {"kv_tokens": 32768.0, "world_size": 2.0, "ranks_count": 1.0}
    assert "world of 2, KV cache of 32,768 tokens, 1 engine ranks" in finding.summary


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (serving.log_text(tp=1), "started with tp 1, not 2"),
        (serving.log_text(pp=2), "started with pp 2, not 1"),
        (serving.log_text().replace("world_size=2", "world_size=1"), "formed a world of 1, not 2"),
        (serving.log_text().replace("TP rank 0", "TP rank 2"), "TP rank 2 in a group of 2"),
        (serving.log_text(kv="128"), "holds 128 tokens, not one of 256"),
        (serving.log_text(kv="0"), "the KV cache is empty"),
    ],
)
def test_a_log_that_says_something_else_fails(ctx: Context, text: str, words: str) -> None:
    finding = log(ctx, text)
    assert finding.outcome is Outcome.FAIL and words in finding.summary


def test_all_faults_of_one_engine_are_named(ctx: Context) -> None:
    answers = good(ctx) | {"tp.log.two": ok(serving.journal(serving.log_text(tp=1)))}
    answers["procs"] = replaced(answers["procs"], "930/comm:ray::RayWorkerP", "930/comm:ray::IDLE")
    summary = found(ctx, tensor_parallel.CHECK, answers)["tp.two"].summary
    assert "started with tp 1" in summary and "world of 1" in summary
    assert "0 engine ranks of Ray run here, not 1" in summary


def test_a_log_that_claims_two_ranks_does_not_make_up_for_one_process(ctx: Context) -> None:
    procs = replaced(good(ctx)["procs"], "930/comm:ray::RayWorkerP", "930/comm:ray::IDLE")
    finding = found(ctx, tensor_parallel.CHECK, procs=procs)["tp.two"]
    assert finding.outcome is Outcome.FAIL
    assert "0 engine ranks of Ray run here, not 1" in finding.summary


def test_a_rank_that_an_earlier_start_left_behind_is_told(ctx: Context) -> None:
    procs = replaced(good(ctx)["procs"], "901/comm:raylet", "901/comm:ray::RayWorkerP")
    finding = found(ctx, tensor_parallel.CHECK, procs=procs)["tp.two"]
    assert finding.outcome is Outcome.FAIL and "left over" in finding.summary


def test_the_other_node_tells_only_of_its_workers(target: Target) -> None:
    ctx = samples.context(target, "worker1")
    names = [command.name for command in tensor_parallel.CHECK.commands(ctx)]
    assert names == ["procs"]
    procs = replaced(
        samples.good(samples.context(target))["procs"], "ray-head.service", "ray-worker.service"
    )
    finding = found(ctx, tensor_parallel.CHECK, {"procs": procs})["tp.two"]
    assert finding.outcome is Outcome.PASS
    gone = replaced(procs, "930/comm:ray::RayWorkerP", "930/comm:ray::IDLE")
    finding = found(ctx, tensor_parallel.CHECK, {"procs": gone})["tp.two"]
    assert finding.outcome is Outcome.FAIL and "head1" in finding.remedy


def test_an_engine_of_one_rank_has_it_in_its_own_process(target: Target) -> None:
    ctx = samples.context(target, "worker2")
    procs = good(samples.context(target))["procs"]
    procs = replaced(
        replaced(procs, "vllm@two", "vllm@one"), "930/comm:ray::RayWorkerP", "930/comm:x"
    )
    answers = {"procs": procs, "tp.log.one": ok(serving.journal(serving.log_text(tp=1)))}
    assert found(ctx, tensor_parallel.CHECK, answers)["tp.one"].outcome is Outcome.PASS
    answers["procs"] = replaced(procs, "VLLM::EngineCor", "rack7::EngineCo")
    one = ctx.fleet.config.instances[1]
    named = one.model_copy(update={"env": {"VLLM_PROCESS_NAME_PREFIX": "rack7"}})
    then = samples.with_config(ctx, instances=[named])
    assert found(then, tensor_parallel.CHECK, answers)["tp.one"].outcome is Outcome.PASS
    finding = found(ctx, tensor_parallel.CHECK, answers)["tp.one"]
    assert finding.outcome is Outcome.FAIL and "0 ranks run here, not 1" in finding.summary


def test_less_kv_cache_than_in_earlier_runs_warns(ctx: Context) -> None:
    answers = good(ctx)
    for earlier, outcome in (((40000.0,) * 3, "warn"), ((32800.0,) * 3, "pass"), ((9e9,), "pass")):
        then = replace(ctx, history={"tp.two kv_tokens": earlier})
        finding = found(then, tensor_parallel.CHECK, answers)["tp.two"]
        assert finding.outcome == outcome


def test_an_old_engine_under_ray_is_judged_by_what_it_tells(ctx: Context) -> None:
    finding = log(ctx, serving.OLD_LOG)
    assert finding.outcome is Outcome.PASS and "tp 2, KV cache of 7448 blocks" in finding.summary
    assert finding.metrics["kv_blocks"] == 7448


# -- cards -------------------------------------------------------------------------------


def with_cards(ctx: Context, gpus: int = 2, tp: int = 4) -> Context:
    """The same fleet on a SKU with cards: two ranks on each of the engine's nodes."""
    two = ctx.fleet.config.instances[0].model_copy(update={"tp": tp})
    config = ctx.fleet.config.model_copy(update={"instances": [two]})
    nodes = {
        name: node.model_copy(update={"sku": "a100-sxm-8", "gpus": gpus})
        for name, node in ctx.fleet.nodes.items()
    }
    fleet = ctx.fleet.model_copy(update={"config": config, "nodes": nodes})
    lock = load_stack("r535-vllm0.19").lock.but(debs_closure={})
    return replace(ctx, fleet=fleet, node=nodes[ctx.node.name], lock=lock)


def test_an_engine_on_cpu_leaves_a_nodes_cards_alone(ctx: Context) -> None:
    then = replace(with_cards(ctx, gpus=1, tp=2), lock=ctx.lock)
    assert "gpu.apps" not in [c.name for c in tensor_parallel.CHECK.commands(then)]
    assert found(then, tensor_parallel.CHECK, good(then))["tp.two"].outcome is Outcome.PASS


def on_cards(ctx: Context, table: str) -> Finding:
    ctx = with_cards(ctx)
    answers = good(ctx) | {"gpu.apps": ok(table)}
    text = serving.log_text(tp=4, device="GPU").replace("gloo", "nccl")
    answers["tp.log.two"] = ok(serving.journal(text))
    procs = answers["procs"]
    answers["procs"] = replaced(procs, "901/comm:raylet", "901/comm:ray::RayWorkerP")
    return found(ctx, tensor_parallel.CHECK, answers)["tp.two"]


def test_cards_that_are_filled_alike_pass(ctx: Context) -> None:
    finding = on_cards(ctx, "930, GPU-aa, 70000\n901, GPU-bb, 69000\n77, GPU-cc, 500\n")
    assert finding.outcome is Outcome.PASS and "2 cards filled alike" in finding.summary
    assert finding.metrics["card_max_bytes"] == 70000 * MIB


@pytest.mark.parametrize(
    ("table", "outcome", "words"),
    [
        ("930, GPU-aa, 70000\n901, GPU-bb, 450\n", "fail", "1 of 2 cards are filled alike"),
        ("930, GPU-aa, 70000\n901, GPU-aa, 70000\n", "fail", "1 of 2 cards"),
        ("77, GPU-aa, 70000\n", "fail", "none of its processes holds memory of a card"),
        ("", "fail", "none of its processes"),
        ("930, GPU-aa, 70000\n901, GPU-bb, 50000\n", "warn", "hold 50000 to 70000 MiB"),
        ("930, GPU-aa, [N/A]\n901, GPU-bb, [N/A]\n", "not_run", "memory of process 930: [N/A]"),
        ("No devices were found\n", "not_run", "no table of processes"),
    ],
)
def test_cards_that_are_not(ctx: Context, table: str, outcome: str, words: str) -> None:
    finding = on_cards(ctx, table)
    assert finding.outcome == outcome and words in finding.summary


def test_ranks_of_two_engines_on_one_node_need_not_be_alike(ctx: Context) -> None:
    then = with_cards(ctx, tp=2)
    other = then.fleet.config.instances[0].model_copy(update={"name": "more", "port": 8001})
    then = samples.with_config(then, instances=[then.fleet.config.instances[0], other])
    answers = good(ctx) | {"gpu.apps": ok("930, GPU-aa, 70000\n901, GPU-bb, 9000\n")}
    answers["procs"] = replaced(answers["procs"], "901/comm:raylet", "901/comm:ray::RayWorkerP")
    answers["tp.log.two"] = answers["tp.log.more"] = ok(
        serving.journal(serving.log_text().replace("gloo", "nccl"))
    )
    findings = found(then, tensor_parallel.CHECK, answers)
    assert {f.outcome for f in findings.values()} == {Outcome.PASS}
    assert "2 cards in use by several engines" in findings["tp.two"].summary


def test_ranks_on_cards_that_speak_gloo_fail(ctx: Context) -> None:
    ctx = with_cards(ctx)
    answers = good(ctx) | {"gpu.apps": ok("930, GPU-aa, 7\n901, GPU-bb, 7\n")}
    answers["tp.log.two"] = ok(serving.journal(serving.log_text(tp=4)))
    assert "its ranks speak gloo" in found(ctx, tensor_parallel.CHECK, answers)["tp.two"].summary


# -- what isn't seen ---------------------------------------------------------------------


def test_an_engine_that_is_not_running_is_not_judged(ctx: Context) -> None:
    finding = found(ctx, tensor_parallel.CHECK, tp_log_two=Output(rc=INACTIVE))["tp.two"]
    assert finding.outcome is Outcome.NOT_RUN and "not running" in finding.summary


@pytest.mark.parametrize(
    "output",
    [
        Output(rc=124, seconds=20.0),
        Output(rc=None),
        ok("## log\n"),
        ok(serving.journal("")),
        ok(serving.journal(serving.log_text()), rc=1),
        ok(serving.journal(serving.log_text().replace("KV cache", "cache"))),
    ],
)
def test_a_log_that_is_not_there_is_no_pass(ctx: Context, output: Output) -> None:
    finding = found(ctx, tensor_parallel.CHECK, tp_log_two=output)["tp.two"]
    assert finding.outcome is Outcome.NOT_RUN and finding.required and finding.remedy


def test_unseen_processes_are_no_pass(ctx: Context) -> None:
    finding = found(ctx, tensor_parallel.CHECK, procs=Output(rc=124))["tp.two"]
    assert finding.outcome is Outcome.NOT_RUN and "its workers" in finding.summary


def test_a_version_that_does_not_name_its_workers(ctx: Context) -> None:
    engine = ctx.lock.engine.model_copy(update={"version": "0.8.5"})
    two = ctx.fleet.config.instances[0].model_copy(update={"nodes": ["head1"]})
    config = ctx.fleet.config.model_copy(update={"instances": [two]})
    fleet = ctx.fleet.model_copy(update={"config": config})
    then = replace(ctx, lock=ctx.lock.but(engine=engine), fleet=fleet)
    finding = found(then, tensor_parallel.CHECK)["tp.two"]
    assert finding.outcome is Outcome.NOT_RUN and "doesn't name its workers" in finding.summary
