"""Wheels: from this machine's wheelhouse, else by pip in small batches, else by their URL.

pip knows the site's mirrors. It keeps nothing of a batch that was killed, so batches are small.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from rackpin.bundle.contents import wheel_item
from rackpin.bundle.download import Tally
from rackpin.bundle.model import BundleError, Item
from rackpin.bundle.store import FULL, Store, full
from rackpin.stack import download
from rackpin.stack.lock import STACKS, Lock, Stack, Wheel
from rackpin.stack.pins import StackError
from rackpin.stack.wheelfile import build_local, sha256_of
from rackpin.stack.wheelhouse import default_dir

BATCH_BYTES = 200_000_000
BATCH_FILES = 12


def local_wheels(
    stack: Stack, wanted: set[str], store: Store, root: Path = STACKS
) -> dict[str, str]:
    """Build those of ``wanted`` (paths) that this repository builds; returns problems by path."""
    problems = {}
    for wheel in stack.lock.files:
        item = wheel_item(wheel)
        if wheel.builder is None or item.path not in wanted or store.path(item).is_file():
            continue
        pin = next(pin for pin in stack.pins.local_wheels if pin.name == wheel.name)
        with tempfile.TemporaryDirectory(prefix="build-", dir=store.parts) as temp:
            try:
                problem = store.adopt(
                    build_local(pin, root.parent, Path(temp), sys.executable), item
                )
            except StackError as error:
                problem = str(error)
            if problem:
                problems[item.path] = f"{problem}; has {wheel.builder} changed? lock it again"
    return problems


def from_wheelhouse(items: Iterable[Item], store: Store, moved: Callable[[int], None]) -> None:
    """Copy what this machine's wheelhouse has and what is right."""
    house = default_dir()
    for item in items:
        file = house / Path(item.path).name
        if item.kind == "wheel" and file.is_file() and sha256_of(file) == item.sha256:
            try:
                shutil.copyfile(file, store.part(item))
            except OSError as error:
                if error.errno in FULL:
                    text = full(store.directory, item.size or 0)
                    raise BundleError(text) from None
                raise
            store.adopt(store.part(item), item)
            moved(item.size or 0)


def batches(wheels: list[Wheel]) -> list[list[Wheel]]:
    """Wheels in groups that pip fetches in one go."""
    groups: list[list[Wheel]] = []
    size = 0
    for wheel in wheels:
        if not groups or len(groups[-1]) >= BATCH_FILES or size + wheel.size > BATCH_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(wheel)
        size += wheel.size
    return groups


def pip_batch(
    wheels: list[Wheel], lock: Lock, store: Store, tally: Tally, moved: Callable[[int], None]
) -> None:
    """Fetch a batch by pip; what it doesn't bring is left for the URLs, with its complaint."""
    if tally.stop.is_set():
        return

    def take(found: Path, wheel: Wheel, source: str) -> None:
        if problem := store.adopt(found, wheel_item(wheel)):
            tally.problems[wheel_item(wheel).path] = f"{problem} from {source}"
        else:
            moved(wheel.size)

    with tempfile.TemporaryDirectory(prefix="pip-", dir=store.parts) as temp:
        try:
            said = download.by_pip(wheels, lock, Path(temp), take, lambda text: None)
        except OSError as error:
            if error.errno in FULL:
                tally.end(BundleError(full(store.directory, sum(w.size for w in wheels))))
                return
            said = f"{type(error).__name__}: {error}"
    if "No space left" in said:
        tally.end(BundleError(full(store.directory, sum(w.size for w in wheels))))
    for wheel in wheels:
        item = wheel_item(wheel)
        if not store.path(item).is_file():
            tally.problems.setdefault(item.path, f"{item.path}: pip: {said}")
