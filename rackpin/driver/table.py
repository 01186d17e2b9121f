"""``rackpin/data/driver.yaml``: what has to be known of each vendor's packages."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    text = files("rackpin").joinpath("data", "driver.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found
