"""From pins to a lock. Versions of the old lock stay where the pins still allow them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from rackpin.stack import debs, uvtool
from rackpin.stack.archives import resolve_source, source_pins
from rackpin.stack.choose import choose_wheel
from rackpin.stack.content import LOCK_DIR, LOCK_FILE
from rackpin.stack.debs import DebOptions
from rackpin.stack.items import DebClosure, Package, Unresolved, Wheel
from rackpin.stack.lock import STACKS, Lock, read_any_lock, stack_pins
from rackpin.stack.model import StackError
from rackpin.stack.models import read_models
from rackpin.stack.packages import host_of, packages_of
from rackpin.stack.pins import Pins
from rackpin.stack.registry import resolve_image
from rackpin.stack.wheelfile import build_local, sha256_of


def _preferences(wheels: list[Wheel]) -> str:
    """Old wheels as a pylock.toml, whose versions uv keeps where the pins still allow it."""
    lines = ['lock-version = "1.0"', 'created-by = "rackpin"']
    for wheel in wheels:
        if wheel.builder is None:
            lines += ["[[packages]]", f'name = "{wheel.name}"', f'version = "{wheel.version}"']
    return "\n".join(lines) + "\n"


class Resolver:
    """One run of the resolver for one stack; it writes only below ``work``."""

    def __init__(
        self, pins: Pins, old: Lock | None, work: Path, root: Path, options: DebOptions
    ) -> None:
        self.pins, self.old, self.work, self.root = pins, old, work, root
        self.options = options
        settings = uvtool.pip_settings()
        self.links = settings["find-links"]
        self.environment = uvtool.places(pins, settings)

    def tool(self) -> Wheel:
        """The wheel of uv itself, which nodes install with."""
        work = self.work / "uv"  # apart, or uv would read the stack's own pyproject.toml
        work.mkdir()
        (work / "uv.in").write_text(f"uv=={self.pins.uv}\n", encoding="utf-8")
        found = uvtool.compile(
            self.pins, self.pins.python, work, "uv.in", ["--no-deps"], self.environment
        )
        return choose_wheel(
            self.pins, found[0], {self.old.uv.name: self.old.uv} if self.old else {}
        )

    def wheels(self, python: str, moves: list[str], keep: bool) -> list[Wheel]:
        """Everything that the environment of one Python holds, sorted by name."""
        before: list[Wheel] = []
        if self.old and python in self.old.pythons:
            before = self.old.for_python(python).wheels
        work = self.work / python
        work.mkdir()
        project = uvtool.project(self.pins, self.links, python)
        (work / "pyproject.toml").write_text(project, encoding="utf-8")
        if before and keep:
            (work / "pylock.toml").write_text(_preferences(before), encoding="utf-8")
        found = uvtool.compile(self.pins, python, work, "pyproject.toml", moves, self.environment)
        known = {wheel.name: wheel for wheel in before}
        wheels = {w.name: w for w in (choose_wheel(self.pins, p, known, python) for p in found)}
        for local in self.pins.local_wheels:
            file = build_local(local, self.root.parent, self.work / python, sys.executable)
            wheels[local.name] = Wheel(
                name=local.name, version=local.version, filename=file.name,
                sha256=sha256_of(file), size=file.stat().st_size, builder=local.builder,
            )  # fmt: skip
        self._check_nccl(wheels)
        return sorted(wheels.values(), key=lambda wheel: wheel.name)

    def _check_nccl(self, wheels: dict[str, Wheel]) -> None:
        """uv drops an override that nobody asks for, which would be a silent loss."""
        wanted = self.pins.nccl.engine
        if wanted is None:
            return
        found = wheels.get(wanted.distribution)
        if found is None or found.version != wanted.version:
            raise StackError(
                f"stacks/{self.pins.name}/pins.yaml: nccl.engine: the engine gets "
                f"{found.version if found else 'no'} {wanted.distribution}, not {wanted.version}; "
                "correct the distribution's name, it ends in the CUDA major of torch"
            )

    def why(self, new: Lock) -> dict[str, list[str]]:
        """Who asks for each distribution of the new lock, by name; costs another run of uv."""
        local = {wheel.name for wheel in self.pins.local_wheels}
        versions = {name: v for name, v in new.dists.items() if name not in local}
        work = self.work / self.pins.python
        return uvtool.wanted_by(self.pins, self.pins.python, work, versions, self.environment)

    def debs(self, os_key: str, packages: list[Package]) -> DebClosure | Unresolved:
        """The old closure while nothing that decides it has changed, else one made of it."""
        before = self.old.debs_closure.get(os_key) if self.old else None
        old = before if isinstance(before, DebClosure) else None
        if old and self.old and self._same(self.old, os_key, packages):
            return old
        return debs.closure(self.pins, os_key, packages, old, self.options)

    def _same(self, old: Lock, os_key: str, packages: list[Package]) -> bool:
        held = {deb.name for deb in old.require_debs(os_key).debs}
        moving = {debs.ALL, *held} & {*self.options.update}
        return not moving and (old.packages.get(os_key), old.host.driver) == (
            packages,
            self.pins.driver,
        )


def _old_lock(name: str, root: Path) -> Lock | None:
    """The lock that is there, also one of schema 1; None when everything must be found anew."""
    try:
        return read_any_lock(root / name / LOCK_DIR / LOCK_FILE, "")
    except StackError:
        return None


def _locked_debs(lock: Lock | None) -> set[str]:
    closures = lock.debs_closure.values() if lock else ()
    return {deb.name for item in closures if isinstance(item, DebClosure) for deb in item.debs}


def _check_update(name: str, pins: Pins, old: Lock | None, update: tuple[str, ...]) -> None:
    known = {debs.ALL, *pins.images, *(old.dists if old else {}), *_locked_debs(old)}
    if unknown := [n for n in update if not {n, canonicalize_name(n)} & known]:
        raise StackError(f"stack {name}: --update {', '.join(unknown)}: not in the lock")


def resolve(
    name: str,
    root: Path = STACKS,
    update: tuple[str, ...] = (),
    update_all: bool = False,
    mirrors: Mapping[str, str] | None = None,
    keys: Path | None = None,
) -> tuple[Lock | None, Lock, dict[str, list[str]]]:
    """Old lock (None when there is none), new lock, and who wants what; writes nothing.

    ``update`` names distributions, debs and images that may move though the old lock has them;
    ``mirrors`` and ``keys`` are a site's, for debs. Who wants what is empty when no wheel
    changed. Raises :class:`StackError`.
    """
    pins = stack_pins(name, root)
    old = _old_lock(name, root)
    _check_update(name, pins, old, update)
    dists = [n for n in update if old and canonicalize_name(n) in old.dists]
    moves = [part for n in dists for part in ("--upgrade-package", n)]
    options = DebOptions((*update, *([debs.ALL] if update_all else [])), mirrors or {}, keys)
    with tempfile.TemporaryDirectory(prefix="rackpin-lock-") as temp:
        run = Resolver(pins, old, Path(temp), root, options)
        wheels = {python: run.wheels(python, moves, not update_all) for python in pins.pythons}
        try:
            packages = {os.key: packages_of(pins, os) for os in pins.os}
        except StackError as error:
            raise StackError(f"stacks/{name}/pins.yaml: {error}") from None
        before: dict[str, Any] = {"sources": {}, "images": {}}
        if old:
            before = {"sources": old.sources, "images": old.images}
        new = Lock(
            stack=name,
            pins_sha256=pins.sha256,
            os=pins.os,
            arch=pins.arch,
            python=pins.python,
            engine=pins.engine,
            engine_env=dict(sorted(pins.engine_env.items())),
            host=host_of(pins),
            debs={key: sorted(names) for key, names in sorted(pins.debs.items())},
            packages=packages,
            debs_closure={key: run.debs(key, wanted) for key, wanted in packages.items()},
            sources={
                key: resolve_source(key, pin, before["sources"].get(key))
                for key, pin in sorted(source_pins(pins).items())
            },
            images={
                key: resolve_image(pin, before["images"].get(key), update_all or key in update)
                for key, pin in sorted(pins.images.items())
            },
            models=read_models(pins, root),
            wheels=wheels.pop(pins.python),
            other_wheels=wheels,
            uv=run.tool(),
        )
        changed = old is None or (old.env_digest, old.pythons) != (new.env_digest, new.pythons)
        return old, new, run.why(new) if changed and old else {}
