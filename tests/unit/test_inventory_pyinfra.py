"""Inventories as pyinfra itself loads and merges them; nothing is connected to."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner

from rackpin.inventory import ROOT
from rackpin.inventory_check import InventoryError, fleet_from_file
from rackpin.inventory_cli import INVALID, inventory
from rackpin.lab.state import HostState, LabState

INVENTORY = """
head = [("@fleet/head1", {"address": "10.0.0.10", "sku": "cpu"})]
workers = (
    [
        ("@fleet/gpu1", {"address": "10.0.0.11"}),
        ("@fleet/gpu2", {"address": "10.0.0.12", "gpus": 4}),
    ],
    {"sku": "h100-sxm-8", "min_free_gb": 60},
)
all = (
    [*head, *workers[0]],
    {"fleet": "site", "stack": "cpu-lab", "wheelhouse_url": "http://10.0.0.2:8900"},
)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory at a path of its own: pyinfra keeps compiled files by name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rackpin.inventory_check.stack_names", lambda: ["cpu-lab"])
    path = tmp_path / "site.py"
    path.write_text(INVENTORY)
    return path


def group_data(site: Path, group: str, text: str) -> None:
    folder = site.parent / "group_data"
    folder.mkdir(exist_ok=True)
    (folder / f"{group}.py").write_text(textwrap.dedent(text))


def test_groups_hosts_and_data_arrive(site: Path) -> None:
    fleet = fleet_from_file(str(site))
    assert list(fleet.nodes) == ["head1", "gpu1", "gpu2"]
    assert fleet.nodes["gpu1"].groups == ["workers"]  # neither "all", "site" nor "@fleet"
    assert (fleet.nodes["gpu1"].gpus, fleet.nodes["gpu2"].gpus) == (8, 4)
    assert fleet.nodes["gpu2"].min_free_gb == 60
    assert fleet.nodes["head1"].min_free_gb == 20


def test_data_of_the_command_line_wins_and_is_parsed(site: Path) -> None:
    fleet = fleet_from_file(str(site), {"fleet": "other", "ray": {"num_cpus": "4"}})
    assert (fleet.config.fleet, fleet.config.ray.num_cpus) == ("other", 4)


# What wins in pyinfra 3.10, and what docs/inventory.md therefore says.
def test_group_data_all_wins_over_the_all_tuple(site: Path) -> None:
    group_data(site, "all", 'fleet = "from-group-data"')
    assert fleet_from_file(str(site)).config.fleet == "from-group-data"


def test_a_group_wins_over_group_data_all(site: Path) -> None:
    group_data(site, "all", "min_free_gb = 1")
    nodes = fleet_from_file(str(site)).nodes
    assert (nodes["head1"].min_free_gb, nodes["gpu1"].min_free_gb) == (1, 60)


def test_group_data_of_a_group_wins_over_its_tuple(site: Path) -> None:
    group_data(site, "workers", "min_free_gb = 2")
    assert fleet_from_file(str(site)).nodes["gpu1"].min_free_gb == 2


def test_group_data_named_like_the_file_wins_over_every_group(site: Path) -> None:
    group_data(site, "workers", "min_free_gb = 2")
    group_data(site, "site", "min_free_gb = 3")
    assert {n.min_free_gb for n in fleet_from_file(str(site)).nodes.values()} == {3}


def test_a_host_wins_over_all_files(site: Path) -> None:
    group_data(site, "site", "gpus = 1")
    assert fleet_from_file(str(site)).nodes["gpu2"].gpus == 4


def test_a_helper_of_group_data_is_named(site: Path) -> None:
    group_data(site, "all", '_where = "x"')
    with pytest.raises(InventoryError, match="`__all__` leaves it out"):
        fleet_from_file(str(site))


def test_a_host_that_all_forgets_is_named(site: Path) -> None:
    site.write_text(INVENTORY + 'gateway = ["@fleet/gw1"]\n')
    with pytest.raises(InventoryError) as caught:
        fleet_from_file(str(site))
    assert [
        (p.key, "@fleet/gw1 is in the list `gateway`" in p.message) for p in caught.value.problems
    ]
    assert "drops it without a word" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("head = [\n", "site.py:1"),
        ("import nowhere_at_all\n", "site.py:1"),
        ("\n\nx = 1 / 0\n", "ZeroDivisionError"),
        ('head = ["@flet/head1"]\n', "Invalid connector: flet"),
        ("x = 1\n", "there is no host in it"),
    ],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "site.py"  # in full: pyinfra keeps compiled files by name
    path.write_text(text)
    result = CliRunner().invoke(inventory, ["check", str(path)])
    assert result.exit_code == INVALID
    assert words in result.output and "Traceback" not in result.output


def test_check_prints_the_nodes(site: Path) -> None:
    result = CliRunner().invoke(inventory, ["check", str(site), "--data", "fleet=night"])
    assert result.exit_code == 0, result.output
    assert "OK: " in result.output and "fleet night" in result.output
    assert "gpu2" in result.output


def test_check_fails_with_all_problems(site: Path) -> None:
    result = CliRunner().invoke(inventory, ["check", str(site), "--data", "sku=x", "--data", "a=1"])
    assert result.exit_code == INVALID
    assert "3 problems" not in result.output and "2 problems" in result.output
    assert "all 3 nodes · sku" in result.output and "all 3 nodes · a" in result.output


@pytest.mark.parametrize(
    "arguments", [["check"], ["check", "no.py"], ["check", "/", "--data", "x"]]
)
def test_bad_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(inventory, arguments).exit_code == 2


