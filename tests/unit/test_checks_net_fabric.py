"""The fleet's own interface: up, whole frames, as fast as it can be."""

from __future__ import annotations

import pytest

from rackpin.checks import net_fabric
from rackpin.checks.base import Context
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from tests.unit import checks_samples, gpu_samples
from tests.unit import host_samples as samples
from tests.unit.test_checks_machine import judged

PASS, FAIL, WARN, NOT_RUN = Outcome.PASS, Outcome.FAIL, Outcome.WARN, Outcome.NOT_RUN


@pytest.fixture
def ctx(target: Target) -> Context:
    return checks_samples.context(target)


def net(ctx: Context, edits: dict[str, str] | None = None, **changes: str) -> Finding:
    link = samples.NET["link"]
    for old, new in (edits or {}).items():
        assert old in link
        link = link.replace(old, new)
    output = samples.sectioned(samples.NET, **{"link": link, **changes})
    (found,) = judged(ctx, net_fabric.CHECK, output)
    return found


@pytest.mark.parametrize(
    ("edits", "outcome", "named"),
    [
        ({"operstate=up": "operstate=down"}, FAIL, "host0 is down"),
        ({"operstate=up": "operstate="}, FAIL, "no interface host0"),
        ({"mtu=9000": "mtu=1400"}, WARN, "MTU 1400"),
        ({"mtu=9000": "mtu="}, NOT_RUN, "its MTU"),
        ({"duplex=full": "duplex=half"}, FAIL, "half duplex"),
        ({"speed=100000": "speed=25000"}, WARN, "it could 100000"),
        ({"speed=100000": "speed=1000"}, FAIL, "1000 Mb/s"),
        ({"speed=100000": "speed=-1"}, NOT_RUN, "its speed"),
        ({"\ndriver=mlx5_core": "", "speed=100000": "speed=10000"}, PASS, "virtual"),
    ],
)
def test_the_interface(ctx: Context, edits: dict[str, str], outcome: Outcome, named: str) -> None:
    found = net(ctx, edits)
    assert found.outcome is outcome and named in found.summary


def test_an_interface_that_is_not_there(ctx: Context) -> None:
    assert "no interface has 10.9.0.11" in net(ctx, interface="").summary
    assert "no address" in net(ctx, addresses="").summary
    broken = net(ctx, errors="rx_crc_errors=10\nrx_errors=10\ntx_errors=0")
    assert broken.outcome is WARN and broken.metrics["crc_errors_count"] == 10
    virtual = net(ctx, {"speed=100000": "speed=-1"}, place=samples.MACHINE)
    assert virtual.outcome is PASS and "speed not told" in virtual.summary


def test_engines_over_nodes_want_more_than_10g(target: Target) -> None:
    slow = {"speed=100000": "speed=10000"}
    found = net(gpu_samples.context(target, "rtx4090-2"), slow, modes="10000baseT/Full")
    assert found.outcome is WARN and "engines over several nodes" in found.summary
    assert net(gpu_samples.context(target, "h100-sxm-8"), slow, modes="").outcome is PASS
