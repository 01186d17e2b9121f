"""What the controller keeps of a fleet, in plain files: who is kept out, and each node's identity.

``DIRECTORY/quarantine.json``, ``drained.json`` and ``nodes/NAME.json``. Each file is written whole
or not at all; one writer at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rackpin.fleet.differences import Difference, differences
from rackpin.fleet.identity import Identity

LOCK_S = 10  # another rackpin writes a few kilobytes in this time
KEPT = 20  # identities of one node that are remembered


class FleetStateError(Exception):
    """A file of the fleet's state can't be read or written; the text says which and what to do."""


class Quarantine(BaseModel):
    """Why a node is kept out, and by whom."""

    model_config = ConfigDict(extra="forbid")

    owner: str
    reason: str
    since: str  # ISO 8601, UTC
    evidence: str = ""  # a report, a ticket
    serials: list[str] = Field(default_factory=list)  # of the cards that were in it

    def __str__(self) -> str:
        return f"{self.owner} since {self.since[:16]}: {self.reason}"


class Drain(BaseModel):
    """Why an engine gets no new requests, and who wants it so."""

    model_config = ConfigDict(extra="forbid")

    owner: str
    reason: str
    since: str  # ISO 8601, UTC

    def __str__(self) -> str:
        return f"{self.owner} since {self.since[:16]}: {self.reason}"


class Record(BaseModel):
    """One node: its identity when it was last found ready, and those it had before."""

    model_config = ConfigDict(extra="forbid")

    name: str
    identity: Identity
    since: str  # when it was first seen with this identity
    ready_at: str = ""
    lock: str = ""
    run: str = ""
    earlier: list[Identity] = Field(default_factory=list)  # the newest last


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class FleetState:
    """The files of one fleet below ``directory``, which is made at the first write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    # -- quarantine ---------------------------------------------------------------
    @property
    def _quarantine(self) -> Path:
        return self.directory / "quarantine.json"

    def quarantined(self) -> dict[str, Quarantine]:
        """By node. Raises :class:`FleetStateError`: an unreadable list is not an empty one."""
        try:
            data = json.loads(self._quarantine.read_text(encoding="utf-8"))
            return {name: Quarantine.model_validate(one) for name, one in data.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, ValidationError) as error:
            raise FleetStateError(_unreadable(self._quarantine, error)) from error

    @property
    def _past(self) -> Path:
        return self.directory / "quarantine-past.jsonl"

    def past(self) -> list[tuple[str, str, list[str]]]:
        """Earlier quarantines: node, since when, serial numbers. A torn last line is left out."""
        if not self._past.is_file():
            return []
        found = []
        for line in self._past.read_text(encoding="utf-8").splitlines():
            try:
                data = json.loads(line)
                found.append((data["node"], data["since"], list(data["serials"])))
            except (ValueError, KeyError, TypeError):
                continue  # only a kill in the middle of a write leaves such a line
        return found

    def keep_out(self, name: str, entry: Quarantine) -> None:
        with self.writing():
            before = self.quarantined().get(name)
            if before is not None:
                self._remember(name, before)
            write_json(self._quarantine, {**self._dumped(), name: entry.model_dump()})

    def _remember(self, name: str, entry: Quarantine) -> None:
        """What was, stays known: the same cards may come back."""
        line = json.dumps({"node": name, "until": now(), **entry.model_dump()})
        with self._past.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def let_in(self, name: str) -> None:
        with self.writing():
            entry = self.quarantined().get(name)
            if entry is not None:
                self._remember(name, entry)
            write_json(self._quarantine, {k: v for k, v in self._dumped().items() if k != name})

    def _dumped(self) -> dict[str, object]:
        return {name: one.model_dump() for name, one in self.quarantined().items()}

    # -- drained engines ----------------------------------------------------------------
    @property
    def _drained(self) -> Path:
        return self.directory / "drained.json"

    def drained(self) -> dict[str, Drain]:
        """By engine. Raises :class:`FleetStateError`: an unreadable list is not an empty one."""
        try:
            data = json.loads(self._drained.read_text(encoding="utf-8"))
            return {name: Drain.model_validate(one) for name, one in data.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, ValidationError) as error:
            raise FleetStateError(_unreadable(self._drained, error)) from error

    def drain(self, name: str, entry: Drain | None) -> None:
        """Keep an engine from new requests; None: let it have them again."""
        with self.writing():
            rest = {k: v.model_dump() for k, v in self.drained().items() if k != name}
            write_json(self._drained, {**rest, **({name: entry.model_dump()} if entry else {})})

    @property
    def turn(self) -> Path:
        """The lock of whoever tells the gateways."""
        return self.directory / ".gateways"

    # -- nodes -----------------------------------------------------------------------
    def _path(self, name: str) -> Path:
        return self.directory / "nodes" / f"{name}.json"

    def record(self, name: str) -> Record | None:
        path = self._path(name)
        try:
            return Record.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise FleetStateError(_unreadable(path, error)) from error

    def was_ready(self, name: str, identity: Identity, lock: str, run: str) -> list[Difference]:
        """Keep what a ready node is; returns what differs from the record before."""
        with self.writing():
            before = self.record(name)
            found = differences(before.identity, identity) if before else []
            same = before is not None and not found
            record = Record(
                name=name,
                identity=identity,
                since=before.since if before and same else now(),
                ready_at=now(),
                lock=lock,
                run=run,
                earlier=before.earlier if before else [],
            )
            if before and found:
                record.earlier = [*record.earlier, before.identity][-KEPT:]
            write_json(self._path(name), record.model_dump())
        return found

    def keep_proof(self, name: str, data: Mapping[str, object]) -> Path:
        """What a node was and is after a rebuild, with what proved it, for its vendor."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = self.directory / "nodes" / f"{name}.swap-{stamp}.json"
        with self.writing():
            write_json(path, data)
        return path

    # -- files -----------------------------------------------------------------------
    @contextmanager
    def writing(self) -> Iterator[None]:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with FileLock(self.directory / ".lock", timeout=LOCK_S):
                yield
        except Timeout as error:
            text = f"{self.directory}: another rackpin has been writing for {LOCK_S} s; try again"
            raise FleetStateError(text) from error
        except OSError as error:
            text = f"{self.directory}: can't be written: {error.strerror}; see its owner and space"
            raise FleetStateError(text) from error


def write_json(path: Path, data: object) -> None:
    """A file whole or not at all, and on disk when this returns. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unreadable(path: Path, error: Exception) -> str:
    what = str(error).splitlines()[0]
    return f"{path}: can't be read ({what}); mend it, or move it away to begin anew"
