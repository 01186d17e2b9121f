"""Where a fleet's rolls are kept: ``rolls/ID/plan.json`` and ``events.jsonl`` in its state.

:class:`Store` is all that the rest needs, so that the files could lie elsewhere.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout
from pydantic import ValidationError

from rackpin.fleet import jsonlines
from rackpin.fleet.jsonlines import Line
from rackpin.fleet.state import FleetStateError, now, write_json
from rackpin.roll.model import Plan, Progress, UnitState

END = "end"
HOLD_S = 2  # whoever only asks whether there is a writer has it for a moment
STATES: dict[str, UnitState] = {"begun": "begun", "done": "done", "failed": "failed"}


class Held(FleetStateError):
    """Another run writes this fleet's roll."""


class Store(Protocol):
    """The run state of one fleet: one open roll, one writer."""

    def hold(self) -> Any:
        """A context in which this process is the only writer. Raises :class:`Held`."""

    def open_roll(self) -> Roll | None: ...

    def last(self) -> Roll | None: ...

    def begin(self, plan: Plan) -> Roll: ...

    def ask(self, what: str) -> None:
        """Leave word for the writer: pause or abort."""

    def asked(self, take: bool = False) -> str: ...

    def writer(self) -> str:
        """Who writes now, where and since when; "" when nobody does."""


class Roll:
    """One roll: its plan and everything that happened, in order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = directory / "plan.json"
        try:
            self.plan = Plan.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, ValidationError) as error:
            why = str(error).splitlines()[0]
            raise FleetStateError(f"{path}: can't be read ({why}); mend it, or move its "
                                  "directory away") from error  # fmt: skip
        self.events = jsonlines.read(self.path, "event of a roll", ("at", "event"))

    @property
    def path(self) -> Path:
        return self.directory / "events.jsonl"

    @property
    def owner(self) -> str:
        """As which it drains engines."""
        return f"roll {self.plan.roll}"

    def note(self, event: str, **data: Any) -> None:
        """On disk before anything else happens."""
        line: Line = {"at": now(), "event": event}
        line |= {key: value for key, value in data.items() if value not in ("", None)}
        jsonlines.append(self.path, line)
        self.events.append(line)

    @property
    def ended(self) -> str:
        """How it ended for good; "" while it is open."""
        last = next((e for e in reversed(self.events) if e["event"] == END), None)
        return str(last.get("how", "")) if last else ""

    def progress(self) -> dict[str, Progress]:
        """By unit, as the events say."""
        found = {unit.name: Progress() for unit in self.plan.units}
        for event in self.events:
            for name in event.get("units", ()):
                if name not in found:
                    continue
                one = found[name]
                one.since = event["at"]
                if event["event"] in STATES:
                    one.state, one.why = STATES[event["event"]], event.get("why", "")
                    one.report = event.get("report", one.report)
                elif event["event"] == "step":
                    one.step = event["step"]
                    one.touched = one.touched or event["step"] in ("stop", "apply")
        return found

    def waiting(self) -> list[str]:
        """Units whose turn did not come yet."""
        return [name for name, one in self.progress().items() if one.state == "waiting"]

    def behind(self) -> list[str]:
        """Nodes that nothing was done to: they have what they had before."""
        found = self.progress()
        return [
            node
            for unit in self.plan.units
            if found[unit.name].state != "done" and not found[unit.name].touched
            for node in unit.nodes
        ]


class FileStore:
    """Plain files below ``directory``, which a person can read."""

    OWN = "RACKPIN_ROLL"  # the environment variable that names the roll a run is part of

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _rolls(self) -> list[Path]:
        return sorted(path.parent for path in self.directory.glob("*/plan.json"))

    def last(self) -> Roll | None:
        found = self._rolls()
        return Roll(found[-1]) if found else None

    def open_roll(self) -> Roll | None:
        roll = self.last()
        return roll if roll and not roll.ended else None

    def begin(self, plan: Plan) -> Roll:
        directory = self.directory / plan.roll
        try:
            write_json(directory / "plan.json", plan.model_dump())
        except OSError as error:
            text = f"{directory}: can't be written: {error.strerror}; see its owner and space"
            raise FleetStateError(text) from error
        return Roll(directory)

    @property
    def _holder(self) -> Path:
        return self.directory / "writer.json"

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.directory / ".writer", timeout=HOLD_S)
        try:
            lock.acquire()
        except Timeout as error:
            raise Held(f"a roll of this fleet is run by {self._who()}; --pause or --abort asks it "
                       "to stop, --status shows it") from error  # fmt: skip
        try:
            write_json(self._holder, {"who": getpass.getuser(), "host": socket.gethostname(),
                                      "pid": os.getpid(), "since": now()})  # fmt: skip
            yield
        finally:
            self._holder.unlink(missing_ok=True)
            lock.release()

    def writer(self) -> str:
        if not self.directory.is_dir():
            return ""
        try:
            with FileLock(self.directory / ".writer", timeout=0):
                return ""
        except Timeout:
            return self._who()

    def _who(self) -> str:
        try:
            data = json.loads(self._holder.read_text(encoding="utf-8"))
            age = datetime.now(UTC) - datetime.fromisoformat(data["since"])
            minutes = int(age.total_seconds() // 60)
            return f"{data['who']} on {data['host']} (pid {data['pid']}) for {minutes} min"
        except (OSError, ValueError, KeyError, TypeError):
            return f"somebody (who is not told in {self._holder})"

    @property
    def _request(self) -> Path:
        return self.directory / "request.json"

    def ask(self, what: str) -> None:
        write_json(self._request, {"what": what, "who": getpass.getuser(), "at": now()})

    def asked(self, take: bool = False) -> str:
        """``pause`` or ``abort``, "" when nobody asked; ``take``: it is answered now."""
        try:
            data = json.loads(self._request.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ""
        except (OSError, ValueError):
            data = {}
        if take:
            self._request.unlink(missing_ok=True)
        # a request that can't be read is one to stop
        return "abort" if isinstance(data, dict) and data.get("what") == "abort" else "pause"


def keep_lock(directory: Path, stack: Path, digest: str) -> Path:
    """A copy of a stack's pins and lock, so that a fleet can go back to it. Whole or not at all.

    ``stack`` is its directory; the copy is ``DIRECTORY/DIGEST/NAME``. Raises FleetStateError.
    """
    target = directory / digest
    if target.is_dir():
        return target
    draft = directory / f".{digest}.{os.getpid()}.draft"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(stack, draft / stack.name)
        draft.replace(target)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        if target.is_dir():
            return target  # another run was first
        text = f"{target}: can't be written: {error}; see its owner and space"
        raise FleetStateError(text) from error
    return target
