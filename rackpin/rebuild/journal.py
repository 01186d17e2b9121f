"""What one rebuild did, line by line on disk, so that the next call knows where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rackpin.fleet import jsonlines
from rackpin.fleet.jsonlines import Line
from rackpin.fleet.state import now

START, END = "start", "end"
BEGUN, DONE, FAILED, SKIPPED, UNDONE = "begun", "done", "failed", "skipped", "undone"
WORDS = {BEGUN: "begun, never ended", FAILED: "failed", UNDONE: "has to be done again"}


class Journal:
    """``nodes/NAME.rebuild.jsonl``. Each line is on disk before the next thing happens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = jsonlines.read(path, "line of a rebuild", ("step", "outcome"))

    def write(self, step: str, outcome: str, why: str = "", **data: Any) -> None:
        line = {"at": now(), "step": step, "outcome": outcome, **({"why": why} if why else {})}
        line |= data
        jsonlines.append(self.path, line)
        self.lines.append(line)

    @property
    def open(self) -> list[Line]:
        """The lines of a rebuild that did not come to its end; empty when there is none."""
        ends = [number for number, line in enumerate(self.lines) if line["step"] == END]
        return self.lines[ends[-1] + 1 :] if ends else list(self.lines)

    def latest(self, step: str) -> Line | None:
        return next((line for line in reversed(self.open) if line["step"] == step), None)

    def has(self, step: str) -> bool:
        """This step of the open rebuild is over and needn't be done again."""
        line = self.latest(step)
        return line is not None and line["outcome"] in (DONE, SKIPPED)

    def stopped(self) -> str:
        """Where the open rebuild stopped, in a sentence; "" when there is none."""
        lines = self.open
        if not lines:
            return ""
        last = next((line for line in reversed(lines) if line["outcome"] != UNDONE), lines[-1])
        how = WORDS.get(last["outcome"], "the last thing done")
        why = f": {last['why']}" if last.get("why") else ""
        return (
            f"began {lines[0]['at'][:16]}, stopped {last['at'][:16]} at {last['step']} ({how}{why})"
        )
