"""Fetching what a bundle lacks: this machine's wheelhouse, builders, pip, and then the URLs."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rackpin.bundle import wheels
from rackpin.bundle.contents import wheel_item
from rackpin.bundle.download import Fetcher, Tally
from rackpin.bundle.model import BundleError, Item
from rackpin.bundle.store import Store
from rackpin.stack import download as pip
from rackpin.stack.lock import STACKS, Lock, Stack, Wheel

T = TypeVar("T")
Moved = Callable[[int], None]


@dataclass
class Gather:
    """One run. ``moved`` is told of bytes as they come in."""

    stack: Stack
    store: Store
    moved: Moved
    jobs: int = 4
    root: Path = STACKS  # the directory of the stacks; builders lie beside it
    sleep: Callable[[float], None] = time.sleep
    tally: Tally = field(default_factory=Tally)

    def run(self, wanted: list[Item]) -> None:
        """Have all of ``wanted``, or :class:`BundleError` with everything that is missing."""
        paths = {item.path for item in wanted}
        by_path = {wheel_item(w).path: w for w in self.stack.lock.files}
        wheels.from_wheelhouse(wanted, self.store, self.moved)
        self.tally.problems |= wheels.local_wheels(self.stack, paths, self.store, self.root)
        self._by_pip([by_path[i.path] for i in self._left(wanted) if i.kind == "wheel"])
        built = {path for path, wheel in by_path.items() if wheel.builder}
        fetcher = Fetcher(self.store, self.tally, self.moved, self.sleep)
        try:
            self._parallel(fetcher.fetch, [i for i in self._left(wanted) if i.path not in built])
        finally:
            fetcher.close()
        if self.tally.problems:
            raise BundleError(self.tally.text(self.store.directory, len(wanted)))

    def _left(self, wanted: list[Item]) -> list[Item]:
        # Under its name lies only what was proved: damaged files were taken away before.
        return [item for item in wanted if not self.store.path(item).is_file()]

    def _by_pip(self, wanted: list[Wheel]) -> None:
        wanted = [wheel for wheel in wanted if not wheel.builder]
        if pip.pip_command() is None:
            return

        def one(batch: tuple[Lock, list[Wheel]]) -> None:
            wheels.pip_batch(batch[1], batch[0], self.store, self.tally, self.moved)

        every = self.stack.lock
        for lock in map(every.for_python, every.pythons):  # pip is told of one Python at a time
            there = {wheel.filename for wheel in lock.files}
            of_it = [w for w in wanted if w.filename in there]
            wanted = [w for w in wanted if w.filename not in there]
            self._parallel(one, [(lock, batch) for batch in wheels.batches(of_it)])

    def _parallel(self, work: Callable[[T], None], things: list[T]) -> None:
        """Do it for all, so many at a time; ends early when something stops them all."""
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                list(pool.map(work, things))
            except BaseException:  # also Ctrl-C: the others end at their next block
                self.tally.stop.set()
                raise
        if self.tally.fatal:
            raise self.tally.fatal
