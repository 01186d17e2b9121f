"""The odd node among its siblings: numbers by MAD, words by majority; else silence."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpin.checks.base import Context, Output
from rackpin.desired import Target
from rackpin.findings import Outcome
from rackpin.lab.hardware import presets
from rackpin.verify.outliers import LIMIT_MADS, SIBLINGS, collect, finding, outliers
from rackpin.verify.siblings import Value
from tests.unit import checks_samples, gpu_samples, host_samples

Values = dict[str, dict[str, Value]]


def fleet(what: str, *values: Value) -> tuple[Values, dict[str, str]]:
    """One SKU, a node for each value."""
    named: Values = {f"n{i:02}": {what: value} for i, value in enumerate(values)}
    return named, dict.fromkeys(named, "h100")


def odd(what: str, *values: Value) -> dict[str, str]:
    return {one.node: one.value for one in outliers(*fleet(what, *values))}


def answers(target: Target, *faults: str) -> tuple[Context, dict[str, Output]]:
    ctx = gpu_samples.context(target, "h100-sxm-8")
    node = presets.node("head1", "h100-sxm-8", list(faults))
    return ctx, checks_samples.good(ctx) | gpu_samples.answers(ctx, node)


def test_the_odd_firmware_is_named() -> None:
    found = outliers(*fleet("hca.firmware", "28.39", "28.39", "28.36", "28.39"))
    assert [(one.node, one.value, one.usual, one.siblings) for one in found] == [
        ("n02", "28.36", "28.39", 4)
    ]
    assert found[0].distance is None and found[0].outcome is Outcome.WARN


def test_numbers_by_their_distance_and_not_by_noise() -> None:
    calm = (30.0, 31.0, 29.0, 33.0, 30.0, 28.0)
    assert not odd("gpu.rest_temperature_c", *calm)
    assert odd("gpu.rest_temperature_c", *calm, 52.0) == {"n06": "52"}
    assert odd("memory_gib", 2015.5, 2015.5, 1951.5, 2015.6) == {"n02": "1951.5"}  # one DIMM
    assert not odd("memory_gib", 2015.5, 2015.5, 2015.1, 2015.6)
    assert odd("net.mtu_bytes", 9000.0, 9000.0, 1500.0) == {"n02": "1500"}


def test_the_distance_is_in_deviations() -> None:
    found = outliers(*fleet("gpu.rest_temperature_c", 30.0, 30.0, 30.0, 60.0))
    assert found[0].distance == 15.0 and found[0].usual == "30 ± 0"


@pytest.mark.parametrize("values", [("a", "b"), ("a",), (), (1.0, 99.0)])
def test_fewer_than_three_say_nothing(values: tuple[Value, ...]) -> None:
    assert SIBLINGS == 3 and not odd("bios", *values)


def test_a_tie_has_no_majority_and_names_everyone() -> None:
    found = outliers(*fleet("bios", "1", "2", "1", "2"))
    assert [one.node for one in found] == ["n00", "n01", "n02", "n03"]
    assert all(one.usual == "no majority: 1 (2), 2 (2)" for one in found)


def test_what_one_does_not_tell_is_odd_and_silent_nodes_are_not_compared() -> None:
    values, skus = fleet("bios", "1", "1", "1")
    values["n03"], values["n04"] = {"kernel": "6.5"}, {}
    found = outliers(values, skus | {"n03": "h100", "n04": "h100"})
    assert [(one.node, one.value) for one in found] == [("n03", "not told")]


def test_skus_are_not_siblings() -> None:
    values, skus = fleet("bios", "1", "1", "2", "2")
    assert not outliers(values, skus | {"n02": "a100", "n03": "a100"})


def test_two_odd_things_of_one_node_are_both_named() -> None:
    values, skus = fleet("bios", "1", "1", "1", "2")
    for node, told in values.items():
        told["memory_gib"] = 100.0 if node == "n03" else 200.0
    assert [one.what for one in outliers(values, skus)] == ["bios", "memory_gib"]


def test_the_finding_lists_all_and_passes_only_with_siblings() -> None:
    values, skus = fleet("bios", *["1"] * 20, *[str(n) for n in range(2, 10)])
    found = outliers(values, skus)
    said = finding(found, skus)
    assert said.outcome is Outcome.WARN and "8 values" in said.summary and said.remedy
    assert all(one.node in said.evidence.output for one in found) and said.node == "fleet"
    assert finding([], skus).outcome is Outcome.PASS
    few = finding([], {"a": "x", "b": "x", "c": "y"})
    assert few.outcome is Outcome.NOT_RUN and not few.required and "x has 2" in few.summary
    assert finding([], {}).outcome is Outcome.NOT_RUN
    mixed = finding([], skus | {"z": "alone"})
    assert mixed.outcome is Outcome.PASS and "without siblings: alone" in mixed.summary


def test_collect_reads_a_healthy_node(target: Target) -> None:
    told = collect(*answers(target))
    assert told["hca.firmware"] == "8 × MT4129 28.39.1002"
    assert told["gpu.vbios"] == "96.00.74.00.01" and told["gpu.driver"] == "535.129.03"
    assert told["kernel.command_line"] == "iommu=pt ro"  # without this node's own disk
    assert told["bios"] == "1.4" and told["board"] == "X8 B1 2" and told["cpus_count"] == 192
    assert told["net.mtu_bytes"] == 9000 and told["sysctl.vm.swappiness"] == "1"
    assert told["memory_gib"] == pytest.approx(2015.5, abs=0.1)
    assert str(told["pci.map"]).startswith("8 cards, 8 adapters, map ")
    assert told["gpu.rest_temperature_c"] > 20 and told["gpu.rest_power_w"] > 50  # type: ignore[operator]
    assert len(told) > 40 and "" not in told.values()


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("hca-firmware", "hca.firmware"),
        ("vbios-odd", "gpu.vbios"),
        ("hca-missing", "pci.map"),
        ("hca-renamed", "hca.names"),
    ],
)
def test_a_fault_of_one_node_is_an_outlier(target: Target, fault: str, what: str) -> None:
    values = {f"n{i}": collect(*answers(target)) for i in range(3)}
    values["bad"] = collect(*answers(target, fault))
    found = outliers(values, dict.fromkeys(values, "h100-sxm-8"))
    assert {one.node for one in found} == {"bad"} and what in {one.what for one in found}


def test_a_node_at_work_tells_no_heat(target: Target) -> None:
    ctx, outputs = answers(target)
    outputs["gpu.smi"] = gpu_samples.altered(
        outputs["gpu.smi"], "<gpu_util>0 %</gpu_util>", "<gpu_util>93 %</gpu_util>", 1
    )
    told = collect(ctx, outputs)
    assert "gpu.rest_temperature_c" not in told and "gpu.vbios" in told


@pytest.mark.parametrize(
    "silence",
    [Output(rc=None), Output(rc=124), Output(rc=0), Output(rc=0, stdout="## x\n|||\nN/A\n## end\n"),
     Output(rc=1, stdout="refused")],
)  # fmt: skip
def test_what_did_not_come_is_not_told(target: Target, silence: Output) -> None:
    ctx, outputs = answers(target)
    assert collect(ctx, {}) == {}
    assert collect(ctx, dict.fromkeys(outputs, silence)) == {}


def test_garbled_sections_never_raise(target: Target) -> None:
    ctx, outputs = answers(target)
    for name in outputs:
        whole = outputs[name].stdout
        for cut in range(0, len(whole), max(1, len(whole) // 40)):
            collect(ctx, outputs | {name: replace(outputs[name], stdout=whole[:cut] + "\n## end")})


@given(st.lists(st.floats(1, 1e6), min_size=3, max_size=40))
def test_no_outlier_is_near_the_median(values: list[float]) -> None:
    assert all((one.distance or 0) >= LIMIT_MADS - 0.1 for one in outliers(*fleet("x_w", *values)))


def test_a_thousand_nodes_take_less_than_two_seconds(target: Target) -> None:
    told = collect(*answers(target))
    values = {f"n{i:04}": dict(told) for i in range(1000)}
    values["n0500"]["bios"] = "0.9"
    values["n0501"]["gpu.rest_power_w"] = 400.0
    skus = {node: f"sku{i % 3}" for i, node in enumerate(values)}
    start = time.monotonic()
    found = outliers(values, skus)
    said = finding(found, skus)
    assert time.monotonic() - start < 2
    assert {one.node for one in found} == {"n0500", "n0501"} and said.outcome is Outcome.WARN


def test_host_samples_are_read_whole() -> None:
    assert host_samples.answers()["host.state"].stdout.endswith("## end\n")
