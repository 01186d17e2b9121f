"""What one rebuild did, line by line on disk, so that the next call knows where it stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rackpin.fleet.state import FleetStateError, now

START, END = "start", "end"
BEGUN, DONE, FAILED, SKIPPED, UNDONE = "begun", "done", "failed", "skipped", "undone"
WORDS = {BEGUN: "begun, never ended", FAILED: "failed", UNDONE: "has to be done again"}

Line = dict[str, Any]


class Journal:
    """``nodes/NAME.rebuild.jsonl``. Each line is on disk before the next thing happens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = self._read()

    def _read(self) -> list[Line]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise FleetStateError(f"{self.path}: can't be read ({error})") from error
        found = []
        # a kill in the middle of a write leaves a last line without its end
        for number, row in enumerate(text.split("\n")[:-1], 1):
            try:
                line = json.loads(row)
                found.append({**line, "step": line["step"], "outcome": line["outcome"]})
            except (ValueError, KeyError, TypeError) as error:
                text = f"{self.path}:{number}: is no line of a rebuild; mend it or move it away"
                raise FleetStateError(text) from error
        return found

    def write(self, step: str, outcome: str, why: str = "", **data: Any) -> None:
        line = {"at": now(), "step": step, "outcome": outcome, **({"why": why} if why else {})}
        line |= data
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                size = file.seek(0, os.SEEK_END)
                if size:
                    file.seek(size - 1)
                    if file.read(1) != b"\n":  # what a kill left of a line
                        file.truncate(_whole(self.path))
                file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            text = f"{self.path}: can't be written: {error.strerror}; see its owner and space"
            raise FleetStateError(text) from error
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


def _whole(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return path.read_bytes().rfind(b"\n") + 1
