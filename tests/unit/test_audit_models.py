"""What the audit says of a model's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackpin.audit import expect
from rackpin.audit.node.models import MODEL_MARK
from rackpin.desired import Target
from rackpin.stack.items import ModelFile
from rackpin.stack.placed import MARK
from tests.unit.audit_samples import MODEL, WEIGHTS, Machine, healthy, make_model

FILE = f"{MODEL.path}/w/a.safetensors"


@pytest.fixture
def machine(target: Target, tmp_path: Path) -> Machine:
    return healthy(target, tmp_path / "root")


def drift(machine: Machine, deep: bool = False) -> list[tuple[str, str]]:
    found = machine.audit(deep)
    assert found["unseen"] == []
    return [(item["kind"], item["found"]) for item in found["drift"]]


def test_a_file_that_is_gone_or_longer_is_named(machine: Machine) -> None:
    machine.at(FILE).unlink()
    assert drift(machine) == [("model.file", "missing")]
    machine.write(FILE, WEIGHTS + b"!")
    assert drift(machine) == [("model.file", "8 bytes")]


def test_without_its_mark_nothing_of_it_is_proved(machine: Machine) -> None:
    machine.at(f"{MODEL.path}/{MODEL_MARK}").unlink()
    assert drift(machine) == [("model.mark", "missing")]
    machine.write(f"{MODEL.path}/{MODEL_MARK}", f"{MODEL.digest}\n")
    assert drift(machine) == [("model.file", "changed later")] * 2


def test_decay_of_the_disk_needs_deep(machine: Machine) -> None:
    """Other bytes under size and ctime of the mark, as a disk would give them."""
    machine.write(FILE, b"wEights")
    make_mark_anew(machine)
    assert drift(machine) == []
    ((kind, found),) = drift(machine, deep=True)
    assert kind == "model.file" and len(found) == 12


def make_mark_anew(machine: Machine) -> None:
    damaged = machine.at(FILE).read_bytes()
    make_model(machine)
    machine.write(FILE, damaged)
    stat = machine.at(FILE).stat()
    mark = machine.at(f"{MODEL.path}/{MODEL_MARK}")
    lines = [line for line in mark.read_text().splitlines() if "a.safetensors" not in line]
    changed = f"{stat.st_ctime_ns // 10**9}.{stat.st_ctime_ns % 10**9:09d}"
    mark.write_text("\n".join([*lines, f"{stat.st_size} {changed} w/a.safetensors", ""]))


def test_the_expectation_names_every_model_of_the_nodes_engines(target: Target) -> None:
    assert MARK == MODEL_MARK
    assert expect.for_node(target).models == []
    (first, *others) = target.fleet.config.instances
    engines = [first.model_copy(update={"model_pin": "m"}), *others]
    config = target.fleet.config.model_copy(update={"instances": engines})
    lock = target.lock.but(models={"m": [ModelFile(path="a", sha256="0" * 64, size=3)]})
    pinned = Target(target.fleet.model_copy(update={"config": config}), target.node, lock)
    (found,) = expect.for_node(pinned).models
    assert (found.path, found.files) == (first.model, [("a", "0" * 64, 3)])
