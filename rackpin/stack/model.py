"""What all stack files share: strict models, one error type, mistakes named whole."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, ValidationError

SHA256 = r"^[0-9a-f]{64}$"
COMMIT = r"^[0-9a-f]{40}$"


class StackError(Exception):
    """Something is wrong with a stack: the message names file, key and remedy."""


class Model(BaseModel):
    # strict: YAML reads 3.10 as the number 3.1, so versions must come quoted.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def exact_version(value: str) -> str:
    """The version as it is; ValueError for a range or something that is no version."""
    try:
        Version(value)
    except InvalidVersion:
        raise ValueError(f"{value!r} is no exact version (a pin has no ranges)") from None
    return value


def dist_name(value: str) -> str:
    """The normalised name of a Python distribution; ValueError names the right spelling."""
    if canonicalize_name(value) != value:
        raise ValueError(f"write the package name as {canonicalize_name(value)!r}")
    return value


# libyaml where it was built in: the tables of rackpin/compat are read at every check.
_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):
    """Refuses a key given twice, which YAML would let win silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: key {key!r} is given twice")
            seen.add(key)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found


def read_yaml(file: Path, missing: str) -> Any:
    """The content of a YAML file; :class:`StackError` (``missing`` says what to do if absent)."""
    try:
        return yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)  # a SafeLoader
    except FileNotFoundError:
        raise StackError(f"{file}: missing; {missing}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StackError(f"{file}: not readable as YAML: {error}; correct it") from None


_SAY = {
    "extra_forbidden": "unknown key; remove it or correct its spelling",
    "missing": "missing; add it",
}


def _models(annotation: Any) -> Iterable[type[BaseModel]]:
    """The models that an annotation can hold: ``list[X]``, ``dict[str, X]``, ``X | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _known_keys(model: type[BaseModel], where: tuple[int | str, ...]) -> list[str]:
    """Keys that are allowed at a place of a model, as far as the place can be followed."""
    here = [model]
    for part in where:
        fields = [kind.model_fields for kind in here]
        named = [f[part].annotation for f in fields if isinstance(part, str) and part in f]
        if named:
            here = [kind for annotation in named for kind in _models(annotation)]
        # else: an index, a free key or the tag of a union, which stays at the same models
    return sorted({key for kind in here for key in kind.model_fields})


def explain(
    error: ValidationError, file: Path, remedy: str, model: type[BaseModel] | None = None
) -> str:
    """Every mistake of one file, one a line, with its key; ``model`` adds spelling hints."""
    lines = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"]) or "(whole file)"
        text = _SAY.get(item["type"], item["msg"].removeprefix("Value error, "))
        if item["type"] == "string_type" and isinstance(item["input"], int | float):
            text = f'must be text: write "{item["input"]}" in quotes'
        if item["type"] == "extra_forbidden" and model and item["loc"]:
            known = _known_keys(model, item["loc"][:-1])
            if close := get_close_matches(str(item["loc"][-1]), known, n=1):
                text = f"unknown key; did you mean {close[0]!r}?"
            elif known:
                text = f"unknown key; known here: {', '.join(known)}"
        lines.append(f"  {key}: {text}")
    return f"{file}: {len(lines)} mistake(s)\n" + "\n".join(lines) + f"\n{remedy}"
