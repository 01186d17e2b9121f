"""Shared by all tests: the ``--slow`` flag and a small fleet that needs no host."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from rackpin.desired import Target
from rackpin.inventory import Fleet, FleetConfig, Instance, Node
from rackpin.inventory_parts import AptPin, AptRepository
from rackpin.stack.lock import Lock, load_stack

# Started in the background, tests would hand an ignored ^C on to everything that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more of the machine's other work than of the code.
settings.register_profile("rackpin", deadline=None)
settings.load_profile("rackpin")

# A throw-away key made for these tests; nothing is signed with it.
APT_KEY = Path(__file__).parent / "unit" / "data" / "apt" / "key.asc"
APT_FINGERPRINT = "7B3D 2A91 0B71 4103 1EEE F10C 0D07 338E 8EE5 605F"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run kill storms and other long tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(scope="session")
def lock() -> Lock:
    """The lab's lock without its debs: pins are the inventory's alone."""
    return load_stack("cpu-lab").lock.but(debs_closure={})


@pytest.fixture
def key_file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "api-key"
    path.write_text("sk-test-0123456789abcdef\n")
    path.chmod(0o600)
    yield path


@pytest.fixture
def fleet(key_file: Path) -> Fleet:
    """head1 and worker1 share a TP=2 engine, worker2 has one of its own, gate1 serves nothing."""

    def node(name: str, number: int, group: str, gpus: int = 1) -> Node:
        return Node(name=name, groups=[group], address=f"10.9.0.{number}", sku="lab-cpu", gpus=gpus)

    nodes = [
        node("head1", 11, "head"),
        node("worker1", 12, "workers"),
        node("worker2", 13, "workers"),
        node("gate1", 14, "gateway", gpus=0),
    ]
    common = {"model": "/srv/models/tiny", "api_key_file": str(key_file), "max_model_len": 256}
    config = FleetConfig(
        fleet="test",
        stack="cpu-lab",
        wheelhouse_url="http://10.9.0.1:8900",
        instances=[
            Instance(name="two", nodes=["head1", "worker1"], served_name="two", tp=2, **common),
            Instance(name="one", nodes=["worker2"], served_name="one", **common),
        ],
        apt_repositories=[
            AptRepository(
                name="nvidia",
                uri="http://10.9.0.1:8901/nvidia",
                suite="/",
                key_file=str(APT_KEY),
                fingerprint=APT_FINGERPRINT,
            ),
            AptRepository(
                name="site",
                uri="file:///srv/debs",
                suite="stable",
                components=["main"],
                trusted=True,
            ),
        ],
        apt_pins=[
            AptPin(name="nvidia-utils-535", version="535.129.03-0ubuntu1", origin="nvidia"),
            AptPin(name="site-agent+x", version="1:2.0-1"),
        ],
    )
    return Fleet(config=config, nodes={n.name: n for n in nodes})


@pytest.fixture
def target(fleet: Fleet, lock: Lock) -> Target:
    return Target(fleet, fleet.nodes["head1"], lock, interface="host0")
