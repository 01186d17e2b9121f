"""From options as they were typed to a start that can be planned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rackpin.plan import kv
from rackpin.plan.config import load
from rackpin.plan.data import by_ranks, table
from rackpin.plan.errors import PlanError
from rackpin.plan.families import read_model
from rackpin.plan.gpus import find_gpu
from rackpin.plan.quant import on_card
from rackpin.plan.split import Start
from rackpin.plan.topology import topology_from_text
from rackpin.plan.version import vllm_generation

ENGINES = ("vllm", "sglang")


@dataclass(frozen=True)
class Request:
    """What was typed; None is an option that was left out."""

    model: str
    gpu: str | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    cp: int | None = None
    engine: str = "vllm"
    engine_version: str | None = None
    quant: str | None = None
    util: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    total_gib: float | None = None
    free_gib: float | None = None
    concurrency: int | None = None
    topology: str | None = None


def start_of(asked: Request) -> Start:
    """The start that was asked for. Raises PlanError naming option, file and key."""
    if asked.engine not in ENGINES:
        raise PlanError(f"--engine {asked.engine!r} is not known: {' or '.join(ENGINES)}")
    gpu = find_gpu(asked.gpu, asked.total_gib)
    model = read_model(asked.model, load(asked.model), asked.quant)
    kv.element_bytes(asked.kv_cache_dtype, model)
    generation = vllm_generation(asked.engine_version)
    if asked.engine == "vllm":
        model = replace(model, quant=on_card(model.quant, gpu.cc, generation.id))
    topology = topology_from_text(_text(asked.topology)) if asked.topology else None
    per_node = asked.gpus_per_node or (topology.gpus if topology else 8)
    if topology and topology.gpus != per_node:
        raise PlanError(
            f"--gpus-per-node {per_node}, but --topology has {topology.gpus} GPUs: leave one out"
        )
    inside = asked.engine == "sglang"
    least = (asked.tp or 1) * (asked.pp or 1) * (1 if inside else asked.dp or 1)
    gpus = asked.gpus or (topology.gpus if topology and least <= topology.gpus else least)
    notes = []
    util = asked.util
    if util is None:
        util = _default_util(asked, generation.row["util"])
        notes.append(f"memory fraction {util:g}: the engine's default")
    if not 0 < util <= 1:
        raise PlanError(f"--gpu-memory-utilization {util:g}: above 0, at most 1")
    max_len = asked.max_model_len
    if max_len is None:
        max_len = model.max_len or 4096
        said = "the model's own" if model.max_len else "the config names none"
        notes.append(f"max_model_len {max_len}: {said}")
    return Start(
        model=model,
        gpu=gpu,
        gpus=gpus,
        per_node=per_node,
        engine=asked.engine,
        generation=generation,
        util=util,
        max_len=max_len,
        seqs=asked.max_num_seqs,
        tokens=asked.max_num_batched_tokens,
        kv_dtype=asked.kv_cache_dtype,
        block=asked.block_size or int(table("vllm")["defaults"]["block_size"]),
        concurrency=asked.concurrency,
        free_gib=asked.free_gib,
        topology=topology,
        notes=tuple(notes),
    )


def _default_util(asked: Request, vllm: float) -> float:
    if asked.engine != "sglang":
        return vllm
    return by_ranks(table("sglang")["fraction"], (asked.tp or asked.gpus or 1))


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise PlanError(
            f"--topology {path}: can't be read ({error.strerror}); give a file with the text of "
            "nvidia-smi topo -m"
        ) from None
