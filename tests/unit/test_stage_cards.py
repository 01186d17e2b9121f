"""The gate before Ray and engines: how many cards a unit waits for, and for how long."""

from __future__ import annotations

import dataclasses
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rackpin.desired import Desired, Target
from rackpin.inventory import Instance
from rackpin.stages import cards, ray, serve


def on(target: Target, **node: Any) -> Target:
    node = {"sku": "h100-sxm-8", "gpus": 8, "nvswitch": True} | node
    return dataclasses.replace(target, node=target.node.model_copy(update=node))


def units(*wishes: Desired) -> list[str]:
    found = [f.content for wish in wishes for f in wish.files if f.path.endswith(".service")]
    assert len(found) == 2
    return found


def test_ray_and_engine_wait_for_the_cards_of_their_node(target: Target) -> None:
    node = on(target)
    for text in units(ray.desired(node), serve.desired(node)):
        gates = [line for line in text.splitlines() if line.startswith("ExecStartPre=")]
        assert gates[0].startswith(f"ExecStartPre={cards.PROGRAM} 8 ") and len(gates) == 2
        assert gates[0].endswith(" nvidia-fabricmanager.service")
        assert text.index("ExecStartPre=") < text.index("ExecStart=")
    assert cards.PROGRAM in [f.path for f in ray.desired(node).files]


def test_without_cards_nothing_is_waited_for(target: Target) -> None:
    assert target.node.gpus == 1, "the lab's hosts have a GPU in name only"
    for text in units(ray.desired(target), serve.desired(target)):
        assert "cards-gate" not in text
    assert cards.PROGRAM not in [f.path for f in ray.desired(target).files]


@pytest.mark.parametrize(
    ("gpus", "waited"),
    [(8, 8), (7, 7), (56, 8), (0, 0)],
    ids=["all", "one out for repair", "slices of MIG", "none"],
)
def test_how_many(target: Target, gpus: int, waited: int) -> None:
    assert cards.expected(on(target, gpus=gpus).node) == waited
    assert cards.gate(on(target, gpus=gpus, nvswitch=False).node, 900) == (
        f"{cards.PROGRAM} {waited} 900" if waited else ""
    )


def test_an_engine_that_waits_never_uses_up_its_starts() -> None:
    """A start that only waited takes wait_s; so many don't fit into the window that counts."""
    fields = Instance.model_fields
    wait, burst, window = (
        fields[name].default for name in ("wait_s", "restart_burst", "restart_window_s")
    )
    assert wait * burst >= window


@pytest.fixture
def gate(target: Target, tmp_path: Path) -> Path:
    """The program below a root of its own, with a systemctl that does what a file says."""
    program = tmp_path / "cards-gate"
    program.write_text(cards.files(on(target).node)[0].content)
    stub = tmp_path / "bin" / "systemctl"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\n[ "$*" = "is-active --quiet fm" ] && [ -e {tmp_path}/active ]\n')
    stub.chmod(0o755)
    return program


def ask(gate: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(gate), *arguments, str(gate.parent)], capture_output=True, text=True,
        timeout=30, env={"PATH": f"{gate.parent}/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    )  # fmt: skip


def card(gate: Path, number: int) -> None:
    (gate.parent / f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0").mkdir(parents=True)


def test_it_is_over_once_all_are_there(gate: Path) -> None:
    for number in range(2):
        card(gate, number)
    done = ask(gate, "2", "5", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_card_that_comes_late_is_waited_for(gate: Path) -> None:
    card(gate, 0)
    comes = threading.Timer(1.5, card, (gate, 1))
    comes.start()
    done = ask(gate, "2", "20", "")
    comes.join()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cards-gate: waiting for 2 cards, the driver has found 1")
    assert done.stdout.count("\n") == 1, "said once"


def test_it_gives_up_in_time_and_says_what_is_missing(gate: Path) -> None:
    card(gate, 0)
    began = time.monotonic()
    done = ask(gate, "8", "2", "")
    assert done.returncode == 1 and time.monotonic() - began < 6
    assert "gave up after 2 s waiting for 8 cards, the driver has found 1" in done.stderr


def test_fabric_manager_is_waited_for_after_the_cards(gate: Path) -> None:
    card(gate, 0)
    done = ask(gate, "1", "1", "fm")
    assert done.returncode == 1 and "waiting for fm to run" in done.stderr
    comes = threading.Timer(1.0, (gate.parent / "active").touch)
    comes.start()
    done = ask(gate, "1", "20", "fm")
    comes.join()
    assert done.returncode == 0, done.stderr
