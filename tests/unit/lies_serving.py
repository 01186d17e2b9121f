"""Lies of engines: answers that look whole and are not."""

from __future__ import annotations

from tests.unit.lies import Lie, also, first, last, lie, two

LONG = "long_prompts.two"
OTHER = (
    '"libraries": [{"path": "/usr/lib/x86_64-linux-gnu/libnccl.so.2", "version": "2.19.3", '
    '"deleted": %s}]'
)

LIES: dict[str, tuple[Lie, ...]] = {
    "tp": (
        lie("tp.log.two", "tensor_parallel_size=2", "tensor_parallel_size=1", "1"),
        two(lie("tp.log.two", "tensor_parallel_size=2", "tensor_parallel_size=4", "4"),
            lie("tp.log.two", "pipeline_parallel_size=1", "pipeline_parallel_size=3", "3")),
    ),
    "nccl.mapped": (
        first("nccl.maps", '"libraries": []', OTHER % "false", "the lock has no NCCL"),
        two(first("nccl.maps", '"libraries": []', OTHER % "true", "the lock has no NCCL"),
            also("replaced under a running process")),
    ),
    "baseline": (
        # Status 0 and a result, but every second request failed.
        lie("baseline.two", '"completed": 32', '"completed": 16', "16"),
        two(lie("baseline.two", '"failed": 0', '"failed": 3', "3"),
            lie("baseline.two", '"empty_texts": 0', '"empty_texts": 2', "empty")),
    ),
    "long_prompts": (
        first(LONG, '"empty": false', '"empty": true', "empty"),
        two(first(LONG, '"status": 200, "seconds"', '"status": 500, "seconds"', "500"),
            last(LONG, "NRestarts=0", "NRestarts=1", "NRestarts=1")),
    ),
}  # fmt: skip
