"""The whole audit of the machine this runs on, as a program and as a function."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rackpin.audit.node.boot import look_at_boot
from rackpin.audit.node.environment import look_at_environment
from rackpin.audit.node.files import look_at_files
from rackpin.audit.node.metrics import last_success, metrics_text, write_metrics
from rackpin.audit.node.models import look_at_models
from rackpin.audit.node.packages import look_at_packages
from rackpin.audit.node.place import Place
from rackpin.audit.node.processes import look_at_processes
from rackpin.audit.node.sheet import KEPT, SCHEMA_VERSION, Sheet, Unseen
from rackpin.audit.node.units import look_at_units

EXPECTED = "/etc/rackpin/audit.json"
PRINTED = 230_000  # bytes: what one remote answer may hold, with room
EXITS = {"same": 0, "drift": 2, "could_not_look": 3}


def audit(wish: dict[str, Any], deep: bool = False, place: Place | None = None) -> dict[str, Any]:
    """One machine against its wish. Never raises for what it finds there."""
    here, sheet = place or Place(), Sheet()
    areas: dict[str, Callable[[], object]] = {
        "wheel": lambda: look_at_environment(here, wish["environment"], sheet, deep),
        "deb": lambda: look_at_packages(here, wish, sheet, deep),
        "file": lambda: look_at_files(here, wish, sheet),
    }
    if wish["kind"] == "host":
        areas["model"] = lambda: look_at_models(here, wish, sheet, deep)
        areas["unit"] = lambda: look_at_units(here, wish, sheet)
        areas["kernel"] = lambda: look_at_boot(here, wish, sheet)
        areas["running"] = lambda: look_at_processes(here, wish, sheet)
    for area, look in areas.items():
        try:
            look()
        except Unseen as error:
            sheet.could_not(area, str(error))
        except OSError as error:
            sheet.could_not(area, f"{error.filename or 'a file'}: {error.strerror or error}")
        except Exception as error:  # one area's surprise must not hide the others' answers
            sheet.could_not(area, f"the audit itself failed: {type(error).__name__}: {error}")
    return sheet.as_target(wish["name"])


def document(wish: dict[str, Any], targets: list[dict[str, Any]], deep: bool) -> dict[str, Any]:
    """What ``--json`` prints: the same shape from a node and from the control machine."""
    states = {target["state"] for target in targets}
    outcome = next((s for s in ("could_not_look", "drift") if s in states), "same")
    return {
        "schema_version": SCHEMA_VERSION,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "fleet": wish["fleet"],
        "stack": wish["stack"],
        "lock": wish["lock"],
        "deep": deep,
        "outcome": outcome,
        "exit_code": EXITS[outcome],
        "targets": targets,
    }


def lines_of(target: dict[str, Any], everything: bool) -> list[str]:
    """The target for a terminal without any library."""
    lines = []
    for item in target["drift"]:
        lines.append(f"{item['kind']:16} {item['subject']}")
        lines.append(f"{'':16}   expected {item['expected']}; found {item['found']}")
        lines.append(f"{'':16}   -> {item['remedy']}")
    for kind, count in target["counts"].items():
        listed = sum(item["kind"] == kind for item in target["drift"])
        if count > listed:
            lines.append(f"{kind:16} {count - listed} more")
    lines += [f"{'could not look':16} {item['area']}: {item['why']}" for item in target["unseen"]]
    if everything:
        lines += [f"{'same':16} {i['area']}: {i['subject']}: {i['found']}" for i in target["same"]]
    lines += target["proves"]
    total = sum(target["counts"].values())
    lines.append(f"{target['name']}: {target['state'].replace('_', ' ')}, {total} difference(s)")
    return lines


def fitting(whole: dict[str, Any], target: dict[str, Any]) -> str:
    """JSON that one answer can hold: first without what is the same, then with fewer examples."""
    text = json.dumps(whole)
    for kept in (KEPT, 10, 3, 1):
        if len(text) <= PRINTED:
            break
        drift, listed = [], dict.fromkeys(target["counts"], 0)
        for item in target["drift"]:
            listed[item["kind"]] += 1
            if listed[item["kind"]] <= kept:
                drift.append(item)
        text = json.dumps({**whole, "targets": [{**target, "same": [], "drift": drift}]})
    return text


def main(argv: list[str] | None = None, embedded: dict[str, Any] | None = None) -> int:
    """Exit 0 the same, 2 drift, 3 could not look at something; 1 the textfile can't be written."""
    parser = argparse.ArgumentParser(
        prog="audit", description="Compare this machine with what rackpin expects of it."
    )
    parser.add_argument("--expected", default=EXPECTED, metavar="FILE")
    parser.add_argument("--deep", action="store_true", help="read and hash every file")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--all", action="store_true", help="what is the same, too")
    parser.add_argument("--textfile", type=Path, metavar="FILE.prom")
    options = parser.parse_args(argv)
    try:
        wish = embedded or json.loads(Path(options.expected).read_text(encoding="utf-8"))
        if wish["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"has schema_version {wish['schema_version']}")
    except (OSError, ValueError, KeyError) as error:
        print(f"{options.expected}: {error}; run deploys/audit.py for this node", file=sys.stderr)
        return EXITS["could_not_look"]
    target = audit(wish, options.deep)
    whole = document(wish, [target], options.deep)
    if not options.all:
        whole["targets"] = [{**target, "same": []}]
    text = fitting(whole, target) if embedded else json.dumps(whole)
    print(text if options.json else "\n".join(lines_of(target, options.all)))
    if options.textfile:
        try:
            last = last_success(options.textfile)
            write_metrics(options.textfile, metrics_text(target, wish, time.time(), last))
        except OSError as error:
            print(f"{options.textfile}: can't be written: {error.strerror}", file=sys.stderr)
            return 1
    return int(whole["exit_code"])
