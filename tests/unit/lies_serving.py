"""Lies of engines: answers that look whole and are not."""

from __future__ import annotations

from tests.unit.lies import Lie, first, lie, pattern, two

LIES: dict[str, tuple[Lie, ...]] = {
    "tp": (
        lie("tp.log.two", "tensor_parallel_size=2", "tensor_parallel_size=1", "1"),
        two(lie("tp.log.two", "tensor_parallel_size=2", "tensor_parallel_size=4", "4"),
            lie("tp.log.two", "pipeline_parallel_size=1", "pipeline_parallel_size=3", "3")),
    ),
    "nccl.mapped": (
        lie("nccl.mapped", '"comm": "ray::RayWorkerP", "unread"', '"comm": "x"', "x"),
        two(),
    ),
    "baseline": (
        # Status 0 and a result, but every second request failed.
        lie("baseline.two", '"completed": 32', '"completed": 16', "16"),
        two(lie("baseline.two", '"failed": 0', '"failed": 3', "3"),
            lie("baseline.two", '"empty_texts": 0', '"empty_texts": 2', "empty")),
    ),
    "long_prompts": (
        first("long_prompts.two", '"empty": false', '"empty": true', "empty"),
        two(first("long_prompts.two", '"status": 200, "seconds"', '"status": 500, "seconds"', "500"),
            pattern("long_prompts.two", r'"NRestarts=0', '"NRestarts=1', "")),
    ),
}  # fmt: skip
