"""What a first run would do to a host, as a versioned document, and its exit code."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1
Outcome = Literal["nothing", "interrupts", "could_not_look"]
EXITS: dict[Outcome, int] = {"nothing": 0, "interrupts": 1, "could_not_look": 3}


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class File(Model):
    path: str
    what: str  # new, replaced, ours (other content), mode, in the way
    backup: str = ""  # where the file as it was is kept


class Package(Model):
    name: str
    what: str  # install, change, hold
    was: str = ""
    now: str = ""  # "" where any version will do


class Stage(Model):
    """What one stage would change."""

    name: str
    files: list[File] = Field(default_factory=list)
    packages: list[Package] = Field(default_factory=list)
    units: list[str] = Field(default_factory=list)  # that would be enabled or started
    other: list[str] = Field(default_factory=list)

    @property
    def changes(self) -> int:
        return len(self.files) + len(self.packages) + len(self.units) + len(self.other)


class Interruption(Model):
    """Something that runs there and would not go on as it is."""

    what: str
    interrupts: Literal["service", "reboot", "refused"]  # refused: the run would not even begin
    why: str
    remedy: str


class Unseen(Model):
    area: str
    why: str


class Document(Model):
    """What ``--json`` prints. ``lock`` is the lock's digest."""

    schema_version: int = SCHEMA_VERSION
    node: str
    at: str  # ISO 8601, UTC
    fleet: str
    stack: str
    lock: str
    outcome: Outcome
    exit_code: int
    known: bool  # rackpin was there before
    stages: list[Stage] = Field(default_factory=list)
    interruptions: list[Interruption] = Field(default_factory=list)
    foreign: list[str] = Field(
        default_factory=list
    )  # others' repositories and pins, and their fate
    unseen: list[Unseen] = Field(default_factory=list)