def lab_state(root: Path, hosts: dict[str, str], power: Literal["up", "down"] = "up") -> Path:
    """What a lab called `two` says about itself, and its files."""
    folder = root / "two"
    lab = LabState(
        name="two",
        state=power,
        directory=folder,
        base=root / "base",
        bridge="br-two",
        subnet="10.86.2.0/24",
        control_address="10.86.2.1",
        fabric_bridge="fb-two",
        fabric_subnet="10.87.2.0/24",
        hosts=[
            HostState(
                name=name,
                address=f"10.86.2.{number}",
                groups=[group],
                sku="lab-cpu",
                machine=f"two-{name}",
                directory=folder / name,
                data={"gpus": 0} if group == "gateway" else {},
            )
            for number, (name, group) in enumerate(hosts.items(), 11)
        ],
    )
    lab.save()
    for name in ("api-key", "id_ed25519", "known_hosts"):
        (folder / name).write_text("x\n")
        (folder / name).chmod(0o600)
    return folder


THREE = {"head1": "head", "worker1": "workers", "worker2": "workers"}


def test_lab_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKPIN_LAB", "two")
    monkeypatch.setenv("RACKPIN_LAB_STATE", str(tmp_path))
    folder = lab_state(tmp_path, {**THREE, "gw1": "gateway"})
    fleet = fleet_from_file(str(ROOT / "inventories" / "lab.py"))
    assert fleet.config.fleet == "two"
    assert fleet.config.wheelhouse_url == "http://10.86.2.1:8900"
    assert fleet.head.address == "10.86.2.11"
    assert fleet.nodes["gw1"].gpus == 0
    assert [(i.name, i.nodes, i.executor) for i in fleet.config.instances] == [
        ("tiny-tp2", ["head1", "worker1"], "ray"),
        ("tiny-one", ["worker2"], "local"),
    ]
    assert {i.api_key_file for i in fleet.config.instances} == {str(folder / "api-key")}


@pytest.mark.parametrize(
    ("hosts", "engines"),
    [({"head1": "head"}, []), ({"head1": "head", "worker1": "workers"}, ["tiny-tp2"])],
)
def test_a_smaller_lab_serves_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: dict[str, str], engines: list[str]
) -> None:
    monkeypatch.setenv("RACKPIN_LAB", "two")
    monkeypatch.setenv("RACKPIN_LAB_STATE", str(tmp_path))
    lab_state(tmp_path, hosts)
    fleet = fleet_from_file(str(ROOT / "inventories" / "lab.py"))
    assert [i.name for i in fleet.config.instances] == engines


@pytest.mark.parametrize("known", [False, True])
def test_a_lab_that_is_not_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    monkeypatch.setenv("RACKPIN_LAB", "two")
    monkeypatch.setenv("RACKPIN_LAB_STATE", str(tmp_path))
    if known:
        lab_state(tmp_path, THREE, power="down")
    result = CliRunner().invoke(inventory, ["check", str(ROOT / "inventories" / "lab.py")])
    assert result.exit_code == INVALID
    assert "1 problem" in result.output and "lab two is not up" in result.output
    assert "rackpin lab up" in result.output


def prod_site(folder: Path) -> None:
    """What an operator has beside the repository."""
    for name in ("api-key", "id_ed25519", "known_hosts", "ssh_config"):
        (folder / name).write_text("x\n")
        (folder / name).chmod(0o600)


def test_prod_is_right_but_for_a_stack_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prod_site(tmp_path)
    monkeypatch.setenv("RACKPIN_SITE", str(tmp_path))
    file = str(ROOT / "inventories" / "prod.py")
    if (ROOT / "stacks" / "r535-vllm0.19" / "pins.yaml").is_file():
        fleet = fleet_from_file(file)
        assert len(fleet.ray_nodes) == 5
        return
    with pytest.raises(InventoryError) as caught:
        fleet_from_file(file)
    assert [(p.node, p.key) for p in caught.value.problems] == [("fleet", "stack")]


def test_prod_with_a_known_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prod_site(tmp_path)
    monkeypatch.setenv("RACKPIN_SITE", str(tmp_path))
    monkeypatch.setattr("rackpin.inventory_check.stack_names", lambda: ["r535-vllm0.19"])
    fleet = fleet_from_file(str(ROOT / "inventories" / "prod.py"))
    assert fleet.nodes["gpu003"].fabric_interface == "ens1f0np0"
    assert (fleet.nodes["gpu001"].gpus, fleet.nodes["gpu004"].gpus) == (8, 4)
    assert {i.executor for i in fleet.config.instances} == {"local", "ray"}
    assert fleet.nodes["mon1"].groups == ["monitoring"]


def test_prod_on_a_machine_that_has_nothing_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKPIN_SITE", str(tmp_path / "none"))
    with pytest.raises(InventoryError) as caught:
        fleet_from_file(str(ROOT / "inventories" / "prod.py"))
    keys = {p.key for p in caught.value.problems}
    assert {"ssh_key", "ssh_config_file", "ssh_known_hosts_file"} < keys
    assert f"openssl rand -hex 32 > {tmp_path}/none/api-key" in str(caught.value)


def test_pyinfra_shows_the_problems_once_and_connects_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text(INVENTORY.replace("10.0.0.12", "10.0.0.11"))
    run = subprocess.run(
        [sys.executable, "-m", "pyinfra", "site.py", "exec", "--", "true"],
        cwd=tmp_path,
        env={**os.environ, "PYINFRA_PROGRESS": "off"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    text = run.stdout + run.stderr
    assert run.returncode == 1
    assert text.count("'10.0.0.11' is also the address of gpu1") == 1, text
    assert "in site.py" in text and "Traceback" not in text
