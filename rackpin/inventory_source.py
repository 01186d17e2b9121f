"""An inventory file as pyinfra's command line reads it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rackpin.inventory_problems import FLEET, Problem


def _pyinfra_cli() -> tuple[Any, Any]:
    """pyinfra_cli's modules ``inventory`` and ``util``.

    The package patches sockets, threads and ssl for gevent when it is imported. Reading files
    needs none of that, and in a process that has used ssl it comes too late and warns.
    """
    if "pyinfra_cli" in sys.modules:
        from pyinfra_cli import inventory, util

        return inventory, util
    from gevent import monkey

    patch_all, monkey.patch_all = monkey.patch_all, lambda: None
    try:
        from pyinfra_cli import inventory, util
    finally:
        monkey.patch_all = patch_all
    return inventory, util


def parse_data(items: Iterable[str]) -> dict[str, Any]:
    """``--data KEY=VALUE`` as pyinfra understands it (numbers, booleans, JSON, else text).

    Raises ValueError with the item that isn't KEY=VALUE.
    """
    _, util = _pyinfra_cli()
    data: dict[str, Any] = {}
    for item in items:
        key, sign, value = item.partition("=")
        if not sign or not key:
            raise ValueError(f"{item!r} is not KEY=VALUE")
        data[key] = util.parse_cli_arg(value)
    return data


def made_inventory(file: str, overrides: dict[str, Any], group_data: list[str]) -> Any:
    """The ``pyinfra.api.Inventory`` of a file. Raises what the file's code raises."""
    from pyinfra.api import State
    from pyinfra.context import ctx_state

    loader, _ = _pyinfra_cli()
    before, cwd = ctx_state.get(), str(Path.cwd())
    if cwd not in sys.path:
        sys.path.append(cwd)  # as pyinfra does, so that an inventory may import from there
    ctx_state.set(State())
    try:
        return loader.make_inventory_from_files(file, overrides, cwd, group_data)
    finally:
        ctx_state.set(before)


def why_unreadable(error: Exception, file: str) -> tuple[str, str]:
    """Where (FILE or FILE:LINE) and what went wrong while an inventory was read."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}", error.msg
    cause = getattr(error, "exception", error)  # pyinfra wraps what user code raises
    filename = getattr(error, "filename", file)
    line, trace = "", cause.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{filename}{line}", f"{type(cause).__name__}: {cause}"


def file_on_command_line(inventory: Any) -> str | None:
    """The inventory's file: pyinfra doesn't keep its name, but makes a group of it."""
    files = (arg for arg in sys.argv[1:] if arg.endswith(".py") and Path(arg).is_file())
    return next((arg for arg in files if Path(arg).stem in inventory.groups), None)


def left_out(source: str) -> list[Problem]:
    """Hosts that stand in a group but not in ``all``: pyinfra drops them without a word."""
    from pyinfra.api import State
    from pyinfra.context import ctx_state

    loader, _ = _pyinfra_cli()
    before = ctx_state.get()
    ctx_state.set(before or State())
    try:
        groups = loader._get_groups_from_filename(source)
    finally:
        ctx_state.set(before)
    everyone = set(_hosts(groups["all"])) if "all" in groups else None
    return [
        Problem(
            FLEET,
            "all",
            f"{host} is in the list `{group}` but not in `all`: pyinfra drops it without a word",
            "add it to `all`; a list that is no group of hosts must begin with an underscore",
        )
        for group, hosts in groups.items()
        for host in _hosts(hosts)
        if everyone is not None and host not in everyone
    ]


def _hosts(group: Any) -> list[str]:
    hosts = group[0] if isinstance(group, tuple) else group
    return [host[0] if isinstance(host, tuple) else host for host in hosts]
