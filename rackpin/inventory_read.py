"""Reading an inventory piece by piece, so that one mistake does not hide the next.

Each key of a host is one of four: fleet-wide (a field of ``FleetConfig``, equal on all hosts),
the node's (a field of ``Node``), pyinfra's own (``ssh_*``, ``_sudo``, …), or unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ValidationError

from rackpin.inventory import FleetConfig, Instance, Node
from rackpin.inventory_problems import (
    FLEET,
    Problem,
    from_pydantic,
    meant_by,
    shown,
    some,
    unknown_key,
)
from rackpin.skus import SkuError, known_skus, load_sku

# Host name -> its groups and its merged data.
Raw = Mapping[str, tuple[list[str], Mapping[str, Any]]]
M = TypeVar("M", bound=BaseModel)

FLEET_KEYS = frozenset(FleetConfig.model_fields)
NODE_KEYS = frozenset(Node.model_fields) - {"name", "groups"}
# pyinfra would take these from host data for every operation of a deploy.
REFUSED = {
    "name": "would rename every operation; a node's name is its host's",
    "groups": "is what the inventory's lists say",
    "_ignore_errors": "would make a deploy go on after every failure, and report success",
    "_continue_on_error": "would make a deploy go on after every failure",
    "_success_exit_codes": "would make failed commands count as done",
    "_run_once": "would run every operation on one random node only",
    "_if": "would replace the conditions of every operation",
}


@cache
def pyinfra_keys() -> dict[str, Any]:
    """pyinfra's own data keys with their types: its global arguments and its connectors' data."""
    from pyinfra.api.arguments import all_global_arguments
    from pyinfra.api.connectors import get_all_connectors

    keys: dict[str, Any] = dict(all_global_arguments())
    for connector in get_all_connectors().values():
        keys |= get_type_hints(getattr(connector, "data_cls", object))
    return {key: type_ for key, type_ in keys.items() if key not in REFUSED}


def key_problems(node: str, data: Mapping[str, Any]) -> Iterator[Problem]:
    from pyinfra.api.exceptions import ArgumentTypeError
    from pyinfra.api.util import raise_if_bad_type

    ours = FLEET_KEYS | NODE_KEYS
    for key, value in data.items():
        if key in REFUSED:
            yield Problem(node, key, f"as data of a host it {REFUSED[key]}", "remove it")
        elif key in pyinfra_keys():
            try:
                raise_if_bad_type(value, pyinfra_keys()[key], ArgumentTypeError, key)
            except ArgumentTypeError:
                wanted = getattr(pyinfra_keys()[key], "__name__", str(pyinfra_keys()[key]))
                # The value may be a password.
                what = f"pyinfra wants {wanted}; it is of type {type(value).__name__}"
                yield Problem(node, key, what, f"correct `{key}`")
        elif key not in ours:
            yield unknown_key(node, key, ours | set(pyinfra_keys()))


def fleet_values(raw: Raw) -> tuple[dict[str, Any], list[Problem]]:
    """The fleet-wide values, each as most hosts have it, and where hosts don't agree."""
    from pyinfra.api.arguments import EXECUTION_KWARG_KEYS

    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key in sorted({*FLEET_KEYS, *EXECUTION_KWARG_KEYS} - REFUSED.keys()):
        camps: list[tuple[Any, list[str]]] = []  # values may be dicts, so no mapping
        unset = [name for name, (_, data) in raw.items() if key not in data]
        for name, (_, data) in raw.items():
            if key in data:
                camp = next((c for c in camps if c[0] == data[key]), None)
                camp[1].append(name) if camp else camps.append((data[key], [name]))
        if not camps:
            continue
        camps.sort(key=lambda camp: -len(camp[1]))
        if key in FLEET_KEYS:
            values[key] = camps[0][0]
        if len(camps) > 1 or unset:
            said = [f"{shown(camps[0][0], 40)} on {some(camps[0][1], 3)}"]
            said += [f"{shown(value, 40)} on {_where(names, raw)}" for value, names in camps[1:]]
            said += [f"not set on {_where(unset, raw)}"] if unset else []
            remedy = "give it once, in `all` of the inventory, and remove it from groups and hosts"
            problems.append(
                Problem(FLEET, key, "must be one for all nodes; it is " + "; ".join(said), remedy)
            )
    return values, problems


