"""``python -m tests.bench STEP…``: measures, writes results.json and one page (docs/bench.md)."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from rackpin.lab import description, lifecycle, services
from rackpin.lab.errors import LabError
from rackpin.lab.state import state_root
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from tests.bench import page, whole
from tests.bench.ansible import ANSIBLE
from tests.bench.measure import BenchError, Measured
from tests.bench.nodes import Nodes, routed
from tests.bench.steps import TOOLS, Bench
from tests.lab.fleet import FleetLab

STEPS = ("scale", "compare", "latency", "build", "verify")
NEEDS_NODES = {"scale", "compare", "latency"}
LAB = "test-bench"
DESCRIPTION = "name: {name}\nhosts:\n  - {{ name: h0, groups: [head], sku: lab-cpu }}\n"
SCHEMA = 1


@contextmanager
def lab(name: str, directory: Path, keep: bool) -> Iterator[Nodes]:
    """One lab host for all nodes; nothing of it is left unless ``keep``."""
    wheelhouse.build(load_stack("cpu-lab"), say=print)
    described = description.parse(DESCRIPTION.format(name=name), "tests/bench", name)
    up = lifecycle.up(described, name, say=print)
    try:
        services.start(up, print)
        with routed(FleetLab(up, directory), directory) as nodes:
            yield nodes
    finally:
        if not keep:
            services.stop(state_root() / name)
            lifecycle.down(name, purge=True)


def machine() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def key(one: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(one[name] for name in ("step", "tool", "kind", "nodes"))


def save(directory: Path, found: list[Measured]) -> Path:
    """results.json and its page; what is there already and wasn't measured again stays."""
    path = directory / "results.json"
    before = json.loads(path.read_text())["measurements"] if path.exists() else []
    new = [one.as_json() for one in found]
    again = {key(one) for one in new}
    document = {
        "schema": SCHEMA,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {name: version(name) for name in ("rackpin", "pyinfra", "paramiko")}
        | {"ansible-core": ANSIBLE.partition("==")[2]},
        "measurements": [m for m in before if key(m) not in again] + new,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    (directory / "results.html").write_text(page.render(document))
    return path


def _counts(_context: Any, _parameter: Any, text: str) -> list[int]:
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a list of numbers like 1,8,32") from error
    if not found or found[0] < 1:
        raise click.BadParameter("at least one node")
    return found


@click.command()
@click.argument("steps", nargs=-1, required=True, type=click.Choice(STEPS))
@click.option("--nodes", default="1,8,32,128,256", callback=_counts, help="for scale")
@click.option("--against", default="8,32", callback=_counts, help="numbers of nodes for compare")
@click.option("--tool", "tools", multiple=True, default=TOOLS, type=click.Choice(TOOLS))
@click.option("--repeat", default=3, type=click.IntRange(1), help="runs of each; the median counts")
@click.option("--out", default="reports/bench", type=click.Path(path_type=Path))
@click.option("--lab", "name", default=LAB, help="the lab's name")
@click.option("--keep", is_flag=True, help="leave the lab up, for another step")
def main(
    steps: tuple[str, ...],
    nodes: list[int],
    against: list[int],
    tools: tuple[str, ...],
    repeat: int,
    out: Path,
    name: str,
    keep: bool,
) -> None:
    """Measure STEPs, on a lab of its own. What was measured is kept also when a later one fails."""
    directory = out.resolve()
    directory.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        print(f"{datetime.now(UTC):%H:%M:%S}  {text}", flush=True)

    try:
        for step, own in (("verify", whole.verify), ("build", whole.build)):
            if step in steps:
                save(directory, own(directory))
        if NEEDS_NODES & set(steps):
            with lab(name, directory, keep) as made:
                bench = Bench(made, repeat, say)
                try:
                    if "latency" in steps:
                        bench.latency()
                    if "compare" in steps:
                        bench.compare(against, tools)
                    if "scale" in steps:
                        bench.scale(nodes)
                finally:
                    save(directory, bench.found)
    except (BenchError, LabError) as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(1)
    say(f"{directory}/results.json and results.html")


if __name__ == "__main__":
    main()
