"""systemd units: ``systemctl show``, ``status``, ``list-units``, and results in the journal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin.parse.loglines import Line

_UNIT = r"[\w@:.\\-]{1,160}\.(?:service|socket|target|timer|mount|slice|path|device|scope)"
_HEAD = re.compile(rf"^(?:[●○×↻*x] |\u00d7 )?({_UNIT})(?: - (.*))?$")
_STATE = re.compile(r"^(Active|Loaded|Main PID|Result|Process): (.*)$")
_SHOW = re.compile(r"^([A-Z][A-Za-z]{1,60})=(.*)$")
_RESULT = re.compile(
    rf"\b({_UNIT}): (?:Failed with result '([\w-]+)'"
    r"|(?:Main|Control) process exited, code=(\w+), status=(\d+)/?(\S*))"
)
_ROW = re.compile(
    rf"^(?:[●○×*] )?({_UNIT})\s+(loaded|not-found|masked|bad-setting|error)\s+(\w+)\s+([\w-]+)\b"
)
_FAILED_START = re.compile(r"Failed to start (.+?)\.?$")
_LOOKS_SHOWN = {
    "ActiveState",
    "LoadState",
    "SubState",
    "MainPID",
    "FragmentPath",
    "UnitFileState",
    "LimitMEMLOCK",
    "LimitNOFILE",
    "ExecMainStatus",
    "NRestarts",
    "Id",
    "Names",
    "TimeoutStartUSec",
    "KillMode",
    "Result",
    "DropInPaths",
    "NeedDaemonReload",
}


@dataclass(frozen=True)
class Unit:
    """``state``: systemd's active state (``active``, ``failed``, …) or null where not told;
    ``result``: why it failed; ``properties``: what ``systemctl show`` printed."""

    name: str
    state: str | None = None
    result: str | None = None
    properties: dict[str, str] = field(default_factory=dict)


def units(lines: Sequence[Line]) -> tuple[tuple[Unit, ...], tuple[str, ...]]:
    """(units, errors) these lines tell of; ``systemctl show`` without Id gives a unit ""."""
    states: dict[str, str] = {}
    results: dict[str, str] = {}
    names: dict[str, None] = {}
    errors: dict[str, None] = {}
    shown: list[dict[str, str]] = [{}]
    current = ""
    for line in lines:
        text = line.shown
        if ("result" in text or "exited" in text) and (match := _RESULT.search(text)):
            names[match[1]] = None
            states[match[1]] = "failed"
            results[match[1]] = match[2] or results.get(match[1]) or f"{match[3]} {match[4]}"
            errors[f"{match[1]}: {results[match[1]]}"] = None
        elif match := _ROW.match(text):
            names[match[1]] = None
            states[match[1]] = match[3]
        elif match := _HEAD.match(text):
            current = match[1]
            names[current] = None
            if match[2] and match[2].startswith("failed"):
                states[current] = "failed"
        elif current and (match := _STATE.match(text)):
            if match[1] == "Active":
                states[current] = match[2].split(" ")[0]
                if result := re.search(r"\(Result: ([\w-]+)\)", match[2]):
                    results[current] = result[1]
        elif match := _SHOW.match(text):
            shown[-1][match[1]] = match[2]
        elif not text and shown[-1]:
            shown.append({})
        if match := _FAILED_START.search(line.text):
            errors[match[0]] = None
    listed = [Unit(name, states.get(name), results.get(name)) for name in names]
    return (*listed, *_shown(shown)), tuple(errors)


def _shown(blocks: Sequence[dict[str, str]]) -> list[Unit]:
    found = []
    for block in blocks:
        if len(_LOOKS_SHOWN & block.keys()) >= 1:
            result = block.get("Result")
            state = block.get("ActiveState") or None
            found.append(Unit(block.get("Id", ""), state, result or None, dict(block)))
    return found
