"""What a sound engine's log, processes and load give; tests change one part of it."""

from __future__ import annotations

import json
from typing import Any

from rackpin.checks.servingdata import serving

LOAD = serving().load
LONG = serving().long_prompts


def log_text(
    version: str = "0.32.0", tp: int = 2, pp: int = 1, kv: str = "32,768", device: str = "CPU"
) -> str:
    """The telling lines of a V1 engine's start under Ray, as the journal has them."""
    world = tp * pp
    return (
        f"(EngineCore pid=1440) INFO 11-30 01:55:15 [core.py:133] Initializing a V1 LLM engine "
        f"(v{version}) with config: model='/srv/models/tiny', tokenizer='/srv/models/tiny', "
        f"dtype=torch.float32, max_seq_len=256, tensor_parallel_size={tp}, "
        f"pipeline_parallel_size={pp}, data_parallel_size=1, seed=0\n"
        f"(RayWorkerProc pid=930) (Worker pid=930) INFO 11-30 01:55:31 [parallel_state.py:1906] "
        f"world_size={world} rank=0 local_rank=0 distributed_init_method=tcp://10.9.0.11:1 "
        "backend=gloo\n"
        f"(RayWorkerProc pid=930) (Worker pid=930) INFO 11-30 01:55:31 [parallel_state.py:2350] "
        f"rank 0 in world size {world} is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, "
        "EP rank N/A\n"
        f"(EngineCore pid=1440) INFO 11-30 01:55:32 [kv_cache_utils.py:2327] {device} KV cache "
        f"size: {kv} tokens, Maximum concurrency for 256 tokens per request: 128.00x\n"
    )


def journal(log: str) -> str:
    return f"## log\n{log}## end\n"


# vLLM 0.4.2 under Ray: blocks in place of tokens, no line for the groups, pipelines unknown.
OLD_LOG = """\
INFO 05-10 08:00:01 llm_engine.py:100] Initializing an LLM engine (v0.4.2) with config: \
model='/srv/models/m', speculative_config=None, tensor_parallel_size=2, \
disable_custom_all_reduce=False, seed=0
(RayWorkerWrapper pid=930) INFO 05-10 08:00:20 utils.py:660] Found nccl from library /x/libnccl.so.2
(RayWorkerWrapper pid=930) INFO 05-10 08:00:21 pynccl.py:65] vLLM is using nccl==2.19.3
INFO 05-10 08:00:40 distributed_gpu_executor.py:45] # GPU blocks: 7448, # CPU blocks: 2048
"""

PROC = {"main": False, "libraries": [], "environment": {}}


def nccl_facts() -> dict[str, Any]:
    """Processes of an engine on CPU: none has an NCCL."""
    procs = [
        {**PROC, "pid": 901, "unit": "ray-head.service", "comm": "raylet"},
        {**PROC, "pid": 930, "unit": "ray-head.service", "comm": "ray::RayWorkerP"},
        {**PROC, "pid": 1377, "unit": "vllm@two.service", "comm": "python", "main": True},
        {**PROC, "pid": 1440, "unit": "vllm@two.service", "comm": "VLLM::EngineCor"},
    ]
    return {"procs": procs, "unread": 0}


def first() -> dict[str, Any]:
    return {"status": 200, "seconds": 1.0, "tokens": LOAD.output_tokens, "finish": "length"}


def bench_facts(**changes: Any) -> dict[str, Any]:
    """The probe's answer after the engine's own generator; ``changes`` go into its result."""
    count, out = LOAD.prompts, LOAD.output_tokens
    result = {
        "completed": count, "failed": 0, "duration": 6.4, "total_input_tokens": 4122,
        "total_output_tokens": count * out, "output_lens": [out] * count, "empty_texts": 0,
        "errors": [], "output_throughput": 320.0, "request_throughput": 5.0,
        "median_ttft_ms": 76.0, "p99_ttft_ms": 84.0, "median_itl_ms": 24.0, "median_tpot_ms": 24.0,
    }  # fmt: skip
    return {
        "first": first(),
        "generator": True,
        "rc": 0,
        "said": "Successful requests: 32\n",
        "result": {k: v for k, v in (result | changes).items() if v is not None},
    }


def own_facts(**changes: Any) -> dict[str, Any]:
    """The probe's answer after its own load; ``changes`` go into the first answer."""
    out = LOAD.output_tokens
    answer = {
        "status": 200, "done": True, "tokens": out, "empty": False,
        "times": [0.05 + 0.01 * n for n in range(out)],
    }  # fmt: skip
    answers = [dict(answer) for _ in range(LOAD.prompts)]
    answers[0] |= changes
    return {"first": first(), "generator": False, "answers": answers, "seconds": 4.0}


def long_facts(**changes: Any) -> dict[str, Any]:
    """The probe's answer when all prompts came back and memory stayed."""
    asked = 256 - LONG.output_tokens
    answer = {
        "status": 200, "seconds": 0.4, "tokens": LONG.output_tokens, "prompt_tokens": asked,
        "total_tokens": 256, "finish": "length", "empty": False, "asked": asked,
    }  # fmt: skip
    short = {"status": 200, "text": "zzz", "tokens": LONG.output_tokens}
    memory = {"processes": 4, "rss": 1_781_972_992, "shm": 110_592}
    facts = {
        "step": "after",
        "limit": 256,
        "before": short,
        "after": dict(short),
        "answers": [dict(answer) for _ in range(LONG.prompts)],
        "memory": [dict(memory) for _ in range(LONG.prompts)],
        "preemptions": [0.0, 0.0],
        "state": ["MainPID=1377\nNRestarts=0\n", "MainPID=1377\nNRestarts=0\n"],
        "journal": [],
    }
    return json.loads(json.dumps(facts | changes))  # nothing shared between two tests
