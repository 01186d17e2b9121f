"""What an inventory may say of a gateway, and each mistake in its own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackpin.inventory_check import load_fleet
from rackpin.inventory_read import Raw
from tests.unit.test_inventory_check import (
    STACKS,
    Change,
    engine,
    everywhere,
    groups,
    on,
    problems,
    raw,
)

__all__ = ["raw"]


def cases(tmp: Path) -> dict[str, tuple[list[Change], str, str, str]]:
    cert, key, odd = tmp / "c.pem", tmp / "k.pem", tmp / "odd.pem"
    cert.write_text("-----BEGIN CERTIFICATE-----\n")
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    key.chmod(0o644)
    odd.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    other = tmp / "other"
    other.write_text("x" * 40)
    other.chmod(0o600)

    def gate(**values: Any) -> list[Change]:
        return [everywhere("gateway", values)]

    same = engine(1, served_name="big", api_key_file=str(other))
    both = {"tls_cert": str(cert)}
    return {
        "not a number": (gate(port="x"), "fleet", "gateway.port", "integer"),
        "unknown": (gate(prot=1), "fleet", "gateway.prot", "unknown key"),
        "weight": ([engine(0, weight=-1)], "fleet", "instances[big].weight", "greater"),
        "reserved": ([engine(0, served_name="v1/x")], "fleet", "instances[big].served_name",
                     "path of the gateway's own"),
        "dots": ([engine(0, served_name="a/../b")], "fleet", "instances[big].served_name",
                 "can't be a path"),
        "two keys": ([same], "fleet", "instances[small].api_key_file", "different keys"),
        "taken": ([everywhere("extra_listeners", [8080])], "gw1", "gateway.port",
                  "8080 belongs to extra_listeners"),
        "engine's": ([groups("gpu2", "workers", "gateway"), *gate(port=8001)], "gpu2",
                     "gateway.port", "8001 belongs to instances[small].port"),
        "Ray's": ([groups("gpu2", "workers", "gateway"), *gate(port=6380)], "gpu2",
                  "gateway.port", "ray.ports.node_manager"),
        "half": (gate(**both), "fleet", "gateway.tls_key", "missing"),
        "open": (gate(**both, tls_key=str(key)), "fleet", "gateway.tls_key", "read by others"),
        "swapped": (gate(tls_cert=str(other), tls_key=str(odd)), "fleet", "gateway.tls_cert",
                    "no certificate"),
        "password": (gate(**both, tls_key=str(odd)), "fleet", "gateway.tls_key", "encrypted"),
        "nowhere": (gate(**both, tls_key="/no/key"), "fleet", "gateway.tls_key", "can't be read"),
    }  # fmt: skip


@pytest.mark.parametrize("name", [
    "not a number", "unknown", "weight", "reserved", "dots", "two keys", "taken", "engine's",
    "Ray's", "half", "open", "swapped", "password", "nowhere",
])  # fmt: skip
def test_a_mistake_is_named(raw: Raw, tmp_path: Path, name: str) -> None:
    changes, node, key, said = cases(tmp_path)[name]
    for change in changes:
        change(raw)
    found = [p for p in problems(raw).problems if (p.node, p.key) == (node, key)]
    assert found and said in found[0].message and found[0].remedy
    assert "xxxx" not in str(problems(raw))


def test_what_is_right_is_taken(raw: Raw, tmp_path: Path) -> None:
    cases(tmp_path)
    (tmp_path / "k.pem").chmod(0o600)
    tls = {"port": 443, "tls_cert": str(tmp_path / "c.pem"), "tls_key": str(tmp_path / "k.pem")}
    everywhere("gateway", tls)(raw)
    engine(1, served_name="org/big:1", weight=0)(raw)
    fleet = load_fleet(raw, STACKS)
    assert fleet.config.gateway.port == 443
    assert fleet.config.instances[1].weight == 0 and fleet.config.instances[0].weight == 1
    assert [node.name for node in fleet.gateways] == ["gw1"]


def test_names_and_keys_are_free_without_a_gateway(raw: Raw) -> None:
    groups("gw1", "monitoring")(raw)
    on("gw1", "sku", "cpu")(raw)
    engine(0, served_name="v1")(raw)
    assert load_fleet(raw, STACKS).gateways == []
