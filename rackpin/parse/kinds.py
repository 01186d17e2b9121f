"""What ``rackpin parse`` can read: a kind's name → the reader of that kind.

A reader is a pure function from text to a frozen dataclass of plain values. What a tool reports
as its own failure (``No devices were found``) is a reading too. ``NotThisKind`` is for a text that
isn't an output of the kind, or is cut so that nothing certain can be said of it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


class NotThisKind(ValueError):
    """The text can't be read as this kind; the message says why."""


# kind → "module:function", imported when used: nobody waits for readers they don't need.
KINDS = {
    "topo": "rackpin.parse.topo:read",
    "nvidia-smi": "rackpin.parse.nvidia_smi:read",
    "nvlink": "rackpin.parse.nvlink:read",
    "infiniband": "rackpin.parse.infiniband:read",
    "nccl-tests": "rackpin.parse.nccl_tests:read",
    "nccl-log": "rackpin.parse.nccl_log:read",
    "system": "rackpin.parse.system:read",
}


def reader(kind: str) -> Callable[[str], Any]:
    """The reader of a kind. Raises KeyError for a kind that isn't in ``KINDS``."""
    module, _, name = KINDS[kind].partition(":")
    function: Callable[[str], Any] = getattr(import_module(module), name)
    return function
