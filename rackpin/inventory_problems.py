"""Everything that is wrong with an inventory, at once, in words for a terminal at 3 a.m."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from inspect import isclass
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel
from pyinfra.api.exceptions import InventoryError as PyinfraInventoryError

from rackpin.inventory import (
    SERVED_NAME,
    FleetConfig,
    Instance,
    Limits,
    Node,
    RayConfig,
    RayPorts,
)
from rackpin.inventory_parts import (
    DEB_NAME,
    DEB_VERSION,
    NAME,
    SUITE,
    AptPin,
    AptRepository,
    GatewayConfig,
)

FLEET = "fleet"  # the node of a problem that is not one node's
WIDTH = 96

# Words from vLLM, Ansible and common sense that people write for our keys.
ALIASES = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "served_model_name": "served_name",
    "model_path": "model",
    "api_key": "api_key_file",
    "ip": "address",
    "ip_address": "address",
    "hostname": "ssh_hostname",
    "ansible_host": "ssh_hostname",
    "ansible_port": "ssh_port",
    "ansible_user": "ssh_user",
    "ansible_ssh_private_key_file": "ssh_key",
    "become": "_sudo",
    "gpu_count": "gpus",
}
# What to write where a required key is missing.
EXAMPLES = {
    "fleet": 'give it to `all`, e.g. "fleet": "prod"',
    "stack": 'give it to `all`, e.g. "stack": "cpu-lab"',
    "wheelhouse_url": 'give it to `all`: where nodes fetch wheels, e.g. "http://10.20.0.2:8900"',
    "address": 'give the node the IP that other nodes reach it by, e.g. "address": "10.20.0.11"',
    "sku": 'say what hardware it is, for the node or its group, e.g. "sku": "h100-sxm-8"',
    "api_key_file": 'name a file on this machine, mode 0600, e.g. "~/.config/rackpin/api-key"',
    "model": 'give the model\'s absolute path on the nodes, e.g. "/srv/models/llama-3-70b"',
    "nodes": 'list the nodes it runs on, e.g. "nodes": ["gpu001", "gpu002"]',
}

LISTS = ("instances", "apt_repositories", "apt_pins")  # keys whose value is a list of entries

PATTERNS = {
    NAME: "a-z, 0-9 and -, at most 41 characters, the first no -",
    SERVED_NAME: "letters, digits and . _ : / @ + -, without a space",
    DEB_NAME: "a Debian package's name",
    DEB_VERSION: "a whole version as apt prints it, e.g. 535.129.03-0ubuntu1; no * in it",
    SUITE: "a suite's name, or a path that ends with / for a flat repository",
}


class Problem(NamedTuple):
    """One mistake: whose (a node's name, or "fleet"), under which key, and the way out.

    ``remedy`` may end with a command to copy, after a newline and "$ ".
    """

    node: str
    key: str
    message: str
    remedy: str


class InventoryError(PyinfraInventoryError):
    """All that is wrong with an inventory. pyinfra prints it without a traceback.

    ``problems`` has one entry a node and key; the text folds equal ones of several nodes.
    """

    def __init__(
        self, problems: Sequence[Problem], source: str, nodes: Collection[str] = ()
    ) -> None:
        self.problems = list(problems)
        self.source = source
        super().__init__(render(self.problems, source, nodes))


def render(problems: Sequence[Problem], source: str, nodes: Collection[str] = ()) -> str:
    """Plain text, fleet first, then node by node in the inventory's order."""
    folded: dict[tuple[str, str, str], list[str]] = {}
    order = {name: number for number, name in enumerate([FLEET, *nodes])}
    for problem in sorted(problems, key=lambda p: order.get(p.node, len(order))):
        folded.setdefault(problem[1:], []).append(problem.node)
    count = "1 problem" if len(folded) == 1 else f"{len(folded)} problems"
    lines = [f"{count} in {source}; no node was touched:"]
    for (key, message, remedy), names in folded.items():
        everyone = len(names) > 1 and set(names) == set(nodes)
        who = f"all {len(names)} nodes" if everyone else some(dict.fromkeys(names), 8)
        lines += ["", f"  {who} · {key}", *_wrap(message, ""), *_wrap(remedy, "→ ")]
    return "\n".join(lines)


def _wrap(text: str, mark: str) -> list[str]:
    prose, dollar, command = text.partition("\n$ ")
    indent = " " * 6
    lines = textwrap.wrap(
        prose,
        WIDTH,
        initial_indent=indent + mark,
        subsequent_indent=indent + " " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )
    # A command stays in one piece, to be copied.
    return [*lines, f"{indent}{' ' * len(mark)}{command}"] if dollar else lines


def some(names: Iterable[str], most: int = 4) -> str:
    """ "a, b and 3 more": as many names as a line should carry."""
    names = list(names)
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def shown(value: Any, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def close_to(word: str, candidates: Iterable[str]) -> str:
    """The candidate that was probably meant, or ""."""
    candidates = sorted(set(candidates))
    return next(iter(get_close_matches(word, candidates, n=1, cutoff=0.65)), "")


def meant_by(key: str, allowed: Collection[str]) -> str:
    """The allowed key that an unknown one was probably meant to be, or ""."""
    alias = ALIASES.get(key, "")
    return alias if alias in allowed else close_to(key, allowed)


def unknown_key(node: str, key: str, allowed: Collection[str], prefix: str = "") -> Problem:
    """An unknown key, with what was probably meant or where it belongs."""
    alias, meant = ALIASES.get(key, ""), meant_by(key, allowed)
    homes: dict[str, type[BaseModel]] = {
        "ray": RayConfig,
        "ray.ports": RayPorts,
        "limits": Limits,
        "gateway": GatewayConfig,
        "instances": Instance,
        "apt_repositories": AptRepository,
        "apt_pins": AptPin,
    }
    wanted = alias or key
    home = next((h for h, model in homes.items() if wanted in model.model_fields), "")
    if meant:
        remedy = f"did you mean `{meant}`? Rename it, or remove it"
    elif home and not prefix:
        place = f"an entry of `{home}`" if home in LISTS else f"`{home}`"
        remedy = f"`{wanted}` belongs in {place}; move it there"
    elif prefix and (key in FleetConfig.model_fields or key in Node.model_fields):
        remedy = f"`{key}` stands beside `{prefix.split('[')[0].split('.')[0]}`; move it out"
    else:
        remedy = f"remove it; docs/inventory.md lists the keys (here: {some(sorted(allowed), 12)})"
    if key.startswith("_") and not meant:
        remedy = (
            "remove it; a helper in a group_data file becomes data unless `__all__` leaves it out"
        )
    return Problem(node, f"{prefix}.{key}" if prefix else key, "unknown key", remedy)


def from_pydantic(
    errors: Sequence[Mapping[str, Any]], model: type[BaseModel], node: str, prefix: str = ""
) -> Iterator[Problem]:
    """pydantic's error details as problems, one a key (the arms of a union are folded)."""
    by_key: dict[str, list[Mapping[str, Any]]] = {}
    for error in errors:
        key, owner = _key_and_owner(error["loc"], model)
        if error["type"] == "extra_forbidden":
            name = str(error["loc"][-1])
            inner = ".".join(part for part in (prefix, key.rpartition(".")[0]) if part)
            yield unknown_key(node, name, owner.model_fields, inner)
        else:
            by_key.setdefault(key, []).append(error)
    for key, wrong in by_key.items():
        path = ".".join(part for part in (prefix, key) if part)
        if wrong[0]["type"] == "missing":
            name = key.rpartition(".")[2]
            yield Problem(node, path, "missing", EXAMPLES.get(name, f"give `{name}` a value"))
            continue
        wish = "should be " + " or ".join(dict.fromkeys(_wish(error) for error in wrong))
        given = wrong[0]["input"]
        # The value of an environment variable may be a secret that stands in the wrong place.
        said = f"of type {type(given).__name__}" if ".env." in f".{path}." else shown(given)
        yield Problem(node, path, f"{wish}; it is {said}", f"correct `{path}`")


def _wish(error: Mapping[str, Any]) -> str:
    if error["type"] == "string_pattern_mismatch":
        pattern = str(error["ctx"]["pattern"])
        return PATTERNS.get(pattern, pattern)
    if error["type"] == "string_too_short":
        return "given, not empty"
    text = str(error["msg"]).removeprefix("Input should be ")
    return text.partition(", unable to parse")[0].replace("List should have", "a list with")


def _key_and_owner(loc: Sequence[Any], model: type[BaseModel]) -> tuple[str, type[BaseModel]]:
    """The dotted key without pydantic's union tags, and the model that holds it."""
    key, owner = "", model
    for depth, part in enumerate(loc):
        if isinstance(part, int):
            key += f"[{part}]"
            continue
        key += f".{part}" if key else str(part)
        field = owner.model_fields.get(str(part))
        if field is None or depth == len(loc) - 1:
            break
        if isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            owner = field.annotation
            continue
        inner = next(iter(get_args(field.annotation)), None)
        if isclass(inner) and issubclass(inner, BaseModel):
            owner = inner  # a list of entries: an index follows, then a key of the entry
            continue
        rest = loc[depth + 1 :]  # a list's index or a dict's key; what follows is a union tag
        if isinstance(rest[0], int):
            key += f"[{rest[0]}]"
        elif "dict" in str(field.annotation):
            key += f".{rest[0]}"
        break
    return key, owner
