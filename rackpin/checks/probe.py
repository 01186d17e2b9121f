"""Scripts of :mod:`rackpin.probes` as text for a node's stdin, and their answers read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

MARK = "RACKPIN_JSON "
_PARAMS = 'PARAMS = "{}"'


@cache
def source(name: str) -> str:
    """The script as it lies in the package."""
    path = resources.files("rackpin.probes").joinpath(f"{name}.py")
    return path.read_text(encoding="utf-8")


def text(*names: str, params: Mapping[str, Any]) -> str:
    """One program of one or more probes; the last one's ``PARAMS`` is set. No secrets in it."""
    future = "from __future__ import annotations\n"  # allowed once, at the top
    joined = future + "\n\n".join(source(name).replace(future, "") for name in names)
    if joined.count(_PARAMS) != 1:
        raise ValueError(f"probes {names} must have one line {_PARAMS}")
    return joined.replace(_PARAMS, f"PARAMS = {json.dumps(params)!r}")


def answer(stdout: str) -> dict[str, Any]:
    """The last marked line's object. ValueError when there is none: libraries print as well."""
    for line in reversed(stdout.splitlines()):
        if line.startswith(MARK):
            data = json.loads(line[len(MARK) :])
            if isinstance(data, dict):
                return data
    raise ValueError("the probe printed no answer")
