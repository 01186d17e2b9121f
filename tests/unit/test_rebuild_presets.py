"""Swaps on the lab's simulated servers, read by the script that reads a node: the right rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackpin.fleet.differences import Difference, differences
from rackpin.fleet.identity import Identity, parse
from rackpin.lab.hardware import presets
from rackpin.lab.hardware.kernel import proc_driver
from rackpin.lab.hardware.sysfs import files
from rackpin.lab.hardware.tree import write
from tests.unit.test_fleet_identity import look

KIND = "h100-sxm-8"
PLACE = 3
SLOT = presets.preset(KIND).slots[PLACE].bus


def seen(root: Path, *faults: str) -> Identity:
    """What the script finds on such a server."""
    node = presets.node("gpu1", KIND, faults)
    found = {f"sys/{name}": content for name, content in files(node).items()}
    found |= {f"proc/driver/nvidia/{name}": text for name, text in proc_driver(node).items()}
    found |= {"proc/meminfo": "MemTotal:       2113444852 kB\n", "etc/machine-id": "3d12\n"}
    for name, content in found.items():
        write(root / name, content)
    return parse(look(root))


def swap(tmp_path: Path, fault: str) -> list[Difference]:
    was = seen(tmp_path / "was")
    assert len(was.gpus) == 8 and len(was.hcas) == 8 and was.driver
    return differences(was, seen(tmp_path / "now", fault))


def test_the_same_server_has_no_difference(tmp_path: Path) -> None:
    assert differences(seen(tmp_path / "was"), seen(tmp_path / "now")) == []


def test_a_card_was_swapped(tmp_path: Path) -> None:
    (found,) = swap(tmp_path, f"gpu-swapped={PLACE}")
    assert (found.part, found.what, found.binding) == ("gpu", f"{SLOT} uuid", True)
    assert found.was.startswith("GPU-") and found.now.startswith("GPU-")


def test_seven_of_eight(tmp_path: Path) -> None:
    found = swap(tmp_path, f"gpu-missing={PLACE}")
    assert {(d.part, d.what, d.now) for d in found} >= {("gpu", SLOT, "–"), ("pci", SLOT, "–")}
    assert all(d.part in ("gpu", "pci") for d in found)
    assert "a card is missing" in next(d.follows for d in found if d.part == "gpu")


def test_adapters_in_another_order(tmp_path: Path) -> None:
    found = swap(tmp_path, "hca-order")
    assert len(found) == 8 and {d.part for d in found} == {"hca"}
    assert all(
        d.what.endswith(" name") and "gives adapters their names" in d.follows for d in found
    )


@pytest.mark.parametrize("fault, what", [("hca-firmware", "firmware"), ("vbios-odd", "vbios")])
def test_firmware_alone_is_told_as_that(tmp_path: Path, fault: str, what: str) -> None:
    place = f"={PLACE}" if fault == "vbios-odd" else "=mlx5_2"
    (found,) = swap(tmp_path, fault + place)
    assert found.what.endswith(f" {what}") and found.binding
