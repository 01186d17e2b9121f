"""The lab's description: every mistake at once; the subnet: free and stable."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from rackpin.inventory import ROOT
from rackpin.lab import machine, seed
from rackpin.lab.base import base_path
from rackpin.lab.description import Base, parse, read
from rackpin.lab.errors import DescriptionError, LabError
from rackpin.lab.machine import preflight
from rackpin.lab.network import (
    bridge_name,
    choose_addresses,
    fabric_bridge_name,
    fabric_port_name,
)
from rackpin.lab.state import HostState, LabState, control_boot_id, load, remembered


def test_the_lab_of_the_repository_is_right() -> None:
    lab = read(ROOT / "lab" / "lab.yaml")
    assert [(h.name, h.groups, h.sku) for h in lab.hosts] == [
        ("head1", ["head"], "lab-cpu"),
        ("worker1", ["workers"], "lab-cpu"),
        ("worker2", ["workers"], "lab-cpu"),
    ]
    assert not [p for p in lab.base.include if "python" in p or "gcc" in p], "bases are bare"


def test_every_mistake_is_listed_with_its_key() -> None:
    text = """
name: Bad_Name
subnet: 192.168.1.0/24
colour: blue
base: { suite: sid, include: [dbus] }
hosts:
  - { name: a, groups: [head], nics: 3 }
  - { name: a, groups: [wrokers], sku: lab-cpu }
  - { name: "-x", groups: [] }
