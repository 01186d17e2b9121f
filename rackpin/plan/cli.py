"""``rackpin plan``. Exit codes: 0 it starts by the prediction, 1 it doesn't, 2 bad input."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rackpin.plan.drawing import drawing
from rackpin.plan.errors import PlanError
from rackpin.plan.plan import plan
from rackpin.plan.request import ENGINES, Request
from rackpin.plan.show import show

_COUNT = click.IntRange(1, 100_000)
_LENGTH = click.IntRange(1, 2**31)


@click.command("plan")
@click.option("--model", required=True, metavar="CONFIG_JSON", help="The model's config.json.")
@click.option("--gpu", metavar="NAME", help="The card: H100-80GB or its full product name.")
@click.option("--gpus", type=_COUNT, help="How many there are; default: what the split takes.")
@click.option("--gpus-per-node", type=_COUNT, help="Default: as many as --topology has, else 8.")
@click.option("--tp", type=_COUNT, help="Tensor parallel; left out, it is chosen.")
@click.option("--pp", type=_COUNT, help="Pipeline stages; left out, they are chosen.")
@click.option("--dp", type=_COUNT, help="Replicas (SGLang: data-parallel attention inside TP).")
@click.option("--ep", type=_COUNT, help="Ranks that share whole experts; 1: experts are cut by TP.")
@click.option("--cp", type=_COUNT, help="Decode context parallel, inside TP.")
@click.option("--engine", type=click.Choice(ENGINES), default="vllm", show_default=True)
@click.option(
    "--engine-version", metavar="V", help="Its version: memory outside weights hangs on it."
)
@click.option("--quant", metavar="Q", help="How weights are stored; default: as the config says.")
@click.option("--gpu-memory-utilization", "--mem-fraction-static", "util", type=float)
@click.option(
    "--max-model-len", type=_LENGTH, help="Context a request may have; default: the model's."
)
@click.option("--max-num-seqs", type=_COUNT)
@click.option("--max-num-batched-tokens", type=_LENGTH)
@click.option("--kv-cache-dtype", default="auto", show_default=True)
@click.option("--block-size", type=click.IntRange(1, 4096))
@click.option("--total-gib", type=float, help="Memory of a card as CUDA reports it.")
@click.option("--free-gib", type=float, help="Free memory of a card before the start.")
@click.option("--concurrency", type=_LENGTH, help="Requests of --max-model-len to hold at once.")
@click.option("--topology", metavar="FILE", help="The text of nvidia-smi topo -m of a node.")
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the groups there."
)
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON.")
def plan_command(
    model: str,
    gpu: str | None,
    gpus: int | None,
    gpus_per_node: int | None,
    tp: int | None,
    pp: int | None,
    dp: int | None,
    ep: int | None,
    cp: int | None,
    engine: str,
    engine_version: str | None,
    quant: str | None,
    util: float | None,
    max_model_len: int | None,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    kv_cache_dtype: str,
    block_size: int | None,
    total_gib: float | None,
    free_gib: float | None,
    concurrency: int | None,
    topology: str | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Which split of a model over GPUs starts, what memory it takes, what it serves.

    Exit code 0 when it starts by the prediction, 1 when not, 2 for input that can't be used.
    """
    asked = Request(
        model,
        gpu,
        gpus,
        gpus_per_node,
        tp,
        pp,
        ep,
        dp,
        cp,
        engine,
        engine_version,
        quant,
        util,
        max_model_len,
        max_num_seqs,
        max_num_batched_tokens,
        kv_cache_dtype,
        block_size,
        total_gib,
        free_gib,
        concurrency,
        topology,
    )
    try:
        found = plan(asked)
        if svg is not None:
            _write(svg, drawing(found))
    except PlanError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from None
    if as_json:
        click.echo(json.dumps(found.data, indent=2, ensure_ascii=False))
    else:
        show(found)
    raise SystemExit(0 if found.data["ok"] else 1)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlanError(f"--svg {path}: can't be written ({error.strerror})") from None
