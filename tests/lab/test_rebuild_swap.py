"""Swaps on a real host with simulated cards: the table is right, and the node stays out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.fleet import identity
from rackpin.fleet.state import FleetState
from rackpin.lab.hardware.presets import preset
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from tests.lab.fleet import FleetLab, Run, booted

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1500)]
NAME, KIND = "t-rebuild-swap", "h100-sxm-8"
LAB = f"""name: {NAME}
hosts:
  - {{ name: head1, groups: [head], sku: lab-cpu }}
  - {{ name: gpu1, groups: [workers], sku: {KIND}, hardware: {KIND} }}
"""
FAULTED = 3  # the card's place
SLOT = preset(KIND).slots[FAULTED].bus


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    """A host with eight cards, recorded as it was when somebody found it ready."""
    wheelhouse.build(load_stack("cpu-lab"), say=print)
    directory = Path(tmp_path_factory.mktemp("swap"))
    (directory / "lab.yaml").write_text(LAB)
    with booted(directory / "lab.yaml", NAME, directory) as lab:
        found = identity.parse(lab.feed("gpu1", identity.script()).splitlines())
        assert len(found.gpus) == 8 and found.driver
        state_of(lab).was_ready("gpu1", found, "lock", "run")
        lab.environment["COLUMNS"] = "240"  # no cell of the table is folded
        yield lab


def state_of(site: FleetLab) -> FleetState:
    return FleetState(site.lab.directory / "state" / NAME)


def rebuild(site: FleetLab, *options: str) -> Run:
    return site.rackpin("rebuild", "gpu1", "--data", "instances=[]", *options)


def rows(text: str, part: str) -> list[str]:
    """Rows of the table about one part."""
    return [line for line in text.splitlines() if line.startswith(f"{part} ")]


def test_the_table_names_what_was_swapped(site: FleetLab) -> None:
    run = rebuild(site, "--dry")
    assert run.code == 0 and "it is what its record says" in run.text, run.tail

    site.faults("gpu1", f"gpu-swapped={FAULTED}")
    run = rebuild(site, "--dry")
    (row,) = rows(run.text, "gpu")
    record = state_of(site).record("gpu1")
    assert record is not None
    assert SLOT in row and record.identity.gpus[SLOT].uuid[:8] in row, run.tail

    site.faults("gpu1", f"gpu-missing={FAULTED}")
    run = rebuild(site, "--dry")
    (row,) = rows(run.text, "gpu")
    assert SLOT in row and "–" in row and "a card is missing" in row, run.tail
    assert any(SLOT in one for one in rows(run.text, "pci"))

    site.faults("gpu1", "hca-order")
    run = rebuild(site, "--dry")
    found = rows(run.text, "hca")
    assert len(found) == len(preset(KIND).nics), run.tail
    assert all("name" in row and "rackpin-hca-names.service" in row for row in found)
    assert rows(run.text, "gpu") == []
    assert state_of(site).quarantined() == {} and not list(site.lab.directory.rglob("*.jsonl"))


def test_seven_of_eight_is_built_asked_and_kept_out(site: FleetLab) -> None:
    site.faults("gpu1", f"gpu-missing={FAULTED}")
    run = rebuild(site)
    print(run.text)
    assert run.code == 1, run.tail
    assert "gpu.count" in run.text and "stays quarantined" in run.text
    assert state_of(site).quarantined()["gpu1"].reason == "rebuild"
    assert "by " in site.ask("gpu1", "cat /etc/rackpin/quarantine")
    assert site.ask("gpu1", "systemctl is-active ray-worker", check=False) != "active"
    again = rebuild(site)
    assert again.code == 1 and "goes on with the rebuild" in again.text, again.tail
    assert "site: done before" in again.text
