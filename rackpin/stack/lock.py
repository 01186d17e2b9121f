"""What the resolver made of the pins: ``stacks/NAME/lock/``, read whole and never half.

``lock.json`` names every wheel, deb, source and image exactly, one item a line;
``python-X.Y-ARCH.txt`` says the wheels as pip and uv read them. Same inputs, same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rackpin.stack.content import LOCK_DIR, LOCK_FILE, Lock
from rackpin.stack.items import Unresolved, Wheel
from rackpin.stack.model import StackError, explain
from rackpin.stack.pins import Pins, load_pins

__all__ = ["Lock", "StackError", "Unresolved", "Wheel"]  # who uses a lock needs these too

# A site may keep its stacks elsewhere.
STACKS = Path(os.environ.get("RACKPIN_STACKS") or Path(__file__).resolve().parents[2] / "stacks")


@dataclass(frozen=True)
class Stack:
    """Pins and the lock that fits them."""

    pins: Pins
    lock: Lock


def _lines(value: Any, depth: int) -> Iterator[str]:
    """JSON with one line for each item: what is nested deeper than an item stays on its line."""
    pad = " " * (depth + 1)
    pairs: list[tuple[str, Any]]
    if isinstance(value, dict) and value:
        pairs = [(f"{json.dumps(key, ensure_ascii=False)}: ", part) for key, part in value.items()]
        first, last = "{", "}"
    else:
        pairs, first, last = [("", part) for part in value], "[", "]"
    yield first
    for number, (key, part) in enumerate(pairs):
        comma = "," if number < len(pairs) - 1 else ""
        if _is_group(part, depth):
            inner = list(_lines(part, depth + 1))
            yield f"{pad}{key}{inner[0]}"
            yield from inner[1:-1]
            yield f"{inner[-1]}{comma}"
        else:
            yield f"{pad}{key}{json.dumps(part, ensure_ascii=False)}{comma}"
    yield " " * depth + last


def _is_group(value: Any, depth: int) -> bool:
    """Lists of items, and (near the top) mappings of them, are worth a line for each member."""
    if isinstance(value, list):
        return any(isinstance(part, dict) for part in value)
    if isinstance(value, dict) and value:
        if any(_is_group(part, depth + 1) for part in value.values()):
            return True
        return depth == 0 and "sha256" not in value  # host, engine_env, images, sources
    return False


def render_json(lock: Lock) -> str:
    """The text of ``lock.json``: keys in the model's order, one item a line, for review."""
    return "\n".join(_lines(lock.model_dump(mode="json"), 0)) + "\n"


def render_requirements(lock: Lock) -> str:
    """The requirements file: one exact version and one hash for each wheel, sorted by name."""
    head = f"# rackpin owns this file: made from stacks/{lock.stack}/pins.yaml by rackpin lock\n"
    return head + "".join(f"{w.name}=={w.version} --hash=sha256:{w.sha256}\n" for w in lock.wheels)


def render(lock: Lock) -> dict[str, str]:
    """Every file of the lock by its name, ``lock.json`` last."""
    views = [lock.for_python(python) for python in lock.pythons]
    texts = {view.requirements_name: render_requirements(view) for view in views}
    return {**texts, LOCK_FILE: render_json(lock)}


def stack_names(root: Path = STACKS) -> list[str]:
    """Names of the stacks that have pins, sorted."""
    return sorted(file.parent.name for file in root.glob("*/pins.yaml"))


def stack_pins(name: str, root: Path = STACKS) -> Pins:
    """The pins of a stack by name; an unknown name is answered with the known ones."""
    known = stack_names(root)
    if name not in known:
        raise StackError(
            f"stack: no stack {name!r} in {root}; known: {', '.join(known) or 'none'}; "
            f"correct the name or write {root / name / 'pins.yaml'}"
        )
    return load_pins(root / name)


def read_lock_file(file: Path, remedy: str) -> Lock:
    """A ``lock.json`` anywhere; :class:`StackError` names every mistake and the remedy."""
    try:
        return Lock.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StackError(f"{file}: missing; the stack has pins but no lock. {remedy}") from None
    except ValidationError as error:
        raise StackError(explain(error, file, remedy)) from None
    except UnicodeDecodeError as error:
        raise StackError(f"{file}: not UTF-8 ({error}). {remedy}") from None


def read_any_lock(file: Path, remedy: str) -> Lock:
    """Like :func:`read_lock_file`, and a lock of schema 1 too: to keep or compare its versions."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return read_lock_file(file, remedy)  # which says what is wrong with it
    if isinstance(data, dict) and data.get("schema_version") == 1:
        try:
            return Lock.model_validate_json(json.dumps({**data, "schema_version": 2}))
        except ValidationError as error:
            raise StackError(explain(error, file, remedy)) from None
    return read_lock_file(file, remedy)


def read_lock(name: str, root: Path = STACKS) -> Lock:
    """``lock.json`` of a stack by itself, without asking whether it fits the pins."""
    return read_lock_file(root / name / LOCK_DIR / LOCK_FILE, f"Run: rackpin lock {name}")


def load_stack(name: str, root: Path = STACKS) -> Stack:
    """Pins and lock of a stack, proved to belong together.

    ``root`` is the directory that holds the stacks. Raises :class:`StackError` for an unknown
    stack, wrong pins, a missing or stale lock, and a requirements file that differs from it.
    Items that are unresolved don't hinder loading; whoever needs one is refused then.
    """
    pins = stack_pins(name, root)
    lock = read_lock(name, root)
    directory = root / name / LOCK_DIR
    remedy = f"run: rackpin lock {name}"
    if lock.stack != name:
        raise StackError(
            f"{directory / LOCK_FILE}: stack: is {lock.stack!r}, not {name!r}; {remedy}"
        )
    if lock.pins_sha256 != pins.sha256:
        raise StackError(
            f"{directory / LOCK_FILE}: pins_sha256: the lock was made from other pins than "
            f"{root / name / 'pins.yaml'} has now; {remedy}"
        )
    for file_name, text in render(lock).items():
        file = directory / file_name
        if file_name == LOCK_FILE:
            continue  # read already; its layout may be somebody's editor's
        if not file.is_file():
            raise StackError(f"{file}: missing beside lock.json; {remedy}")
        if file.read_text(encoding="utf-8") != text:
            raise StackError(f"{file}: differs from lock.json; it is generated, so {remedy}")
    return Stack(pins, lock)


def write_lock(lock: Lock, root: Path = STACKS) -> Path:
    """Write all files of the lock; returns its directory. Foreign files there stay."""
    directory = root / lock.stack / LOCK_DIR
    directory.mkdir(parents=True, exist_ok=True)
    texts = render(lock)
    # lock.json last: until then the old one is found not to match its requirements.
    for name, text in texts.items():
        part = directory / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(directory / name)
    for stale in directory.glob("python-*-*.txt"):  # of a Python that the stack has left
        if stale.name not in texts:
            stale.unlink()
    return directory
