"""Every preset, and every fault that can be had on it."""

from __future__ import annotations

import pytest

from rackpin.lab.errors import LabError
from rackpin.lab.hardware import presets
from rackpin.lab.hardware.faults import FAULTS
from rackpin.lab.hardware.model import Node

PRESETS = presets.names()


def possible(preset: str) -> list[str]:
    """Faults that this preset can have."""
    found = []
    for name in FAULTS:
        try:
            presets.node("gpu01", preset, [name])
        except LabError:
            continue
        found.append(name)
    return found


CASES = [(preset, fault) for preset in PRESETS for fault in ["", *possible(preset)]]
NEW = "driver=590.48.01"


def broken(preset: str, *faults: str, name: str = "gpu01") -> Node:
    """A node of a preset with faults; an empty name is no fault."""
    return presets.node(name, preset, [fault for fault in faults if fault])


every_case = pytest.mark.parametrize(("preset", "fault"), CASES)
