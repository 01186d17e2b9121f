"""A ``config.json``: read with errors that say what to do, and asked by any of a fact's names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackpin.plan.data import table
from rackpin.plan.errors import PlanError

# No model is near these: beyond them is a typing error that would cost minutes of arithmetic.
LIMITS = {"num_hidden_layers": 2000, "experts": 100_000}


@dataclass(frozen=True)
class Keys:
    """One object of a config: ``where`` is its path in the file ("" at the top)."""

    file: str
    where: str
    data: dict[str, Any]
    defaults: dict[str, Any]

    def raw(self, key: str) -> Any:
        """The value of ``key``, the family's default where it is absent or null, else None."""
        found = self.data.get(key)
        return self.defaults.get(key) if found is None else found

    def fact(self, fact: str) -> tuple[str, Any]:
        """Name and value under which the config has a fact; (first name, None) where it hasn't."""
        names = table("families")["aliases"].get(fact, [fact])
        for name in names:
            value = self.data.get(name)
            if value is not None:
                return name, value
        for name in names:
            if name in self.defaults:
                return name, self.defaults[name]
        return names[0], None

    def number(self, fact: str, least: int = 1) -> int | None:
        """A whole number, None where absent. Raises PlanError for anything else."""
        name, value = self.fact(fact)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        most = LIMITS.get(fact, 2**31)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise PlanError(
                f"{self.label(name)} is {value!r}: it must be a whole number from {least} to {most}"
            )
        return value

    def need(self, fact: str, remedy: str = "") -> int:
        """A whole number that must be there."""
        value = self.number(fact)
        if value is None:
            names = table("families")["aliases"].get(fact, [fact])
            also = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            raise PlanError(
                f"{self.label(names[0])}{also} is missing: "
                + (remedy or "use the config.json that the model was published with")
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw(key)
        return default if value is None else bool(value)

    def label(self, key: str) -> str:
        return f"{self.file}: {self.where}.{key}" if self.where else f"{self.file}: {key}"


def load(path: str | Path) -> dict[str, Any]:
    """The object in a ``config.json``, or of the one in a model's directory.

    Raises PlanError when it can't be read or isn't JSON of an object.
    """
    place = Path(path)
    if place.is_dir():
        place = place / "config.json"
    try:
        text = place.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise PlanError(f"{place}: can't be read ({why}); give the model's config.json") from None
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise PlanError(f"{place}: is no JSON ({error}); fetch the file again") from None
    if not isinstance(found, dict):
        raise PlanError(f"{place}: holds no JSON object; give the model's config.json")
    return found


def text_part(file: str, config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The part for the language model, with what stands only at the top, and its path."""
    for key in table("families")["text_in"]:
        inner = config.get(key)
        if isinstance(inner, dict):
            deeper, path = text_part(file, inner)
            upper = {k: v for k, v in config.items() if k in _SHARED and v is not None}
            return {**upper, **deeper}, f"{key}.{path}" if path else key
    return config, ""


# what multimodal configs say once at the top for the language model too
_SHARED = ("torch_dtype", "dtype", "tie_word_embeddings", "quantization_config", "vocab_size")
