"""A stage's wish for one node, as data: files, directories, packages, units. No connection.

The survey asks about exactly these things, the operations compare, and unit tests read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import jinja2

from rackpin import layout
from rackpin.fabric.model import Fabric
from rackpin.inventory import ROOT, Fleet, Node
from rackpin.stack.lock import Lock

TEMPLATES = ROOT / "templates"
OWNED_MARK = "Owned by rackpin"
T = TypeVar("T")


@dataclass(frozen=True)
class OwnedFile:
    """A whole file that rackpin owns. ``triggers`` name what must happen after a change."""

    path: str
    content: str = field(repr=False)
    mode: str = "644"
    owner: str = "root"
    group: str = "root"
    triggers: tuple[str, ...] = ()
    secret: bool = False  # content never shown, never world-readable for a moment

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


@dataclass(frozen=True)
class OwnedDir:
    path: str
    mode: str = "755"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class Desired:
    """What one stage wants of one node."""

    files: tuple[OwnedFile, ...] = ()
    directories: tuple[OwnedDir, ...] = ()
    packages: tuple[str, ...] = ()
    units: tuple[str, ...] = ()  # enabled and running
    foreign: tuple[str, ...] = ()  # further paths whose state the stage asks for

    @cached_property
    def triggers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(trigger for file in self.files for trigger in file.triggers))

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every path whose state the stage asks for, marks of unfinished work included."""
        owned = [f.path for f in self.files] + [d.path for d in self.directories]
        marks = [pending_mark(trigger) for trigger in self.triggers]
        # In one order, so that the survey's question is the same whatever the survey brings.
        return tuple(sorted({*owned, *marks, *self.foreign}))


def pending_mark(trigger: str) -> str:
    """Exists on a node from before a file is changed until its trigger has done its work."""
    return f"{layout.PENDING}/{trigger}"


@dataclass(frozen=True)
class Target:
    """What a stage may know when it makes its wish."""

    fleet: Fleet
    node: Node
    lock: Lock
    interface: str = ""  # the NIC that owns the node's address; known after the survey
    fabric: Fabric | None = None  # what connects its cards; known after the survey
    # What was worked out for this very target; another one, also by replace(), starts empty.
    memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, function: Callable[[Target], T]) -> T:
        """What the function says of this target, asked only the first time."""
        if function not in self.memo:
            self.memo[function] = function(self)
        found: T = self.memo[function]
        return found

    def seen(self, interface: str, fabric: Fabric | None) -> Target:
        """The same node once its survey is known; what doesn't depend on that is kept."""
        found = replace(self, interface=interface, fabric=fabric)
        found.memo.update({k: v for k, v in self.memo.items() if isinstance(v, Target)})
        return found

    @property
    def os_key(self) -> str:
        """``debian-12``: what the inventory says the node runs, else the lock's first OS.

        The survey's answer must be the same, or the run is refused (:mod:`rackpin.preflight`).
        """
        return self.node.os or self.lock.os[0].key


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,  # a forgotten value is an error, not an empty line
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # these are configuration files, not pages
    )


def render(template: str, **values: Any) -> str:
    """A file of ``templates/``, with the mark that says whose it is."""
    owned = f"{OWNED_MARK} (templates/{template}): a change made here is undone by the next run."
    text = _environment().get_template(template).render(owned=owned, **values)
    return text if text.endswith("\n") else text + "\n"


def owned(template: str, path: str = "", **options: Any) -> OwnedFile:
    """The file of a template at the path it is laid out by. Values go in ``values=``."""
    values = options.pop("values", {})
    target = path or "/" + template.removesuffix(".j2")
    return OwnedFile(target, render(template, **values), **options)


def template_names() -> list[str]:
    return sorted(str(p.relative_to(TEMPLATES)) for p in Path(TEMPLATES).rglob("*.j2"))
