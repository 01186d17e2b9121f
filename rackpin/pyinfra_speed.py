"""Three functions of pyinfra that cost more than everything else of a run, in words that cost less.

Each gives what pyinfra's own gives (tests/unit/test_pyinfra_speed.py compares them). They are for
the versions in KNOWN only: another pyinfra keeps its own functions, and a run is merely slower.

- ``all_global_arguments`` evaluates some thirty type hints, for each fact and each operation
- ``pop_global_arguments`` merges all data of the host anew for each of those arguments
- ``get_operation_order_from_stack`` reads the source of every frame to learn line numbers
"""

from __future__ import annotations

import sys
from copy import copy
from importlib.metadata import version
from types import FrameType
from typing import Any

import pyinfra
from pyinfra.context import ctx_config

KNOWN = ("3.10.0",)
_MODULES = ("arguments", "deploy", "facts", "operation", "util")  # where the names are looked up


def modules() -> list[Any]:
    import pyinfra.api  # noqa: F401  # loads them; as attributes some are hidden by functions

    return [sys.modules[f"pyinfra.api.{name}"] for name in _MODULES]


def replacements() -> dict[str, Any]:
    """What stands for each function of pyinfra, by its name."""
    api = {module.__name__.rpartition(".")[2]: module for module in modules()}
    arguments, util = api["arguments"], api["util"]
    types = tuple(arguments.all_global_arguments())
    metas = [(key, type_, arguments.all_argument_meta[key]) for key, type_ in types]

    def all_global_arguments() -> list[tuple[str, type]]:
        return list(types)

    def pop_global_arguments(
        state: Any, host: Any, kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        config = state.config
        if ctx_config.isset():
            config = ctx_config.get()
        of_deploy = host.current_deploy_kwargs or {}
        data = host.data.dict()  # merged once, in the order in which pyinfra looks
        found: dict[str, Any] = {}
        given: list[str] = []
        for key, type_, meta in metas:
            default = copy(data[key]) if key in data else meta.default(config)
            if key in kwargs:
                given.append(key)
                value = kwargs.pop(key)
            else:
                value = of_deploy.get(key, default)
            if meta.handler:
                value = meta.handler(config, value)
            if value != default:
                util.raise_if_bad_type(
                    value, type_, arguments.ArgumentTypeError, f"Invalid argument `{key}`:"
                )
            found[key] = value
        return found, given

    def get_operation_order_from_stack(state: Any) -> list[int]:
        frames: list[tuple[str, int]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            frames.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        frames.reverse()
        if name := state.current_deploy_filename:
            first = next((i for i, (file, _) in enumerate(frames) if file == name), len(frames))
            frames = frames[first:]
        own = util.PYINFRA_INSTALL_DIR
        lines = [line for file, line in frames if not file.startswith(own)]
        return [state.current_op_file_number, *lines] if pyinfra.is_cli else lines

    return {
        made.__name__: made
        for made in (all_global_arguments, pop_global_arguments, get_operation_order_from_stack)
    }


def apply(found: str = "") -> bool:
    """Put the replacements in place, once; False for a pyinfra that they weren't compared with."""
    if (found or version("pyinfra")) not in KNOWN:
        return False
    if getattr(pyinfra, "_rackpin_speed", False):
        return True
    made = replacements()
    for module in modules():
        for name in made.keys() & vars(module).keys():
            setattr(module, name, made[name])
    pyinfra._rackpin_speed = True
    return True
