"""Repositories and pins of an inventory: each mistake is named with its key and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackpin.inventory import Fleet
from rackpin.inventory_check import InventoryError, load_fleet
from tests.conftest import APT_FINGERPRINT, APT_KEY

SIGNED: dict[str, Any] = {
    "name": "nvidia",
    "uri": "https://mirror.example/nvidia",
    "suite": "/",
    "key_file": str(APT_KEY),
    "fingerprint": APT_FINGERPRINT,
}
PLAIN: dict[str, Any] = {
    "name": "site",
    "uri": "file:///srv/debs",
    "suite": "stable",
    "components": ["main"],
    "trusted": True,
}
PIN = {"name": "nvidia-utils-535", "version": "535.129.03-0ubuntu1", "origin": "nvidia"}


def load(**values: Any) -> Fleet:
    data = {
        "fleet": "test",
        "stack": "cpu-lab",
        "wheelhouse_url": "http://10.0.0.2:8900",
        "address": "10.0.0.11",
        "sku": "lab-cpu",
        "apt_repositories": [SIGNED, PLAIN],
        "apt_pins": [PIN],
        **values,
    }
    return load_fleet({"head1": (["head"], data)}, ["cpu-lab"])


def problem(**values: Any) -> tuple[str, str, str]:
    """Key, message and remedy of the one problem that there must be."""
    with pytest.raises(InventoryError) as caught:
        load(**values)
    (one,) = caught.value.problems
    return one.key, one.message, one.remedy


def signed(**values: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in {**SIGNED, **values}.items() if v is not None}, PLAIN]


def test_a_sound_one() -> None:
    config = load().config
    assert config.apt_repositories[0].key_file == str(APT_KEY)
    assert [pin.version for pin in config.apt_pins] == ["535.129.03-0ubuntu1"]
    assert load(apt_repositories=signed(fingerprint=APT_FINGERPRINT.replace(" ", "").lower()))


@pytest.mark.parametrize(
    ("change", "key", "word"),
    [
        ({"key_file": None, "fingerprint": None}, "key_file", '"trusted": True'),
        ({"fingerprint": None}, "fingerprint", "7B3D 2A91"),
        ({"fingerprint": "AB" * 20}, "fingerprint", "not the pinned ABAB"),
        ({"fingerprint": "8EE5605F"}, "fingerprint", "hex digits"),
        ({"key_file": "/no/such.asc"}, "key_file", "does not exist"),
        ({"key_file": __file__}, "key_file", "neither armored nor binary"),
        ({"trusted": True}, "trusted", "trusted without a key and has a key_file"),
        ({"uri": "ftp://x/y"}, "uri", "not one that apt can use"),
        ({"uri": "https://"}, "uri", "names no machine"),
        ({"uri": "http://x:99999/"}, "uri", "not an address"),
        ({"uri": "http://me:pw@mirror/"}, "uri", "auth.conf.d"),
        ({"uri": "file:srv"}, "uri", "no absolute directory"),
        ({"uri": "http://x/a b"}, "uri", "not one that apt can use"),
        ({"components": ["main"]}, "components", "has no components"),
        ({"suite": "stable"}, "components", "missing"),
        ({"name": "site"}, "name", "2 repositories have this name"),
    ],
)
def test_a_wrong_repository(change: dict[str, Any], key: str, word: str) -> None:
    where, message, remedy = problem(apt_repositories=signed(**change), apt_pins=[])
    name = change.get("name", "nvidia")
    assert where == f"apt_repositories[{name}].{key}"
    assert word in f"{message} {remedy}"


def test_the_same_repository_twice() -> None:
    twice = [*signed(), {**SIGNED, "name": "again", "uri": "https://mirror.example/nvidia/"}]
    key, message, _ = problem(apt_repositories=twice)
    assert key == "apt_repositories[again].uri" and "is nvidia already" in message


@pytest.mark.parametrize(
    ("value", "key", "word"),
    [
        ([{**PIN, "version": "535.*"}], "apt_pins[0].version", "no * in it"),
        ([{**PIN, "origin": "nvida"}], "apt_pins[nvidia-utils-535].origin", "mean 'nvidia'"),
        ([PIN, PIN], "apt_pins[nvidia-utils-535]", "2 pins"),
        ([{"name": "x1"}], "apt_pins[0].version", "missing"),
        ([{**PIN, "verson": "1"}], "apt_pins[0].verson", "did you mean `version`"),
        ([{**PIN, "name": "nvidia-*"}], "apt_pins[0].name", "a Debian package's name"),
    ],
)  # fmt: skip
def test_a_wrong_pin(value: list[dict[str, str]], key: str, word: str) -> None:
    where, message, remedy = problem(apt_pins=value)
    assert where == key and word in f"{message} {remedy}"


def test_other_values_and_keys() -> None:
    key, message, _ = problem(apt_proxy="http://me:pw@proxy:3128")
    assert key == "apt_proxy" and "password" in message and "pw" not in message.split()
    key, _, remedy = problem(apt_repositories=signed(urii="http://x"))
    assert key == "apt_repositories[0].urii" and "`uri`" in remedy
    key, _, remedy = problem(fingerprint="x")
    assert key == "fingerprint" and "an entry of `apt_repositories`" in remedy


def test_a_key_beside_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "nv.asc").write_bytes(APT_KEY.read_bytes())
    inventory = tmp_path / "inventory.py"
    inventory.write_text("")
    data = {
        "fleet": "test",
        "stack": "cpu-lab",
        "wheelhouse_url": "http://10.0.0.2:8900",
        "address": "10.0.0.11",
        "sku": "lab-cpu",
        "apt_repositories": signed(key_file="keys/nv.asc"),
    }
    fleet = load_fleet({"head1": (["head"], data)}, ["cpu-lab"], str(inventory))
    assert fleet.config.apt_repositories[0].key_file == str(tmp_path / "keys" / "nv.asc")
