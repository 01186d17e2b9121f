"""The loads, margins and bounds of the serving checks: ``rackpin/data/serving.yaml``."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Load(_Part):
    """What the baseline sends: ``prompts`` requests, ``concurrency`` of them at a time."""

    version: int = Field(ge=1)
    prompts: int = Field(ge=4)
    input_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=2)
    concurrency: int = Field(ge=1)
    seed: int
    reason: str

    def __str__(self) -> str:
        return (
            f"load {self.version}: {self.prompts} prompts, {self.input_tokens} tokens in, "
            f"{self.output_tokens} out, {self.concurrency} at a time"
        )


class Margin(_Part):
    """Factors of the median of earlier runs, beyond which a value warns or fails."""

    better: Literal["higher", "lower"]
    warn: float = Field(gt=0)
    fail: float = Field(gt=0)
    reason: str

    @model_validator(mode="after")
    def _in_order(self) -> Margin:
        if self.better == "higher" and not self.fail < self.warn < 1:
            raise ValueError("must be fail < warn < 1")
        if self.better == "lower" and not 1 < self.warn < self.fail:
            raise ValueError("must be 1 < warn < fail")
        return self


class EarlierRuns(_Part):
    least: int = Field(ge=2)
    least_reason: str
    values: dict[str, Margin]


class TensorParallel(_Part):
    """Shares of the fullest card's memory, and of the median of earlier KV caches."""

    card_warn: float
    card_fail: float
    card_reason: str
    kv_warn: float
    kv_reason: str


class Growth(_Part):
    bytes: int
    share: float

    def allowed(self, start: float) -> float:
        """Bytes by which memory may grow from ``start``."""
        return max(self.bytes, self.share * start)


class LongPrompts(_Part):
    prompts: int = Field(ge=4)
    output_tokens: int = Field(ge=1)
    settled: int = Field(ge=1)  # the answer, from 1, after which memory must stay
    settled_reason: str
    seed: int
    growth: dict[Literal["rss", "cards", "shm"], Growth]
    growth_reason: str


class ServingData(_Part):
    load: Load
    earlier_runs: EarlierRuns
    tensor_parallel: TensorParallel
    long_prompts: LongPrompts


SOURCE = "rackpin/data/serving.yaml"


@cache
def serving() -> ServingData:
    """The file, read once. Raises pydantic's error when it doesn't hold what it should."""
    text = resources.files("rackpin.data").joinpath("serving.yaml").read_text(encoding="utf-8")
    return ServingData.model_validate(yaml.safe_load(text))
