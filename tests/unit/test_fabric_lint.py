"""Every rule about NCCL's settings has a setting that breaks it, and its right value passes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rackpin.fabric.lint import CONF_VALUE_MAX, lint, table, variables
from rackpin.inventory_check import InventoryError, load_fleet
from rackpin.inventory_cli import check
from rackpin.inventory_nccl import hints
from tests.unit.test_inventory_check import STACKS, Raw, everywhere, on, raw

__all__ = ["raw"]  # a fixture
OLD, NEW = ["2.19.3"], ["2.27.5"]
# setting, releases, level, words of what is said or of the remedy
BROKEN = [
    ("NCCL_SOCKET_TIMEOUT=120", OLD, "wrong", "torch's"),
    ("NCCL_IB_GDR_LEVEL=2", OLD, "wrong", "NCCL_NET_GDR_LEVEL"),
    ("VLLM_TENSOR_PARALLEL_SIZE=4", OLD, "wrong", "`tp`"),
    ("NCCL_BLOCKING_WAIT=1", OLD, "hint", "TORCH_NCCL_BLOCKING_WAIT"),
    ("NCCL_P2P_DISABEL=1", OLD, "wrong", "NCCL_P2P_DISABLE?"),
    ("NCCL_SOMETHING_OF_A_PLUGIN=1", OLD, "hint", "doesn't read"),
    ("NCCL_SOCKET_IFNAM=eth0", [], "hint", "NCCL_SOCKET_IFNAME?"),
    ("NCCL_CONF_FILE=/etc/n.conf", OLD, "wrong", ">=2.23"),
    ("NCCL_AGG_CHANNEL_SIZE=1", NEW, "wrong", "<2.20.3"),
    ("NCCL_CONF_FILE=/etc/n.conf", [*OLD, *NEW], "hint", "2.19.3 doesn't read"),
    ("NCCL_IB_DISABLE=true", OLD, "wrong", "not a number"),
    ("NCCL_IB_TIMEOUT=22s", OLD, "wrong", "not a number"),
    ("NCCL_SOCKET_IFNAME='eth0'", OLD, "wrong", "quotes"),
    ("NCCL_DEBUG=INFO ", OLD, "wrong", "blanks"),
    ("NCCL_NET_GDR_LEVEL=pxb", OLD, "wrong", "no level pxb"),
    ("NCCL_P2P_LEVEL=NODE", OLD, "wrong", "no level NODE"),
    ("NCCL_P2P_LEVEL=LOC", OLD, "wrong", "NVLink"),
    ("NCCL_P2P_LEVEL=0", OLD, "wrong", "NVLink"),
    ("NCCL_NET_GDR_LEVEL=2", OLD, "hint", "default"),
    ("NCCL_NET_GDR_LEVEL=LOC", OLD, "hint", "off"),
    ("NCCL_NET_GDR_LEVEL=5", OLD, "hint", "SYS"),
    ("NCCL_P2P_DISABLE=0", OLD, "hint", "forces nothing"),
    ("NCCL_IB_DISABLE=0", OLD, "hint", "forces nothing"),
    ("NCCL_IB_DISABLE=1", OLD, "hint", "TCP"),
    ("NCCL_P2P_DISABLE=1", OLD, "hint", "NVLink"),
    ("NCCL_IB_HCA===mlx5_0", OLD, "wrong", "two ="),
    ("NCCL_SOCKET_IFNAME==eth0, eth1", OLD, "wrong", "blank"),
    ("NCCL_SOCKET_IFNAME=lo", OLD, "wrong", "loopback"),
    ("NCCL_SOCKET_IFNAME=eth", OLD, "hint", "beginning of a name"),
    ("NCCL_IB_HCA=mlx5_1", OLD, "hint", "mlx5_10"),
    ("NCCL_IB_GID_INDEX=-1", OLD, "wrong", "automatic"),
    ("NCCL_IB_GID_INDEX=3", NEW, "hint", "by itself"),
    ("NCCL_IB_GID_INDEX=0", OLD, "hint", "link-local"),
    ("NCCL_IB_TC=256", OLD, "wrong", "one byte"),
    ("NCCL_IB_SL=16", OLD, "wrong", "0 to 15"),
    ("NCCL_IB_TIMEOUT=120", OLD, "wrong", "not seconds"),
    ("NCCL_IB_RETRY_CNT=13", OLD, "wrong", "three bits"),
    ("NCCL_IB_PCI_RELAXED_ORDERING=3", OLD, "wrong", "0 is off"),
    ("NCCL_DEBUG=verbose", OLD, "wrong", "no level"),
    ("NCCL_DEBUG=TRACE", OLD, "hint", "every call"),
    ("NCCL_SOCKET_FAMILY=ipv4", OLD, "wrong", "AF_INET"),
    ("NCCL_IGNORE_NET_MISMATCH=1", ["2.30.7"], "hint", "hang"),
    ("NCCL_HOSTID=7", OLD, "hint", "each node"),
    ("NCCL_PROTO=LL128", OLD, "hint", "wrong sums"),
]
RIGHT = {
    "NCCL_IB_HCA": "=mlx5_0,mlx5_3",
    "NCCL_SOCKET_IFNAME": "=bond0",
    "NCCL_IB_GID_INDEX": "3",
    "NCCL_IB_TC": "106",
    "NCCL_IB_SL": "0",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_IB_RETRY_CNT": "7",
    "NCCL_NET_GDR_LEVEL": "PHB",
    "NCCL_P2P_LEVEL": "NVL",
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_IB_PCI_RELAXED_ORDERING": "1",
    "NCCL_SOCKET_FAMILY": "AF_INET",
    "NCCL_TOPO_FILE": "/etc/topo.xml",
    "NCCL_TESTS_MIN_BW": "400",
    "NCCL_IBEXT_DISABLE": "1",
    "NCCL_UCX_TLS": "dc,cuda",
    "OMP_NUM_THREADS": "true",
}


@pytest.mark.parametrize("setting, versions, level, words", BROKEN)
def test_a_broken_setting_is_named_with_its_remedy(
    setting: str, versions: list[str], level: str, words: str
) -> None:
    name, _, value = setting.partition("=")
    (fault,) = lint({name: value}, versions)
    assert (fault.level, fault.name) == (level, name)
    assert words in f"{fault.say}; {fault.remedy}"
    assert fault.source


def test_every_rule_has_a_broken_example() -> None:
    """A rule that nothing breaks would be no rule: each must speak for some example."""
    said = {fault.source + fault.remedy for s, v, _, _ in BROKEN for fault in _lint(s, v)}
    for rule in table("nccl-settings")["rules"]:
        assert rule["source"] + rule["remedy"] in said, rule["say"]


def _lint(setting: str, versions: list[str]) -> list[Any]:
    name, _, value = setting.partition("=")
    return lint({name: value}, versions)


def test_right_settings_pass() -> None:
    assert lint(RIGHT, OLD) == []


def test_a_value_that_nccl_conf_would_cut() -> None:
    value = "=" + ",".join(f"mlx5_{i}" for i in range(200))
    (fault,) = lint({"NCCL_IB_HCA": value}, OLD)
    assert str(CONF_VALUE_MAX) in fault.say


def test_rules_are_about_variables_that_exist() -> None:
    data = table("nccl-settings")
    for rule in data["rules"]:
        assert set(rule["names"]) <= set(variables()), rule["names"]
        assert rule["level"] in ("wrong", "hint")
    assert not set(data["absent"]) & set(variables())


@given(st.dictionaries(st.sampled_from(sorted(variables())), st.text(max_size=20), max_size=4))
def test_any_value_is_judged_alike_in_any_order(env: dict[str, str]) -> None:
    assert lint(env, OLD) == lint(dict(reversed(env.items())), OLD)


def problems(raw: Raw) -> list[tuple[str, str]]:
    with pytest.raises(InventoryError) as caught:
        load_fleet(copy.deepcopy(raw), STACKS)
    return [(p.node, p.key) for p in caught.value.problems]


def test_an_inventory_with_a_wrong_setting_is_refused(raw: Raw) -> None:
    on("gpu1", "env", {"NCCL_SOCKET_TIMEOUT": "120", "NCCL_IB_HCA": "mlx5"})(raw)
    assert problems(raw) == [("gpu1", "env.NCCL_SOCKET_TIMEOUT")]
    on("gpu1", "env", {})(raw)
    engines = copy.deepcopy(raw["gpu1"][1]["instances"])
    engines[1]["env"] = {"NCCL_P2P_LEVEL": "LOC"}
    everywhere("instances", engines)(raw)
    assert problems(raw) == [("fleet", "instances[small].env.NCCL_P2P_LEVEL")]


def test_the_stacks_release_decides(raw: Raw) -> None:
    on("gpu1", "env", {"NCCL_IB_GID_INDEX": "-1"})(raw)
    everywhere("stack", "r535-vllm0.19")(raw)  # NCCL 2.27.5
    assert load_fleet(copy.deepcopy(raw), STACKS)
    everywhere("stack", "cuda12.2-vllm0.4.2")(raw)
    with pytest.raises(InventoryError, match="automatic choice"):
        load_fleet(raw, ["cuda12.2-vllm0.4.2"])


def test_hints_fold_nodes_and_name_engines(raw: Raw) -> None:
    for node in ("gpu1", "gpu2"):
        on(node, "env", {"NCCL_IB_HCA": "mlx5"})(raw)
    on("gw1", "env", {"NCCL_DEBUG": "INFO"})(raw)
    engines = copy.deepcopy(raw["gpu1"][1]["instances"])
    engines[0]["env"] = {"NCCL_SOCKET_IFNAME": "=eth0"}
    everywhere("instances", engines)(raw)
    said = hints(load_fleet(raw, STACKS), OLD)
    assert said[0].startswith("gpu1, gpu2: NCCL_IB_HCA=mlx5 is the beginning of a name")
    assert any(s.startswith("gw1: ") and "without cards" in s for s in said)
    assert any(s.startswith("engine big: NCCL_SOCKET_IFNAME is a node's own") for s in said)


def test_the_command_prints_hints_before_its_last_line(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 64)
    key.chmod(0o600)
    file = tmp_path / "site.py"
    values = {
        "fleet": "x",
        "stack": "cuda12.2-vllm0.4.2",
        "wheelhouse_url": "http://10.0.0.2:8900",
        "sku": "h100-sxm-8",
        "address": "10.0.0.1",
        "env": {"NCCL_NET_GDR_LEVEL": "2"},
    }
    file.write_text(f'head = ["@fleet/gpu1"]\nall = (head, {values!r})\n')
    done = CliRunner().invoke(check, [str(file)])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[-2].startswith("hint: gpu1: NCCL_NET_GDR_LEVEL=2 is the default")
    assert lines[-1].startswith("OK: ")
    other = tmp_path / "other.py"  # pyinfra reads a file once in a process
    other.write_text(file.read_text().replace("NCCL_NET_GDR_LEVEL", "NCCL_SOCKET_TIMEOUT"))
    done = CliRunner().invoke(check, [str(other)])
    assert done.exit_code == 2 and "NCCL_SOCKET_TIMEOUT does nothing" in done.output
