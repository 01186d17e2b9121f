"""What must hold of the models that engines take from the stack (``model_pin``)."""

from __future__ import annotations

from collections.abc import Iterator

from rackpin.inventory import Fleet
from rackpin.inventory_problems import FLEET, InventoryError, Problem
from rackpin.inventory_rules import Draft, Rule
from rackpin.stack.lock import Lock


def key_of(engine: str) -> str:
    return f"instances[{engine}].model_pin"


def places(draft: Draft) -> Iterator[Problem]:
    """Where the files come from, and that no two engines want others at one path."""
    seen: dict[str, tuple[str, str | None]] = {}
    for engine in draft.engines("model", "model_pin"):
        if engine.model_pin and draft.config.bundle is None and "bundle" not in draft.broken:
            yield Problem(
                FLEET,
                key_of(engine.name),
                f"{engine.model_pin} would come from a bundle, and there is none",
                "give `bundle`, or put the model there yourself and leave `model_pin` out",
            )
        first, pin = seen.setdefault(engine.model, (engine.name, engine.model_pin))
        if pin != engine.model_pin:
            yield Problem(
                FLEET,
                key_of(engine.name),
                f"is {engine.model_pin or 'not given'}, but {pin or 'not given'} for {first}, and "
                f"both are at {engine.model}",
                "give each model a path of its own",
            )


RULES: tuple[Rule, ...] = (places,)


def of_the_stack(fleet: Fleet, lock: Lock) -> None:
    """Raises :class:`InventoryError` for engines whose model the lock doesn't have."""
    others = f"it has {', '.join(lock.models)}" if lock.models else "it has none"
    problems = [
        Problem(
            FLEET,
            key_of(one.name),
            f"stack {lock.stack} has no model {one.model_pin!r}; {others}",
            "name it in the stack's `models` and lock again, or leave `model_pin` out",
        )
        for one in fleet.config.instances
        if one.model_pin and one.model_pin not in lock.models
    ]
    if problems:
        raise InventoryError(problems, "the stack of the inventory")
