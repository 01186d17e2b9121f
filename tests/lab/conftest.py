"""Lab tests say that they are skipped where no lab can be; CI's machine can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.inventory import ROOT
from rackpin.lab import preflight
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from tests.lab.fleet import FIRST_RUN_S, FleetLab, booted

NAME = "test-fleet"


@pytest.fixture(scope="session", autouse=True)
def _a_machine_for_labs() -> None:
    missing = preflight()
    if missing:
        pytest.skip("no lab on this machine: " + "; ".join(missing))


@pytest.fixture(scope="session")
def fleet_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    """Three bare hosts, turned into a fleet by the same steps as bin/lab."""
    wheelhouse.build(load_stack("cpu-lab"), say=print)
    directory = Path(tmp_path_factory.mktemp("fleet"))
    with booted(ROOT / "lab" / "lab.yaml", NAME, directory) as site:
        site.first = site.run("site", deadline_s=FIRST_RUN_S)
        yield site