"""
    with pytest.raises(DescriptionError) as caught:
        parse(text, "lab/mine.yaml")
    said = "\n".join(caught.value.problems)
    for key in (
        *("name:", "subnet:", "colour:", "base.suite:", "base.include:"),
        *("hosts.0.nics:", "hosts.1.groups.0:", "hosts.2.name:", "hosts.2.groups:"),
    ):
        assert f"\n{key}" in f"\n{said}", f"{key} is not in:\n{said}"
    assert "hosts: the name 'a' is given 2 times" in said
    assert "openssh-server" in said, "says what the base lacks"
    assert str(caught.value).startswith(f"lab/mine.yaml: {len(caught.value.problems)} mistake(s):")


@pytest.mark.parametrize("text", ["", "[]", "name: x", "name: x\nhosts: []", "a: b: c", "hosts: 3"])
def test_never_anything_but_a_lab_error(text: str) -> None:
    with pytest.raises(DescriptionError, match=r"lab\.yaml"):
        parse(text, "lab.yaml")


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"no\.yaml: No such file or directory: .*--file"):
        read(tmp_path / "no.yaml")


def test_the_name_can_be_another() -> None:
    text = "name: one\nhosts: [{name: a, groups: [head]}]"
    assert parse(text, "lab.yaml", "two").name == "two"
    with pytest.raises(DescriptionError, match="name:"):
        parse(text, "lab.yaml", "Two/..")


def test_another_description_of_the_base_is_another_base() -> None:
    assert base_path(Base()) == base_path(Base())
    assert base_path(Base()) != base_path(Base(components=["main"]))


def test_a_lab_keeps_its_subnet_and_two_labs_differ() -> None:
    one, again = choose_addresses("one", []), choose_addresses("one", [])
    assert one == again
    assert one.subnet.subnet_of(IPv4Network("10.86.0.0/16"))
    assert (one.control, one.host(0)) == (str(one.subnet[1]), str(one.subnet[11]))
    assert one.fabric_host(1) == str(one.fabric_subnet[12])
    other = choose_addresses("one", [one.subnet])
    assert not other.subnet.overlaps(one.subnet)


@pytest.mark.parametrize("taken", ["10.86.7.128/25", "10.87.7.1/32", "10.86.0.0/21"])
def test_a_preferred_subnet_counts_when_it_is_free(taken: str) -> None:
    wish = ["10.86.7.0/24"]
    assert str(choose_addresses("x", [], wish).subnet) == "10.86.7.0/24"
    default_route = [IPv4Network("0.0.0.0/0")]
    assert str(choose_addresses("x", default_route, wish).subnet) == "10.86.7.0/24"
    chosen = choose_addresses("x", [IPv4Network(taken)], wish)
    assert not chosen.subnet.overlaps(IPv4Network(taken))
    assert not chosen.fabric_subnet.overlaps(IPv4Network(taken))


def test_no_subnet_left() -> None:
    with pytest.raises(LabError, match="take another lab down"):
        choose_addresses("x", [IPv4Network("10.0.0.0/8")])


def test_link_names_fit_the_kernel() -> None:
    long = "a" * 32
    names = [bridge_name(long), fabric_bridge_name(long), fabric_port_name(long, 199)]
    assert all(len(name) <= 15 for name in names), names
    assert len(set(names)) == 3


def lab_state(directory: Path, **changes: str) -> LabState:
    host = HostState(
        name="head1",
        address="10.86.1.11",
        groups=["head"],
        sku="lab-cpu",
        machine="t-head1",
        directory=directory / "t" / "hosts" / "head1",
    )
    values = {
        "name": "t",
        "state": "up",
        "directory": directory / "t",
        "base": directory,
        "bridge": "rp-1",
        "subnet": "10.86.1.0/24",
        "control_address": "10.86.1.1",
        "fabric_bridge": "rpf-1",
        "fabric_subnet": "10.87.1.0/24",
        "hosts": [host],
        **changes,
    }
    return LabState.model_validate(values)


@pytest.mark.parametrize(
    ("changes", "is_up"),
    [({}, True), ({"state": "down"}, False), ({"control_boot_id": "an earlier boot"}, False)],
)
def test_a_lab_is_up_in_this_boot_or_not_at_all(
    tmp_path: Path, changes: dict[str, str], is_up: bool
) -> None:
    lab = lab_state(tmp_path, **{"control_boot_id": control_boot_id(), **changes})
    lab.save()
    assert remembered("t", tmp_path) == lab
    if is_up:
        assert load("t", tmp_path).host("head1").power == "off"
        with pytest.raises(LabError, match="it has: head1"):
            lab.host("head2")
    else:
        with pytest.raises(LabError, match="lab t is not up: run `rackpin lab up`"):
            load("t", tmp_path)


def test_no_lab_and_a_foreign_record(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="lab nolab is not up"):
        load("nolab", tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "lab.json").write_text('{"name": "old"}')
    with pytest.raises(LabError, match=r"lab\.json: .*lab down --purge --name old"):
        load("old", tmp_path)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("nameserver 10.0.0.2\n", None, "nameserver 10.0.0.2\n"),
        ("nameserver 127.0.0.53\n", "nameserver 10.0.0.3\n", "nameserver 10.0.0.3\n"),
        ("nameserver 127.0.0.53\n", None, None),
        ("search x\n", None, None),
    ],
)
def test_hosts_get_a_resolver_they_can_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str | None, expected: str
) -> None:
    files = tmp_path / "resolv.conf", tmp_path / "systemd"
    files[0].write_text(first)
    if second is not None:
        files[1].write_text(second)
    monkeypatch.setattr(seed, "RESOLV_CONFS", files)
    assert seed.resolv_conf(["10.9.9.9"]) == "nameserver 10.9.9.9\n"
    if expected:
        assert seed.resolv_conf() == expected
    else:
        with pytest.raises(LabError, match="nameservers: "):
            seed.resolv_conf()


def test_preflight_names_each_missing_package_once(monkeypatch: pytest.MonkeyPatch) -> None:
    have = {"systemd-nspawn", "ip", "unshare"}
    monkeypatch.setattr(machine, "KEYRING", Path("/nonexistent/keyring.gpg"))
    monkeypatch.setattr(machine.shutil, "which", lambda c: c if c in have else None)
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)
    assert preflight() == [
        "missing mmdebstrap: apt-get install mmdebstrap",
        "missing nft: apt-get install nftables",
        "missing ssh, ssh-keygen: apt-get install openssh-client",
        "missing /nonexistent/keyring.gpg: apt-get install debian-archive-keyring",
        "not root: run it with sudo (it mounts, and makes bridges and hosts)",
    ]


def test_preflight_says_what_to_do_where_nothing_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKPIN_LAB_STATE", str(tmp_path))
    monkeypatch.setattr(machine.shutil, "which", lambda c: c)
    monkeypatch.setattr(machine, "KEYRING", tmp_path)
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine, "hierarchies", list)
    monkeypatch.setattr(machine, "_run", lambda argv: "not permitted")
    assert [line.split(":")[0] for line in preflight()] == [
        "no new namespaces (not permitted)"  # the others can't even be asked
    ]
    monkeypatch.setattr(machine, "_run", lambda argv: "" if argv[-1] == "true" else "no module")
    problems = preflight()
    words = ("overlayfs", "control groups", "no bridges (no module)", "masquerade (no module)")
    assert [word for word, line in zip(words, problems, strict=True) if word not in line] == []
