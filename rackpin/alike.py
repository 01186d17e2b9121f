"""What is the same for all nodes of a kind is worked out once, not once for each of them.

Nodes are of a kind when lock, OS and fleet-wide values are the same, and all or none of them
have GPUs or are gateways. A function marked :func:`alike` may look at nothing else of its target.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rackpin.desired import Target

T = TypeVar("T")
KEPT = 32  # kinds; a fleet has a handful
# by kind: config and lock themselves, so that no other object gets their id, and the results
_known: OrderedDict[tuple[Any, ...], tuple[Any, Any, dict[Any, Any]]] = OrderedDict()


def _results(target: Target) -> dict[Any, Any]:
    config, lock, node = target.fleet.config, target.lock, target.node
    kind = (id(config), id(lock), target.os_key, node.gpus > 0, node.is_gateway)
    if kind not in _known:
        _known[kind] = (config, lock, {})
        if len(_known) > KEPT:
            _known.popitem(last=False)
    return _known[kind][2]


def alike(function: Callable[[Target], T]) -> Callable[[Target], T]:
    """The function, asked once for each kind of node; its lists and dicts are the caller's own."""

    @wraps(function)
    def once(target: Target) -> T:
        results = _results(target)
        if function not in results:
            results[function] = function(target)
        found: T = results[function]
        return found.copy() if isinstance(found, list | dict) else found  # type: ignore[return-value]

    return once
