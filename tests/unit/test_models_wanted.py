"""Engines that serve a model of the stack: what the inventory may say, and what they wait for."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackpin.desired import Target, render
from rackpin.facts_models import ModelFact
from rackpin.inventory import Fleet
from rackpin.inventory_models import of_the_stack
from rackpin.inventory_problems import InventoryError
from rackpin.operations_models import placed_model
from rackpin.requests import requests
from rackpin.stack.items import ModelFile
from rackpin.stack.placed import ModelState
from rackpin.stack.share import Transfers
from rackpin.stages import serve
from tests.unit.test_operations import commands


def pinned(target: Target, pin: str = "m") -> Target:
    """The fleet's first engine with a model of the stack."""
    (first, *others) = target.fleet.config.instances
    engines = [first.model_copy(update={"model_pin": pin}), *others]
    config = target.fleet.config.model_copy(update={"instances": engines})
    lock = target.lock.but(models={"m": [ModelFile(path="a", sha256="0" * 64, size=3)]})
    fleet: Fleet = target.fleet.model_copy(update={"config": config})
    return Target(fleet, target.node, lock)


def test_a_model_that_the_stack_does_not_have_is_named(target: Target) -> None:
    good = pinned(target)
    of_the_stack(good.fleet, good.lock)
    other = pinned(target, "q")
    with pytest.raises(InventoryError) as error:
        of_the_stack(other.fleet, other.lock)
    (problem,) = error.value.problems
    assert problem.key == f"instances[{other.fleet.config.instances[0].name}].model_pin"
    assert "no model 'q'; it has m" in problem.message and problem.remedy
    with pytest.raises(InventoryError, match="it has none"):
        of_the_stack(other.fleet, target.lock)


def test_every_node_of_the_engine_gets_it_and_no_other(target: Target) -> None:
    there = pinned(target)
    engine = there.fleet.config.instances[0]
    for name, node in there.fleet.nodes.items():
        found = serve.placed(Target(there.fleet, node, there.lock))
        assert [m.path for m in found] == ([engine.model] if name in engine.nodes else [])


def gate(target: Target, tmp_path: Path, engine: dict[str, object]) -> tuple[int, str]:
    """The gate's exit status and what it said; it waits one second."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    (tmp_path / "config.json").write_text("{}")
    there = {"address": "127.0.0.1", "port": port, "model": str(tmp_path), "executor": "local"}
    given = tmp_path / "engine.json"
    given.write_text(json.dumps({**there, "wait_s": 1, **engine}))
    program = tmp_path / "vllm-gate"
    program.write_text(render("usr/local/lib/rackpin/vllm-gate.j2"))
    argv = [sys.executable, str(program), str(given)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout + done.stderr


def test_an_engine_waits_for_the_mark_of_its_model(target: Target, tmp_path: Path) -> None:
    there = pinned(target)
    engine = there.fleet.config.instances[0]
    run = json.loads(serve.run_file(engine, there.node.address, there.lock))
    assert run["model_mark"] == [f"{engine.model}/.rackpin-model", serve.placed(there)[0].digest]
    mark = tmp_path / ".rackpin-model"
    wanted = {"model_mark": [str(mark), "d" * 64]}
    assert gate(target, tmp_path, {}) == (0, "")
    for text in (None, f"{'e' * 64}\n3 1.0 a\n", "d" * 63):
        if text is not None:
            mark.write_text(text)
        code, said = gate(target, tmp_path, wanted)
        assert code == 1 and f"gave up waiting for {mark}" in said
    mark.write_text(f"{'d' * 64}\n3 1.0 a\n")
    assert gate(target, tmp_path, wanted) == (0, "")
    plain = target.fleet.config.instances[0]
    assert "model_mark" not in json.loads(serve.run_file(plain, "10.0.0.1", target.lock))


def placing(target: Target, state: ModelState | None) -> list[Any]:
    (model,) = serve.placed(target)
    return commands(
        placed_model,
        {ModelFact: state},
        model=model,
        bundle_url="http://10.0.0.2:8901/",
        transfers=Transfers(),
    )


def test_a_model_as_it_was_proved_needs_nothing(target: Target) -> None:
    there = pinned(target)
    (model,) = serve.placed(there)
    assert placing(there, ModelState(model.digest, same=True)) == []
    for state in (
        None,
        ModelState(),
        ModelState(model.digest, same=False),
        ModelState("e" * 64, same=True),
    ):
        (command,) = placing(there, state)
        assert command.connector_arguments["_timeout"] == model.deadline_s
        assert '"origin": "http://10.0.0.2:8901/models/m"' in command.connector_arguments["_stdin"]


def test_the_lines_of_a_long_fetch_are_shown(target: Target) -> None:
    (command,) = placing(pinned(target), None)
    told: dict[str, Any] = {}

    class Host:
        def run_shell_command(self, command: Any, **arguments: Any) -> None:
            told.update(arguments)

    class State:
        print_output = print_input = False

    command.execute(State(), Host(), {"_sudo": True})
    assert (
        told["print_output"]
        and told["_sudo"]
        and told["_timeout"] == command.connector_arguments["_timeout"]
    )


def test_a_survey_asks_about_every_model(target: Target) -> None:
    there = pinned(target)
    engine = there.fleet.config.instances[0]
    assert (ModelFact, {"path": engine.model}) in requests(there)
    assert not [cls for cls, _ in requests(target) if cls is ModelFact]
