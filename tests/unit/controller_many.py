"""``python -m tests.unit.controller_many DIRECTORY COUNT``: what a run that changes nothing costs.

Runs pyinfra itself over as many simulated nodes on which everything is as wished (see
:mod:`tests.unit.wished_host`): once to write down what they answer, once to answer from that.
Only ssh is left out. Prints one line of JSON: processor seconds, wall seconds and megabytes of
the second run.
"""

from __future__ import annotations

import atexit
import json
import os
import pstats
import re
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyinfra.api.command import StringCommand
from pyinfra.connectors.util import CommandOutput, OutputLine

from rackpin import connector, deploy, pyinfra_speed, runlog
from rackpin.connector import Ask, FleetConnector, grouped
from rackpin.desired import Target
from rackpin.fabric.look import script
from rackpin.inventory import ROOT
from tests.unit.shell import sh
from tests.unit.verify_many import most_memory_kib
from tests.unit.wished_host import WishedHost, block

DEADLINE_S = 900
NONCE = re.compile(r"^N=([0-9a-f]{32})$", re.M)
PLACE = "@NONCE@"
INVENTORY = "from tests.unit.controller_many import inventory\n\nhead, workers, all = inventory()\n"


@lru_cache(maxsize=1)
def no_cards() -> str:
    """What the fabric's script prints where there is no card."""
    return sh(script("/nonexistent")).stdout


def inventory() -> tuple[Any, Any, Any]:
    """The fleet, and connectors that answer from the directory named in the environment."""
    directory = Path(os.environ["RACKPIN_REPLAY"])
    count = int(os.environ["RACKPIN_REPLAY_NODES"])
    put_in_place(directory)
    hosts = [
        (f"@fleet/node{n:04}", {"address": f"10.9.{n // 200}.{n % 200 + 1}", "sku": "lab-cpu"})
        for n in range(count)
    ]
    key = directory / "api-key"
    instances = [
        {
            "name": f"one-{n:04}",
            "served_name": f"model-{n % 4}",
            "nodes": [f"node{n:04}"],
            "model": "/srv/models/tiny",
            "tp": 1,
            "api_key_file": str(key),
        }
        for n in range(count)
    ]
    values = {
        "fleet": "replayed",
        "stack": "cpu-lab",
        "state_dir": str(directory / "state"),
        "report_dir": str(directory / "reports"),
        "wheelhouse_url": "http://10.9.255.1:8900",
        "instances": instances,
        "max_clock_offset_s": 1e9,  # answers were written down earlier
    }
    return hosts[:1], hosts[1:], (hosts, values)


def put_in_place(directory: Path) -> None:
    recording = not (directory / "answers").exists() or os.environ.get("RACKPIN_RECORD") == "1"
    (directory / "answers").mkdir(exist_ok=True)
    deploy.source_problems = lambda run: []  # type: ignore[assignment]  # no wheels are served here
    given: dict[str, list[Any]] = {}

    def connect(self: Any) -> None:
        pyinfra_speed.apply()
        runlog.begin(self.state)

    original = FleetConnector.survey

    def survey(self: Any, facts: Any) -> None:
        given[self.host.name] = list(facts)
        original(self, given[self.host.name])

    def answered(self: Any) -> str:
        file = directory / "answers" / self.host.name
        if recording:
            run = runlog.begin(self.state)
            node = run.fleet.nodes[self.host.name]
            host = WishedHost(Target(run.fleet, node, run.lock), no_cards())
            asked = [Ask(StringCommand(), {}, *fact) for fact in given[self.host.name]]
            answers = [
                "\n".join(host.answer(one.fact, one.given) for one in group)
                for group in grouped(asked)
            ]
            file.write_text("".join(block(n, text, PLACE) for n, text in enumerate(answers)))
        return file.read_text()

    def run_once(self: Any, command: Any, *_: Any, **arguments: Any) -> Any:
        nonce = NONCE.search(arguments.get("_stdin") or "")
        if nonce is None or self.executions:
            raise AssertionError(f"{self.host.name}: not by the survey: {connector.raw(command)}")
        self.executions += 1
        text = answered(self).replace(PLACE, nonce[1])
        return True, CommandOutput([OutputLine("stdout", line) for line in text.splitlines()])

    FleetConnector.connect = connect  # type: ignore[method-assign]
    FleetConnector.disconnect = lambda self: None  # type: ignore[method-assign]
    FleetConnector.survey = survey  # type: ignore[method-assign]
    FleetConnector.run_once = run_once  # type: ignore[method-assign]
    began = time.monotonic()

    def tell() -> None:
        found = {
            "cpu": round(time.process_time(), 2),
            "wall": round(time.monotonic() - began, 2),
            "megabytes": most_memory_kib() // 1024,
        }
        (directory / "cost.json").write_text(json.dumps(found))

    atexit.register(tell)


def run(directory: Path, count: int, record: bool, profile: str = "") -> str:
    """What pyinfra printed. Raises RuntimeError with the end of it when it failed."""
    # as on a machine where Python keeps what it compiled
    own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env = {
        "RACKPIN_REPLAY": str(directory),
        "RACKPIN_REPLAY_NODES": str(count),
        "RACKPIN_RECORD": "1" if record else "0",
        "PYTHONPATH": str(ROOT),
    }
    watched = ["-m", "cProfile", "-o", profile] if profile else []
    pyinfra = str(Path(sys.executable).with_name("pyinfra"))
    inventory = str(directory / "inventory.py")
    done = subprocess.run(
        [sys.executable, *watched, pyinfra, "-y", inventory, "deploys/rebuild.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, env=own | env,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-6000:])
    return done.stdout + done.stderr


def recorded(directory: Path, count: int) -> None:
    """Have so many nodes write down what they answer, once."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "inventory.py").write_text(INVENTORY)
    key = directory / "api-key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    key.chmod(0o600)
    if len(list((directory / "answers").glob("*"))) != count:
        run(directory, count, record=True)


def cost(directory: Path, count: int) -> dict[str, Any]:
    """What a run cost that changed nothing."""
    recorded(directory, count)
    unchanged(run(directory, count, record=False), count)
    found: dict[str, Any] = json.loads((directory / "cost.json").read_text())
    return {"nodes": count, **found}


def calls(directory: Path, count: int) -> pstats.Stats:
    """How often each function was called in such a run."""
    recorded(directory, count)
    file = str(directory / "profile")
    unchanged(run(directory, count, record=False, profile=file), count)
    return pstats.Stats(file)


def unchanged(text: str, count: int) -> None:
    """Raises RuntimeError unless every node had every operation, and none of them changed it."""
    total = re.search(r"Grand total +(\d+) +(\S+) +(\S+) +(\d+)", text)
    done = [text.count(f"[node{n:04}] No changes") for n in range(count)]
    told = f"node{count - 1:04}=1 (facts outside the survey: 0)"
    if not total or total[4] != total[1] or len(set(done)) > 1 or told not in text:
        raise RuntimeError(text[-6000:])


if __name__ == "__main__":
    print(json.dumps(cost(Path(sys.argv[1]), int(sys.argv[2]))))
