"""A Docker image against the lock: the node's own program, run in a container without a network."""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import dataclass

from rackpin.audit import script
from rackpin.audit.document import Drift, Target, unreachable
from rackpin.audit.expectation import Expectation
from rackpin.audit.fleet import answer
from rackpin.audit.node.sheet import KINDS
from rackpin.checks.base import one_line

LABEL = "rackpin.lock"  # the lock's digest
ENGINE = "docker"
REMEDY = KINDS["image.label"][1]
ASK_S = 20.0
RUN_S = 900.0  # reads every file of the environment


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class EngineError(Exception):
    """The engine, or the image, can't be asked; the text says what to do."""


def engine(*argv: str, deadline_s: float = ASK_S, stdin: str = "") -> Ran:
    try:
        done = subprocess.run(
            [ENGINE, *argv],
            input=stdin.encode(),
            capture_output=True,
            timeout=deadline_s,
            check=False,
        )
    except FileNotFoundError:
        raise EngineError(f"{ENGINE} isn't installed here; audit the image where it is") from None
    except subprocess.TimeoutExpired:
        raise EngineError(f"{ENGINE} {argv[0]}: no answer within {deadline_s:g} s") from None
    return Ran(
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )


def audit_image(reference: str, wish: Expectation) -> Target:
    """The image as it is here; nothing is pulled. Never raises for what it finds."""
    try:
        labels = labels_of(reference)
        target = run_in(reference, wish)
    except EngineError as error:
        return unreachable(reference, str(error))
    # What mends a node doesn't mend an image.
    drift = [item.model_copy(update={"remedy": REMEDY}) for item in target.drift]
    return with_label(target.model_copy(update={"drift": drift}), labels.get(LABEL), wish.lock)


def labels_of(reference: str) -> dict[str, str]:
    """The labels of a local image."""
    asked = engine("image", "inspect", "--format", "{{json .Config.Labels}}", reference)
    if asked.code != 0:
        said = one_line(asked.err)
        if "No such image" in said:
            raise EngineError(f"no image {reference} here; pull or build it, or correct the name")
        raise EngineError(f"{ENGINE} can't be asked: {said}; start it, or audit elsewhere")
    labels = json.loads(asked.out or "null")
    return {str(key): str(value) for key, value in (labels or {}).items()}


def run_in(reference: str, wish: Expectation) -> Target:
    """Run the program with the image's own system Python, as root, changing nothing that stays."""
    name = f"rackpin-audit-{uuid.uuid4().hex[:12]}"
    options = ["--rm", "-i", "--name", name, "--pull", "never", "--network", "none"]
    options += ["--read-only", "--user", "0:0", "--cap-drop", "ALL", "--cap-add", "DAC_OVERRIDE"]
    options += ["--security-opt", "no-new-privileges", "--entrypoint", script.PYTHON]
    text = script.carried(wish, deep=True)
    try:
        ran = engine("run", *options, reference, "-I", "-", deadline_s=RUN_S, stdin=text)
    except EngineError:
        engine("rm", "--force", name)  # the client is gone, the container may not be
        raise
    if ran.code in (125, 126, 127):  # the engine's own words for "could not be started"
        said = one_line(ran.err)
        raise EngineError(f"{script.PYTHON} can't be run in {reference}: {said}")
    return answer(wish.name, ran.out, ran.err)


def with_label(target: Target, label: str | None, lock: str) -> Target:
    """The target with one more question: does the image say that it carries this lock?"""
    if label == lock:
        return target
    kind = "image.label"
    found = label or "no such label"
    drift = Drift(kind=kind, subject=LABEL, expected=lock, found=found, remedy=REMEDY)
    return target.model_copy(
        update={
            "drift": [*target.drift, drift],
            "counts": {**target.counts, kind: 1},
            "state": "drift" if target.state == "same" else target.state,
        }
    )
