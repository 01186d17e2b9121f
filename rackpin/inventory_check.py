"""A :class:`Fleet` from what pyinfra merged, or every mistake in it at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rackpin import (
    inventory_apt,
    inventory_engines,
    inventory_files,
    inventory_gateway,
    inventory_models,
    inventory_nccl,
    inventory_rules,
)
from rackpin.inventory import ROLES, Fleet, Node
from rackpin.inventory_parts import AptRepository, BundleConfig
from rackpin.inventory_problems import FLEET, InventoryError, Problem
from rackpin.inventory_read import (
    Raw,
    fleet_values,
    key_problems,
    read_config,
    read_engines,
    read_node,
)
from rackpin.inventory_rules import Draft
from rackpin.inventory_source import file_on_command_line, left_out, made_inventory, why_unreadable
from rackpin.skus import SKUS
from rackpin.stack.lock import stack_names

__all__ = [
    "InventoryError",
    "Problem",
    "fleet_from_file",
    "fleet_from_pyinfra",
    "load_fleet",
]

K = TypeVar("K", AptRepository, BundleConfig)
RULES = (
    *inventory_rules.RULES,
    *inventory_engines.RULES,
    *inventory_files.RULES,
    *inventory_apt.RULES,
    *inventory_nccl.RULES,
    *inventory_gateway.RULES,
    *inventory_models.RULES,
)


def load_fleet(
    raw: Raw,
    known_stacks: Collection[str],
    source: str = "the inventory",
    *,
    skus: Path = SKUS,
    more: Sequence[Problem] = (),
) -> Fleet:
    """Read a whole inventory.

    ``raw`` has, for each host name, its groups and its merged data. ``source`` is the inventory's
    path, for messages and for files that stand beside it. ``more`` are problems found before.
    Raises :class:`InventoryError` with every problem. Connects to nothing and changes nothing.
    """
    if not raw:
        what, remedy = "there is no host in it", "list hosts in the groups " + ", ".join(ROLES)
        raise InventoryError([Problem(FLEET, "nodes", what, remedy), *more], source)
    problems = list(more)
    for name, (_, data) in raw.items():
        problems += key_problems(name, data)
    values, uneven = fleet_values(raw)
    problems += uneven
    config, broken, wrong = read_config(values)
    problems += wrong
    engines, wrong = read_engines(values)
    problems += wrong
    nodes: dict[str, Node] = {}
    gpus_known: set[str] = set()
    for name, (groups, data) in raw.items():
        nodes[name], known, wrong = read_node(name, groups, data, skus)
        problems += wrong
        gpus_known |= {name} if known else set()
    path = Path(source)
    draft = Draft(
        base=path.parent.absolute() if path.is_file() else Path.cwd(),
        config=config,
        read_engines=engines,
        nodes=nodes,
        broken=frozenset(broken),
        gpus_known=frozenset(gpus_known),
        data={name: data for name, (_, data) in raw.items()},
        known_stacks=known_stacks,
    )
    for rule in RULES:
        problems += rule(draft)
    if problems:
        raise InventoryError(problems, source, list(raw))
    instances = [
        i.model_copy(
            update={"api_key_file": str(inventory_files.resolve(i.api_key_file, draft.base))}
        )
        for i, _ in engines
    ]

    def found(item: K) -> K:
        if not item.key_file:
            return item
        path = inventory_files.resolve(item.key_file, draft.base)
        return item.model_copy(update={"key_file": str(path)})

    update = {
        "instances": instances,
        "state_dir": str((draft.base / Path(config.state_dir).expanduser()).absolute()),
        "apt_repositories": [found(repository) for repository in config.apt_repositories],
        "bundle": found(config.bundle) if config.bundle else None,
        "gateway": inventory_gateway.resolved(config.gateway, draft.base),
    }
    return Fleet(config=config.model_copy(update=update), nodes=nodes)


def fleet_from_pyinfra(inventory: Any, source: str | None = None) -> Fleet:
    """The fleet of a ``pyinfra.api.Inventory``, ``--data`` included, whatever ``--limit`` says.

    ``source`` is the inventory file; without it, the one on pyinfra's command line.
    Raises :class:`InventoryError` with every problem.
    """
    _no_traceback_per_host()
    source = source or file_on_command_line(inventory)
    own = {"all", Path(source).stem if source else ""} - set(ROLES)  # groups that pyinfra adds
    raw = {
        host.name: (
            [g for g in dict.fromkeys(host.groups) if g not in own and not g.startswith("@")],
            host.data.dict(),
        )
        for host in inventory
    }
    forgotten = left_out(source) if source and Path(source).is_file() else []
    return load_fleet(raw, stack_names(), source or "the inventory", more=forgotten)


def fleet_from_file(
    file: str, overrides: Mapping[str, Any] | None = None, group_data: Sequence[str] = ()
) -> Fleet:
    """The fleet of an inventory file, by pyinfra's own loader, group_data and ``--data`` included.

    Raises :class:`InventoryError`, also for a file that Python can't run. Connects to nothing.
    """
    try:
        made = made_inventory(file, dict(overrides or {}), list(group_data))
    except InventoryError:
        raise
    except Exception as error:  # whatever the file's own code raises
        where, what = why_unreadable(error, file)
        problem = Problem(FLEET, where, what, "correct it; the inventory is Python")
        raise InventoryError([problem], file) from error
    return fleet_from_pyinfra(made, file)


def _no_traceback_per_host() -> None:
    """pyinfra connects in a greenlet a host, and gevent prints each one's traceback.

    pyinfra raises the error again from the first of them; once is enough.
    """
    import gevent

    hub = gevent.get_hub()
    if InventoryError not in hub.NOT_ERROR:
        hub.NOT_ERROR = (*hub.NOT_ERROR, InventoryError)
