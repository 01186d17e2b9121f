"""Prompts as token ids, so that their length is known beforehand, and the one lock of load probes.

Standard library only; sent in one text with :mod:`rackpin.probes.client`.
"""

from __future__ import annotations

import fcntl
import json
import random
import time
from pathlib import Path
from typing import IO, Any


class Busy(Exception):
    """Another measurement of this engine goes on."""


class Unknown(Exception):
    """Something that must be known of the engine before it is asked isn't."""


def vocabulary(model: str) -> int:
    """How many token ids the model knows, from its ``config.json``."""
    path = Path(model) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unknown(f"{path}: {type(error).__name__}: {error}") from error
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    for part in parts:  # a model of several modalities keeps it with its text part
        if isinstance(size := part.get("vocab_size"), int) and size >= 16:
            return size
    raise Unknown(f"{path}: no vocab_size")


def prompt(size: int, tokens: int, seed: str) -> list[int]:
    """As many token ids, the same for the same seed, no two prompts with a common beginning.

    From the middle half of the vocabulary: control tokens stand at either end.
    """
    chance = random.Random(seed)
    return [chance.randrange(size // 4, size - size // 4) for _ in range(tokens)]


def alone(path: str, wait_s: float) -> IO[str]:
    """The engine's env file, locked: two measurements at once would measure each other."""
    file = Path(path).open(encoding="utf-8")  # noqa: SIM115 - held until the probe ends
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > until:
                raise Busy(f"another measurement holds this engine for {wait_s:.0f} s") from None
            time.sleep(0.2)


def wish(model: str, tokens: list[int], output: int) -> dict[str, Any]:
    """A completion whose number of tokens is known beforehand."""
    return {
        "model": model,
        "prompt": tokens,
        "max_tokens": output,
        "temperature": 0,
        "seed": 0,
        "ignore_eos": True,
    }
