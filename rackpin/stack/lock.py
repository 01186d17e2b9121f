"""What the resolver made of the pins: ``stacks/NAME/lock/``, read whole and never half.

``lock.json`` lists every wheel with version, file name, sha256, size and URL;
``python-X.Y-ARCH.txt`` says the same as pip and uv read it. Same inputs, same bytes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from packaging.utils import canonicalize_name
from pydantic import Field, ValidationError

from rackpin.stack.pins import EnginePin, Model, OsPin, Pins, StackError, explain, load_pins

LOCK_DIR = "lock"
LOCK_FILE = "lock.json"
STACKS = Path(__file__).resolve().parents[2] / "stacks"


class Wheel(Model):
    """One wheel, exactly. ``url`` is null when no public place has it."""

    name: str
    version: str
    filename: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(gt=0)  # bytes
    url: str | None = None
    builder: str | None = None  # for a local wheel: the script that writes it


class Lock(Model):
    """Everything a node gets of this stack. Frozen; identified by :attr:`digest`."""

    schema_version: Literal[1] = 1
    stack: str
    pins_sha256: str
    os: list[OsPin]
    arch: Literal["x86_64"]
    python: str
    engine: EnginePin
    debs: dict[str, list[str]]  # names by OS key; versions follow with the deb resolver
    wheels: list[Wheel]  # sorted by name
    uv: Wheel  # the installer, not part of the environment

    @cached_property
    def digest(self) -> str:
        """sha256 over the canonical JSON of the whole lock (64 hex)."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def short(self) -> str:
        """The first 12 hex digits of the digest, for names of directories."""
        return self.digest[:12]

    @property
    def env_name(self) -> str:
        """``cpu-lab-0123456789ab``: the environment's directory on a node."""
        return f"{self.stack}-{self.short}"

    @cached_property
    def dists(self) -> dict[str, str]:
        """Version by normalised distribution name, of what the environment must hold."""
        return {wheel.name: wheel.version for wheel in self.wheels}

    @property
    def files(self) -> list[Wheel]:
        """All that a wheelhouse must have for this lock."""
        return [*self.wheels, self.uv]

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


@dataclass(frozen=True)
class Stack:
    """Pins and the lock that fits them."""

    pins: Pins
    lock: Lock


def render_json(lock: Lock) -> str:
    """The text of ``lock.json``: keys in the model's order, one line a value, for review."""
    return json.dumps(lock.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"


def render_requirements(lock: Lock) -> str:
    """The requirements file: one exact version and one hash for each wheel, sorted by name."""
    head = f"# rackpin owns this file: made from stacks/{lock.stack}/pins.yaml by rackpin lock\n"
    return head + "".join(f"{w.name}=={w.version} --hash=sha256:{w.sha256}\n" for w in lock.wheels)


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


def read_lock(name: str, root: Path = STACKS) -> Lock:
    """``lock.json`` of a stack by itself, without asking whether it fits the pins."""
    file = root / name / LOCK_DIR / LOCK_FILE
    remedy = f"Run: rackpin lock {name}"
    try:
        return Lock.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StackError(f"{file}: missing; the stack has pins but no lock. {remedy}") from None
    except ValidationError as error:
        raise StackError(explain(error, file, remedy)) from None
    except UnicodeDecodeError as error:
        raise StackError(f"{file}: not UTF-8 ({error}). {remedy}") from None


def load_stack(name: str, root: Path = STACKS) -> Stack:
    """Pins and lock of a stack, proved to belong together.

    ``root`` is the directory that holds the stacks. Raises :class:`StackError` for an unknown
    stack, wrong pins, a missing or stale lock, and a requirements file that differs from it.
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
    file = directory / lock.requirements_name
    if not file.is_file():
        raise StackError(f"{file}: missing beside lock.json; {remedy}")
    if file.read_text(encoding="utf-8") != render_requirements(lock):
        raise StackError(f"{file}: differs from lock.json; it is generated, so {remedy}")
    return Stack(pins, lock)


def write_lock(lock: Lock, root: Path = STACKS) -> Path:
    """Write both files of the lock; returns its directory. Other files there stay."""
    directory = root / lock.stack / LOCK_DIR
    directory.mkdir(parents=True, exist_ok=True)
    # lock.json last: until then the old one is found not to match its requirements.
    texts = {lock.requirements_name: render_requirements(lock), LOCK_FILE: render_json(lock)}
    for name, text in texts.items():
        part = directory / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(directory / name)
    return directory


def diff(old: Lock | None, new: Lock) -> list[str]:
    """What changed between two locks, one line a distribution: ``name old → new``."""
    before = {w.name: w for w in old.files} if old else {}
    after = {w.name: w for w in new.files}
    lines = []
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        if was and now and was.version == now.version:
            if was.sha256 != now.sha256:
                lines.append(f"{name} {now.version}: {was.filename} → {now.filename} (other hash)")
        else:
            lines.append(f"{name} {was.version if was else '–'} → {now.version if now else '–'}")
    return lines
