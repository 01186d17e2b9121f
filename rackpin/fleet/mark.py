"""What a node itself keeps of its last verification: for which lock, for which hardware.

A mark of another lock or of other hardware says nothing: the node is not ready.
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rackpin import layout
from rackpin.checks.base import Command
from rackpin.findings import Level
from rackpin.fleet import identity
from rackpin.fleet.differences import differences
from rackpin.fleet.identity import Identity

SCHEMA = 1
PATH = f"{layout.STATE}/ready.json"
# admitted: the node itself was found good, before anything served there
State = Literal["admitted", "ready", "not_ready"]
WRITE_S = 20.0

READ = Command("mark", f"[ ! -e {PATH} ] || cat {PATH}", deadline_s=10)
IDENTITY = Command("identity", "exec sh -s", deadline_s=15, stdin=identity.script())


class Mark(BaseModel):
    """``ready.json`` of a node."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA
    node: str
    lock: str  # digest
    state: State
    level: Level  # the highest that was asked since lock and hardware are these
    at: str  # ISO 8601, UTC
    run: str
    why: list[str] = Field(default_factory=list)  # checks that keep it out
    measured: dict[str, float] = Field(default_factory=dict)  # "CHECK METRIC" of an idle node
    identity: Identity = Identity()

    def same_as(self, other: Mark) -> bool:
        """Nothing that anybody would act on differs; when and by which run doesn't matter."""
        times = {"at": "", "run": ""}
        return self.model_copy(update=times) == other.model_copy(update=times)


def read(text: str) -> Mark | None:
    """The mark of a node; None when there is none, or none that this rackpin can read."""
    try:
        found = json.loads(text)
        return Mark.model_validate(found) if found.get("schema_version") == SCHEMA else None
    except (ValueError, AttributeError, ValidationError):
        return None


def stale(mark: Mark | None, lock: str, now: Identity | None) -> list[str]:
    """Why this mark says nothing of the node as it is; empty when it counts."""
    if mark is None:
        return ["it was not verified yet"]
    if mark.lock != lock:
        return [f"it was verified with lock {mark.lock[:12]}, not {lock[:12]}"]
    if now is None:
        return ["its hardware could not be looked at"]
    return [str(one) for one in differences(mark.identity, now) if one.binding]


def write(mark: Mark) -> Command:
    """The command that keeps a mark on its node, whole or not at all."""
    draft = f"{PATH}.new"
    shell = f"set -e; mkdir -p {layout.STATE}; cat >{draft}; sync {draft}; mv -f {draft} {PATH}"
    return Command("mark.write", shell, WRITE_S, stdin=mark.model_dump_json(indent=1) + "\n")
