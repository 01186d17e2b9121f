"""Every recorded output of the InfiniBand and RoCE tools against its index."""

from __future__ import annotations

import re

import pytest

from rackpin.parse.infiniband import read
from rackpin.parse.infiniband_model import Gid, Infiniband, Port
from tests.recorded.corpus import Sample, needs_corpus, samples

# What the thread or the caller knows beyond the text.
OUTSIDE = {"exit", "cause", "cause_of_thread", "fix"}
_ITEM = re.compile(r"(\S+/\d+)[:=](\S.*?)(?= \S+/\d+[:=]|$)")


def _port(port: Port, reading: Infiniband) -> str:
    layer = port.link_layer or "?"
    if reading.tool == "ibdev2netdev":
        return f"{port.netdev}:{port.state}"
    if reading.tool == "ibv_devinfo":
        firmware = {device.device: device.firmware for device in reading.devices}
        return f"{port.state}/mtu{port.active_mtu}/{layer}/fw{firmware[str(port.device)]}"
    rate = f"{port.rate_gbps}"
    if reading.tool == "ibstatus":
        rate = f"{port.rate_gbps} Gb/sec ({port.width} {port.speed})"
    return f"{port.state}/{port.physical}/{rate}/{layer}"


def _gid(gid: Gid) -> str:
    address = f"({gid.ipv4})" if gid.ipv4 else ""
    return f"{gid.device}/{gid.port}/{gid.index}:{gid.version}{address}@{gid.netdev}"


@needs_corpus
@pytest.mark.parametrize("sample", samples("infiniband"), ids=str)
def test_says_what_the_index_says(sample: Sample) -> None:
    reading = read(sample.text)
    ports = {f"{port.device}/{port.port}": _port(port, reading) for port in reading.ports}
    only = reading.ports[0] if len(reading.ports) == 1 else None
    device = reading.devices[0] if reading.devices else None
    for key, expected in sample.expect.items():
        if key in OUTSIDE:
            continue
        if key == "tool":
            assert reading.tool == expected.split(" (")[0]
        elif key == "ports":
            count, _, listed = expected.partition("; ")
            assert len(reading.ports) == int(count.split(" ")[0])
            if listed:
                assert dict(_ITEM.findall(listed)) == ports
        elif "/" in key:
            assert dict(_ITEM.findall(f"{key}={expected}")) == ports
        elif key == "gids":
            count, _, listed = expected.partition("; ")
            assert len(reading.gids) == int(count)
            assert not listed or listed.split(" ") == [_gid(gid) for gid in reading.gids]
        elif key == "right_gid_index":
            assert reading.right_gid_index == int(expected.split(" ")[0])
        elif key == "error":
            assert reading.errors
        elif key == "devices":
            assert len(reading.devices) == int(expected)
        elif key in ("hca", "fw"):
            assert device and expected == (device.device if key == "hca" else device.firmware)
        else:
            words = {"State": "state", "Physical state": "physical", "FEC": "fec"}
            assert getattr(only, words.get(key, key.lower())) == expected, key
    if "error" not in sample.expect:
        assert not reading.errors
    if "GID lines" not in sample.expect["tool"] and not reading.tool.startswith("mlxlink"):
        cut = "TRUNCATED" in sample.note or "error" in sample.expect
        assert (reading.complete is False) == (cut and bool(reading.devices or reading.ports))
