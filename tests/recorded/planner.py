"""The planner's recorded starts and models, and what the planner says of each."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from rackpin.plan.plan import plan
from rackpin.plan.request import Request
from tests.recorded.corpus import CORPUS

PLANNER = CORPUS / "planner"
UNKNOWN = ("?", "", "-")


def table(name: str) -> list[dict[str, str]]:
    """Rows of a table of the folder; none where it isn't there."""
    path = PLANNER / name
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def number(text: str) -> float | None:
    return None if text in UNKNOWN else float(text)


def whole(text: str) -> int | None:
    return None if text in UNKNOWN else int(text)


@dataclass(frozen=True)
class Row:
    """A recorded start and the planner's answer to the same options."""

    seen: dict[str, str]
    said: dict[str, Any]

    @property
    def id(self) -> str:
        return self.seen["id"]

    def error(self, column: str, key: str) -> float | None:
        """Relative error of a figure; None where either side has none."""
        seen, said = number(self.seen[column]), self.said[key]
        return None if not seen or said is None else said / seen - 1


def request(seen: dict[str, str]) -> Request | None:
    """The options of a recorded start; None where it names neither card nor memory."""
    gpu = None if seen["gpu"].startswith("?") else seen["gpu"]
    total = number(seen["total_gib"])
    if seen["outcome"] == "bad_tp":  # the rules of a split need no memory
        gpu, total = gpu or "H100-80GB", total
    if gpu is None and total is None:
        return None
    free = re.search(r"Free memory on device \S+ \(([\d.]+)/", seen["error"])
    sglang = seen["engine"] == "sglang"
    return Request(
        model=str(PLANNER / "models" / f"{seen['model_file']}.json"),
        gpu=gpu,
        gpus=whole(seen["n_gpu"]),
        tp=whole(seen["tp"]),
        pp=whole(seen["pp"]),
        ep=whole(seen["ep"]),
        dp=whole(seen["dp"]) if sglang else None,
        engine=seen["engine"],
        engine_version=seen["version"],
        quant=seen["quant"],
        util=number(seen["util"]),
        max_model_len=whole(seen["max_model_len"]),
        max_num_seqs=whole(seen["max_num_seqs"]),
        max_num_batched_tokens=whole(seen["max_batched_tokens"]),
        kv_cache_dtype="auto" if seen["kv_dtype"] in UNKNOWN else seen["kv_dtype"],
        total_gib=total,
        free_gib=float(free[1]) if free else None,
    )


@cache
def rows() -> list[Row]:
    """All starts of an engine and a model that the planner has the config of."""
    found = []
    for seen in table("observed.tsv"):
        if seen["model_file"] in UNKNOWN or seen["engine"] not in ("vllm", "sglang"):
            continue
        asked = request(seen)
        if asked is not None:
            found.append(Row(seen, plan(asked).data))
    return found


def quantile(values: list[float], share: float) -> float:
    """The value that ``share`` of the values don't exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
