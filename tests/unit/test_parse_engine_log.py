"""What an engine logged of its start, in the words of several versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpin.parse import engine_log
from rackpin.parse.kinds import NotThisKind
from tests.unit import serving_samples as samples


def test_a_v1_engine_tells_sizes_groups_and_tokens() -> None:
    log = engine_log.read(samples.log_text())
    assert (log.version, log.tp, log.pp, log.dp) == ("0.32.0", 2, 1, 1)
    assert log.worlds == {2} and log.ranks == {0} and log.tp_ranks == {0} and log.pp_ranks == {0}
    assert log.backends == {"gloo"}
    assert (log.kv_tokens, log.kv_blocks, log.concurrency) == (32768, None, 128.0)
    assert log.request_tokens == 256 and log.kv_told


def test_0_4_counts_blocks_and_has_no_groups() -> None:
    log = engine_log.read(samples.OLD_LOG)
    assert (log.version, log.tp, log.pp, log.kv_blocks) == ("0.4.2", 2, None, 7448)
    assert log.worlds == frozenset() and log.nccl == {"2.19.3"} and log.kv_tokens is None


def test_kv_cache_in_two_lines_and_the_smallest_of_several_workers() -> None:
    text = samples.log_text().rpartition("(EngineCore pid=1440) INFO 11-30 01:55:32")[0]
    text += (
        "INFO 08-01 10:00:00 [kv_cache_utils.py:716] GPU KV cache size: 200,000 tokens\n"
        "INFO 08-01 10:00:00 [kv_cache_utils.py:720] Maximum concurrency for 8,192 tokens per "
        "request: 24.41x\n"
        "INFO 08-01 10:00:00 [kv_cache_utils.py:716] GPU KV cache size: 199,984 tokens\n"
    )
    log = engine_log.read(text)
    assert (log.kv_tokens, log.request_tokens, log.concurrency) == (199_984, 8192, 24.41)


def test_the_last_start_counts() -> None:
    log = engine_log.read(samples.log_text(tp=2) + samples.log_text(tp=1, kv="16,384"))
    assert (log.tp, log.worlds, log.kv_tokens) == (1, frozenset({1}), 16384)


def test_a_first_size_wins_over_those_of_nested_configurations() -> None:
    text = samples.log_text().replace("seed=0", "draft=Config(tensor_parallel_size=1), seed=0")
    assert engine_log.read(text).tp == 2


@pytest.mark.parametrize("text", ["", "\n", "INFO started\n", "tensor_parallel_size=2\n", "\x00"])
def test_another_text_is_no_engines_log(text: str) -> None:
    with pytest.raises(NotThisKind):
        engine_log.read(text)


@given(st.text(alphabet="Iniz LLMenginev0.(),=#GPUblocks: CKVst123xr\n", max_size=300))
def test_it_never_fails_on_what_follows_a_start(text: str) -> None:
    log = engine_log.read(samples.log_text() + text)
    assert log.version
