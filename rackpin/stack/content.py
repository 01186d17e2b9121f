"""The content of a lock, as a model. Its files: :mod:`rackpin.stack.lock`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, TypeVar

from packaging.utils import canonicalize_name
from pydantic import Field

from rackpin.stack.items import (
    DebClosure,
    Host,
    Image,
    ModelFile,
    Package,
    Source,
    Unresolved,
    Wheel,
)
from rackpin.stack.model import Model, StackError
from rackpin.stack.pins import SITE_PACKAGES, EnginePin, OsPin

LOCK_DIR = "lock"
LOCK_FILE = "lock.json"
T = TypeVar("T", bound=Model)


class Lock(Model):
    """Everything a node gets of this stack. Frozen; identified by :attr:`digest`.

    Items that could not be resolved are :class:`Unresolved`; who needs one asks by ``require_…``
    and is refused with the reason.
    """

    schema_version: Literal[2] = 2
    stack: str
    pins_sha256: str
    os: list[OsPin]
    arch: Literal["x86_64"]
    python: str
    engine: EnginePin
    engine_env: dict[str, str] = Field(
        default_factory=dict
    )  # for Ray and every engine, placeholders not yet filled
    host: Host = Host()
    debs: dict[str, list[str]]  # by OS key: names that the Python environment needs
    packages: dict[str, list[Package]] = Field(
        default_factory=dict
    )  # by OS key: all that the host needs by name
    debs_closure: dict[str, DebClosure | Unresolved] = Field(default_factory=dict)  # by OS key
    sources: dict[str, Source | Unresolved] = Field(default_factory=dict)
    images: dict[str, Image | Unresolved] = Field(default_factory=dict)
    models: dict[str, list[ModelFile]] = Field(default_factory=dict)  # sorted by path
    wheels: list[Wheel]  # sorted by name
    other_wheels: dict[str, list[Wheel]] = Field(
        default_factory=dict
    )  # by Python, for an OS whose Python is another
    uv: Wheel  # the installer, not part of the environment

    @cached_property
    def digest(self) -> str:
        """sha256 over the canonical JSON of the whole lock (64 hex)."""
        return _sha256(self.model_dump(mode="json"))

    @property
    def short(self) -> str:
        """The first 12 hex digits of the digest, for people."""
        return self.digest[:12]

    @cached_property
    def env_digest(self) -> str:
        """sha256 over what makes the Python environment (64 hex).

        A change of anything else, a driver for example, leaves environments as they are.
        """
        wheels = [(w.name, w.version, w.filename, w.sha256) for w in self.wheels]
        return _sha256({"python": self.python, "arch": self.arch, "wheels": wheels})

    @property
    def env_name(self) -> str:
        """``cpu-lab-0123456789ab``: the environment's directory on a node."""
        return f"{self.stack}-{self.env_digest[:12]}"

    @cached_property
    def dists(self) -> dict[str, str]:
        """Version by normalised distribution name, of what the environment must hold."""
        return {wheel.name: wheel.version for wheel in self.wheels}

    @property
    def pythons(self) -> list[str]:
        """Every Python that the lock has wheels for; the stack's own first."""
        return [self.python, *self.other_wheels]

    def for_python(self, python: str) -> Lock:
        """This lock as a node with another Python sees it; itself for the stack's own."""
        if python == self.python:
            return self
        if python not in self.other_wheels:
            raise StackError(
                f"stack {self.stack}: lock has no wheels for Python {python}, only for "
                f"{', '.join(self.pythons)}; add `python` to the OS in pins.yaml, then "
                f"run: rackpin lock {self.stack}"
            )
        return self.but(python=python, wheels=self.other_wheels[python], other_wheels={})

    def but(self, **fields: Any) -> Lock:
        """A lock like this one with other fields (model_copy would keep the old digests)."""
        return Lock(**{**{name: getattr(self, name) for name in Lock.model_fields}, **fields})

    @property
    def files(self) -> list[Wheel]:
        """All that a wheelhouse must have for this lock, each file once."""
        every = [*self.wheels, *(w for more in self.other_wheels.values() for w in more), self.uv]
        return list({wheel.filename: wheel for wheel in every}.values())

    @property
    def requirements_name(self) -> str:
        return f"python-{self.python}-{self.arch}.txt"

    def version_of(self, name: str) -> str:
        """The locked version of a distribution; :class:`StackError` when it isn't locked."""
        try:
            return self.dists[canonicalize_name(name)]
        except KeyError:
            raise StackError(
                f"stack {self.stack}: lock has no {name}; add it to dists in pins.yaml, then "
                f"run: rackpin lock {self.stack}"
            ) from None

    def engine_environment(self, env_path: str) -> dict[str, str]:
        """Variables for Ray and the engines, for an environment that lies at ``env_path``."""
        place = f"{env_path}/lib/python{self.python}/site-packages"
        return {name: v.replace(SITE_PACKAGES, place) for name, v in self.engine_env.items()}

    def require_os(self, id: str, version: str) -> OsPin:
        """The lock's entry for this OS; :class:`StackError` when the lock wasn't made for it."""
        for os in self.os:
            if (os.id, os.version) == (id, version):
                return os
        known = ", ".join(f"{os.id} {os.version}" for os in self.os)
        raise StackError(
            f"stack {self.stack}: lock is for {known}, not for {id} {version}; use another stack "
            f"for this node, or add the OS to os in pins.yaml and run: rackpin lock {self.stack}"
        )

    @property
    def unresolved(self) -> dict[str, Unresolved]:
        """What the lock lacks, by its key: ``images.base``, ``debs_closure.ubuntu-22.04``."""
        parts: dict[str, Mapping[str, Model]] = {
            "debs_closure": self.debs_closure,
            "sources": self.sources,
            "images": self.images,
        }
        return {
            f"{part}.{name}": item
            for part, items in parts.items()
            for name, item in items.items()
            if isinstance(item, Unresolved)
        }

    def require_debs(self, os_key: str) -> DebClosure:
        """The debs for an OS; :class:`StackError` when they are not resolved."""
        return self._require("debs_closure", self.debs_closure, os_key, DebClosure)

    def require_source(self, name: str) -> Source:
        """A source archive (``nccl-tests``, ``gdrcopy``); :class:`StackError` if unresolved."""
        return self._require("sources", self.sources, name, Source)

    def require_image(self, name: str) -> Image:
        """An image (``base``) with its digest; :class:`StackError` when it is not resolved."""
        return self._require("images", self.images, name, Image)

    def _require(
        self, part: str, items: Mapping[str, T | Unresolved], name: str, kind: type[T]
    ) -> T:
        where = f"stacks/{self.stack}/{LOCK_DIR}/{LOCK_FILE}: {part}.{name}"
        item = items.get(name)
        if isinstance(item, kind):
            return item
        if isinstance(item, Unresolved):
            raise StackError(
                f"{where}: unresolved ({item.wanted}): {item.unresolved.reason}. Run "
                f"`rackpin lock {self.stack}` where it can be had; until then nothing can use it"
            )
        known = ", ".join(items) or "none"
        raise StackError(
            f"{where}: not in the lock (it has {known}); add it to pins.yaml, then "
            f"run: rackpin lock {self.stack}"
        )


def _sha256(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