def _where(names: list[str], raw: Raw) -> str:
    """The hosts, and the groups that only they are in."""
    others = {group for name in raw if name not in names for group in raw[name][0]}
    groups = sorted({group for name in names for group in raw[name][0]} - others)
    text = some(names, 3)
    return f"{text} (group {', '.join(groups)})" if groups else text


def read_config(values: dict[str, Any]) -> tuple[FleetConfig, set[str], list[Problem]]:
    """The fleet's values without its engines, the keys that are wrong, and how."""
    values = {key: value for key, value in values.items() if key != "instances"}
    bundle = values.get("bundle")
    if isinstance(bundle, Mapping) and isinstance(bundle.get("url"), str):
        values.setdefault("wheelhouse_url", f"{bundle['url'].rstrip('/')}/wheelhouse")
    stand_ins = {"fleet": "unnamed", "stack": "unknown", "wheelhouse_url": "http://unknown"}
    config, broken, errors = _read(FleetConfig, values, stand_ins)
    return config, broken, list(from_pydantic(errors, FleetConfig, FLEET))


def read_engines(values: dict[str, Any]) -> tuple[list[tuple[Instance, set[str]]], list[Problem]]:
    """Each entry of ``instances`` with its keys that can't be trusted, and what is wrong."""
    given = values.get("instances", [])
    if not isinstance(given, (list, tuple)):
        what = f"should be a list; it is {shown(given)}"
        return [], [Problem(FLEET, "instances", what, "correct `instances`")]
    engines: list[tuple[Instance, set[str]]] = []
    problems: list[Problem] = []
    stand_ins = {
        "name": "unnamed",
        "nodes": ["unknown"],
        "model": "/unknown",
        "served_name": "unknown",
        "api_key_file": "unknown",
    }
    for number, item in enumerate(given):
        if not isinstance(item, Mapping):
            what = f"should be a dictionary; it is {shown(item)}"
            problems.append(Problem(FLEET, f"instances[{number}]", what, "give it keys and values"))
            continue
        name = item.get("name")
        label = name if isinstance(name, str) and name else str(number)
        engine, unsure, errors = _read(Instance, dict(item), stand_ins)
        problems += from_pydantic(errors, Instance, FLEET, f"instances[{label}]")
        # A misspelt key leaves a default where a value was meant.
        unsure |= {meant_by(key, Instance.model_fields) for key in unsure}
        engines.append((engine.model_copy(update={"name": label}), unsure))
    return engines, problems


def read_node(
    name: str, groups: list[str], data: Mapping[str, Any], skus: Path
) -> tuple[Node, bool, list[Problem]]:
    """The node as far as it can be read, whether its GPUs are known, and what is wrong with it."""
    problems: list[Problem] = []
    values = {key: value for key, value in data.items() if key in NODE_KEYS}
    known = "gpus" in values
    sku = values.get("sku")
    if isinstance(sku, str):
        try:
            gpus = load_sku(sku, skus).gpus
            values.setdefault("gpus", gpus.count)
            values.setdefault("nvswitch", gpus.nvswitch)
            known = True
        except SkuError as error:
            known_name = sku in known_skus(skus)
            remedy = "correct that file" if known_name else "name a known one, or add that file"
            problems.append(Problem(name, "sku", str(error), remedy))
    values.setdefault("gpus", 0)
    values |= {"name": name, "groups": groups}
    node, broken, errors = _read(Node, values, {"address": "", "sku": "", "gpus": 0})
    return node, known and "gpus" not in broken, problems + list(from_pydantic(errors, Node, name))


def _read(
    model: type[M], values: dict[str, Any], stand_ins: Mapping[str, Any]
) -> tuple[M, set[str], list[Any]]:
    """The model without the keys that are wrong, those keys, and pydantic's details of them."""
    try:
        return model.model_validate(values), set(), []
    except ValidationError as error:
        errors = error.errors(include_url=False)
    broken = {str(detail["loc"][0]) for detail in errors}
    rest = {key: value for key, value in values.items() if key not in broken}
    rest |= {key: value for key, value in stand_ins.items() if key in broken}
    return model.model_validate(rest), broken, errors
