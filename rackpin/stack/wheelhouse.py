"""The wheelhouse: one flat directory with every wheel of the locks, each proved by its sha256.

All stacks share it, so one file name may stand for one content only. A stamp (size, mtime,
sha256) is kept for each proved file, so that proving an unchanged wheelhouse again costs
milliseconds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from rackpin.stack.lock import STACKS, Lock, Stack, Wheel, read_lock, stack_names
from rackpin.stack.pins import StackError
from rackpin.stack.wheelfile import build_local, sha256_of

STAMPS = ".stamps.json"
LOCK_WAIT_S = 1800  # another build may be fetching gigabytes
Say = Callable[[str], None]


@dataclass(frozen=True)
class Problem:
    """A file of the lock that the wheelhouse doesn't have as locked."""

    filename: str
    kind: Literal["missing", "mismatch"]
    expected: str  # sha256
    found: str = ""  # sha256, empty when missing

    def __str__(self) -> str:
        if self.kind == "missing":
            return f"{self.filename}: missing (expected sha256 {self.expected})"
        return f"{self.filename}: expected sha256 {self.expected}, found {self.found}"


def default_dir() -> Path:
    """``$RACKPIN_CACHE/wheelhouse``, or ``/var/cache/rackpin/wheelhouse``."""
    return Path(os.environ.get("RACKPIN_CACHE") or "/var/cache/rackpin") / "wheelhouse"


def _read_stamps(directory: Path) -> dict[str, list[int | str]]:
    try:
        stamps = json.loads((directory / STAMPS).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}  # costs reading the files again, nothing else
    return stamps if isinstance(stamps, dict) else {}


def verify(lock: Lock, directory: Path | None = None) -> list[Problem]:
    """What the wheelhouse lacks for this lock; an empty list means that it is complete."""
    directory = directory or default_dir()
    stamps = _read_stamps(directory)
    problems = []
    changed = False
    for wheel in lock.files:
        try:
            stat = (directory / wheel.filename).stat()
        except FileNotFoundError:
            problems.append(Problem(wheel.filename, "missing", wheel.sha256))
            continue
        stamp = stamps.get(wheel.filename, [])
        if stamp[:2] == [stat.st_size, stat.st_mtime_ns]:
            found = str(stamp[2])
        else:
            found = sha256_of(directory / wheel.filename)
            stamps[wheel.filename] = [stat.st_size, stat.st_mtime_ns, found]
            changed = True
        if found != wheel.sha256:
            problems.append(Problem(wheel.filename, "mismatch", wheel.sha256, found))
    if changed and os.access(directory, os.W_OK):
        _replace_text(directory / STAMPS, json.dumps(stamps, indent=0, sort_keys=True))
    return problems


def _replace_text(file: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".part-", delete=False) as part:
        part.write(text)
    Path(part.name).chmod(0o644)
    Path(part.name).replace(file)


def name_clashes(lock: Lock, root: Path = STACKS) -> list[str]:
    """File names that another stack's lock gives to other content, one line each."""
    ours = {wheel.filename: wheel.sha256 for wheel in lock.files}
    lines = []
    for name in stack_names(root):
        if name == lock.stack or not (root / name / "lock" / "lock.json").is_file():
            continue
        for wheel in read_lock(name, root).files:
            if ours.get(wheel.filename, wheel.sha256) != wheel.sha256:
                lines.append(
                    f"{wheel.filename}: {lock.stack} locks sha256 {ours[wheel.filename]}, "
                    f"{name} locks {wheel.sha256}"
                )
    return lines


def _adopt(found: Path, wheel: Wheel, directory: Path, source: str) -> str:
    """Move a fetched file to its final name if its hash is right; returns "" or the error."""
    digest = sha256_of(found)
    if digest != wheel.sha256:
        found.unlink()
        return f"{wheel.filename}: expected sha256 {wheel.sha256}, found {digest} from {source}"
    found.chmod(0o644)
    with found.open("rb") as stream:
        os.fsync(stream.fileno())
    found.replace(directory / wheel.filename)
    return ""


def build(
    stack: Stack,
    directory: Path | None = None,
    root: Path = STACKS,
    say: Say = lambda _: None,
) -> Path:
    """Make the wheelhouse complete for a stack; returns its directory.

    Only what is missing or damaged is fetched. Raises :class:`StackError` that lists every file
    that could not be had; nothing wrong ever lies under its final name because of us.
    """
    directory = directory or default_dir()
    lock = stack.lock
    if clashes := name_clashes(lock, root):
        raise StackError(
            "one wheelhouse can't hold two contents under one name:\n  "
            + "\n  ".join(clashes)
            + "\nlock both stacks again, or give one of them another --dir"
        )
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    try:
        with FileLock(directory / ".lock", timeout=LOCK_WAIT_S):
            return _build(stack, directory, root, say)
    except Timeout:
        raise StackError(
            f"{directory}: another build holds it for over {LOCK_WAIT_S} s; end that one first"
        ) from None


def _build(stack: Stack, directory: Path, root: Path, say: Say) -> Path:
    lock, start = stack.lock, time.monotonic()
    problems = {problem.filename: problem for problem in verify(lock, directory)}
    wanted = [wheel for wheel in lock.files if wheel.filename in problems]
    if not wanted:
        say(f"{directory}: complete for {lock.env_name}, {len(lock.files)} files")
        return directory
    for problem in problems.values():
        if problem.kind == "mismatch":
            say(f"replacing a damaged file: {problem}")
    from rackpin.stack import download  # late: a run over a fleet only reads what is there

    say(f"fetching {len(wanted)} of {len(lock.files)} files, {megabytes(wanted)} MB")
    for stale in directory.glob(".work-*"):  # from a build that was killed; we hold the lock
        shutil.rmtree(stale)
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix=".work-", dir=directory) as temp:
        work = Path(temp)

        def take(found: Path, wheel: Wheel, source: str) -> None:
            errors[wheel.filename] = _adopt(found, wheel, directory, source)

        for wheel in [w for w in wanted if w.builder]:
            local = next(w for w in stack.pins.local_wheels if w.name == wheel.name)
            file = build_local(local, root.parent, work, sys.executable)
            take(file, wheel, f"{wheel.builder} (has it changed? rackpin lock {lock.stack})")
        remote = [w for w in wanted if not w.builder]
        pip_says = ""
        for python in lock.pythons:  # pip downloads for one Python at a time
            view = lock.for_python(python)
            part = [w for w in remote if w in view.files and errors.get(w.filename, "absent")]
            if part:
                pip_says = download.by_pip(part, view, work / python, take, say) or pip_says
        left = [w for w in remote if errors.get(w.filename, "absent")]
        for wheel in left:
            errors.setdefault(wheel.filename, f"{wheel.filename}: pip did not bring it: {pip_says}")
        download.by_url([w for w in left if w.url], work, take, errors, say)
    wrong = [text for text in errors.values() if text]
    if wrong:
        raise StackError(
            f"{directory}: {len(wrong)} file(s) could not be had as locked:\n  "
            + "\n  ".join(wrong)
            + "\nsee whether the index or mirror is reachable and unchanged, then run again"
        )
    if still := verify(lock, directory):
        raise StackError(f"{directory}: still wrong after the build: {still[0]}")
    say(f"{directory}: complete for {lock.env_name} after {time.monotonic() - start:.0f} s")
    return directory


def megabytes(wheels: list[Wheel]) -> int:
    return round(sum(wheel.size for wheel in wheels) / 1e6)
