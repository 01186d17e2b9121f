"""The result of an audit as a versioned document, and its exit code."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rackpin.audit.node.main import EXITS
from rackpin.audit.node.sheet import SCHEMA_VERSION

State = Literal["same", "drift", "could_not_look"]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Drift(Model):
    """One difference. ``kind`` is AREA.WHAT, a key of ``KINDS`` in rackpin.audit.node.sheet."""

    kind: str
    subject: str
    expected: str
    found: str
    remedy: str


class Unseen(Model):
    """Something that could not be looked at, and why."""

    area: str
    why: str


class Same(Model):
    area: str
    subject: str
    found: str


class Target(Model):
    """One node or image. ``counts`` has all differences by kind; ``drift`` at most 40 of a kind."""

    name: str
    state: State
    seconds: float = 0.0  # on the node
    counts: dict[str, int] = Field(default_factory=dict)
    drift: list[Drift] = Field(default_factory=list)
    unseen: list[Unseen] = Field(default_factory=list)
    same: list[Same] = Field(default_factory=list)  # only with --all
    proves: list[str] = Field(default_factory=list)


class Document(Model):
    """What ``--json`` prints. ``lock`` is the lock's digest."""

    schema_version: int = SCHEMA_VERSION
    started: str  # ISO 8601, UTC
    fleet: str = ""
    stack: str
    lock: str
    deep: bool
    outcome: State
    exit_code: int
    targets: list[Target]


def unreachable(name: str, why: str) -> Target:
    """A target of which nothing is known."""
    return Target(name=name, state="could_not_look", unseen=[Unseen(area="reach", why=why)])


def document(
    targets: list[Target], *, stack: str, lock: str, deep: bool, fleet: str = ""
) -> Document:
    """All targets with the outcome: what could not be seen weighs more than drift.

    A list of differences that may not be all of them must not look like one that is.
    """
    states = {target.state for target in targets}
    outcome: State = "same"
    if "could_not_look" in states:
        outcome = "could_not_look"
    elif "drift" in states:
        outcome = "drift"
    return Document(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        fleet=fleet,
        stack=stack,
        lock=lock,
        deep=deep,
        outcome=outcome,
        exit_code=EXITS[outcome],
        targets=targets,
    )


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the document as it is printed."""
    made = Document.model_json_schema(mode="serialization")
    made["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
