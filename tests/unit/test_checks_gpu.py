"""GPU and fabric checks on simulated nodes: healthy ones pass, each fault is found by name."""

from __future__ import annotations

from itertools import combinations

import pytest

from rackpin.checks import fabric_nvlink, gpuinfo, judge, plan
from rackpin.checks.base import Output
from rackpin.desired import Target
from rackpin.findings import Outcome, is_ready
from rackpin.lab.hardware import presets
from rackpin.skus import load_sku
from tests.unit import checks_samples
from tests.unit import gpu_samples as samples
from tests.unit.hardware_samples import CASES, NEW, PRESETS, possible

FAIL, WARN, NOT_RUN = Outcome.FAIL, Outcome.WARN, Outcome.NOT_RUN
# Fault → the findings it must give wherever those are asked.
FOUND = {
    "gpu-missing": dict.fromkeys(("gpu.bus", "gpu.count", "gpu.modules", "fabric.nvlink"), FAIL),
    "off-bus": dict.fromkeys(("gpu.bus", "gpu.count", "gpu.xid"), FAIL),
    "gsp-timeout": dict.fromkeys(("gpu.count", "gpu.xid"), FAIL),
    "remap-pending": dict.fromkeys(("gpu.rows", "gpu.xid"), FAIL),
    "ecc-off": {"gpu.ecc": FAIL},
    "mig-on": {"gpu.mig": FAIL, "fabric.nvlink": NOT_RUN},
    "pcie-x8": {"gpu.pcie": FAIL},
    "vbios-odd": {"gpu.vbios": WARN},
    "hot": {"gpu.clocks": FAIL},
    "nvlink-down": {"fabric.nvlink": FAIL},
    "hang": {"gpu.count": NOT_RUN},
    "fm-off": {"fabric.manager": FAIL, "fabric.gpus": FAIL},
    "fm-mismatch": {"fabric.manager": FAIL, "fabric.gpus": FAIL},
    "hca-down": {"fabric.hcas": FAIL},
    "hca-renamed": {"fabric.hcas": WARN},
    "hca-ethernet": {"fabric.hcas": FAIL},
    "hca-firmware": {"fabric.hcas": WARN},
    "hca-errors": {"fabric.counters": FAIL},
    "hca-missing": {"fabric.hcas": FAIL, "fabric.map": WARN},
    "library-mismatch": {"gpu.count": FAIL, "gpu.driver": FAIL},
    "nouveau": dict.fromkeys(("gpu.count", "gpu.driver", "gpu.modules", "fabric.peermem"), FAIL)
    | {"fabric.manager": NOT_RUN},  # its version can't be compared with a driver's
    "not-installed": dict.fromkeys(("gpu.count", "fabric.manager"), NOT_RUN)
    | dict.fromkeys(("gpu.driver", "gpu.modules", "fabric.peermem"), FAIL),
    "driver": {"gpu.driver": FAIL},
    "no-cards": dict.fromkeys(("gpu.bus", "gpu.count", "gpu.modules"), FAIL),
}
# nvidia-smi lists no card at all: whatever is asked of cards can't be answered.
BLIND = (
    "off-bus",
    "gsp-timeout",
    "hang",
    "library-mismatch",
    "nouveau",
    "not-installed",
    "no-cards",
)
OF_CARDS = (
    *("gpu.model", "gpu.driver", "gpu.ecc", "gpu.rows", "gpu.pcie", "gpu.clocks", "gpu.mig"),
    *("gpu.persistence", "gpu.vbios", "fabric.gpus", "fabric.nvlink"),
)
OF_STAGES = ("nvswitch-missing", "acs-on", "iommu-on", "secure-boot", "kernel")
# Only a measurement or the node's recorded identity can show these, or a stage acts on them.
ELSEWHERE = (
    *("slow-link", "wrong-data", "sockets", "no-gdr", "rank-hang"),
    *("gpu-swapped", "hca-order", *OF_STAGES),
)
SEEN = [fault for fault in possible("h100-sxm-8") if fault in FOUND and fault not in BLIND]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("driver", ["535.129.03", "590.48.01"])
def test_a_healthy_node_passes_everything(target: Target, preset: str, driver: str) -> None:
    ctx = samples.context(target, preset, driver=driver)
    node = presets.node("head1", preset, [NEW] if driver.startswith("590") else [])
    found = samples.findings(ctx, samples.answers(ctx, node))
    assert not {name: one.summary for name, one in found.items() if one.outcome != "pass"}
    sku = load_sku(preset)
    assert {"fabric.manager"} & found.keys() == ({"fabric.manager"} if sku.gpus.nvswitch else set())
    assert ("fabric.nvlink" in found) == (sku.nvlink is not None)
    assert ("fabric.hcas" in found) == ("fabric.peermem" in found) == (sku.hcas is not None)
    assert len(found) >= 13


@pytest.mark.parametrize(("preset", "fault"), [case for case in CASES if case[1]])
def test_every_fault_gives_its_findings_and_no_others(
    target: Target, preset: str, fault: str
) -> None:
    found = samples.look(target, preset, fault)
    wanted = {} if fault in ELSEWHERE else dict(FOUND[fault])
    if fault in BLIND:
        wanted = dict.fromkeys(OF_CARDS, NOT_RUN) | wanted
    bad = samples.bad(found)
    if fault == "no-cards":  # nor can be told what lies between them and the adapters
        bad = {name: how for name, how in bad.items() if name in wanted or how is not NOT_RUN}
    assert bad == {name: how for name, how in wanted.items() if name in found}
    assert all(one.remedy and one.summary for one in found.values() if one.outcome != "pass")


@pytest.mark.parametrize(("one", "other"), [*combinations(SEEN, 2)])
def test_no_fault_hides_another(target: Target, one: str, other: str) -> None:
    # The last HCA can't count errors when it is the one that is missing.
    wished = [fault if fault != "hca-errors" else "hca-errors=mlx5_0" for fault in (one, other)]
    both = samples.bad(samples.look(target, "h100-sxm-8", *wished))
    for fault in (one, other):
        assert FOUND[fault].keys() <= both.keys()


@pytest.mark.parametrize(
    ("check", "faults", "named"),
    [
        ("gpu.ecc", ("ecc-off=1", "ecc-off=4"), ("3b:00.0", "9b:00.0")),
        ("gpu.pcie", ("pcie-x8=0", "pcie-x8=7"), ("19:00.0", "db:00.0")),
        ("gpu.vbios", ("vbios-odd=2", "vbios-odd=3"), ("4c:00.0", "5d:00.0")),
        ("gpu.mig", ("mig-on=2", "mig-on=3"), ("4c:00.0", "5d:00.0")),
        ("gpu.rows", ("remap-pending=2", "remap-pending=6"), ("4c:00.0", "cb:00.0")),
        ("gpu.clocks", ("hot=2", "hot=6"), ("4c:00.0", "cb:00.0")),
        ("gpu.xid", ("remap-pending=2", "off-bus=6"), ("Xid 63 on 0000:4c", "Xid 79 on 0000:cb")),
        ("gpu.bus", ("gpu-missing=2", "off-bus=6"), ("7 of 8", "0000:cb:00.0")),
        ("fabric.nvlink", ("nvlink-down=0", "nvlink-down=5"), ("GPU 0 has 17", "GPU 5 has 17")),
        ("fabric.hcas", ("hca-down=mlx5_0", "hca-ethernet=mlx5_3"), ("mlx5_0", "mlx5_3", "6 of 8")),
    ],
)
def test_two_faults_of_one_kind_are_both_named(
    target: Target, check: str, faults: tuple[str, ...], named: tuple[str, ...]
) -> None:
    found = samples.look(target, "h100-sxm-8", *faults)[check]
    assert found.outcome in (FAIL, WARN)
    assert all(words in found.summary for words in named), found.summary


def test_a_card_at_rest_may_lower_its_link(target: Target) -> None:
    ctx = samples.context(target, "l40s-8")
    outputs = samples.answers(ctx, presets.node("head1", "l40s-8"))
    assert "<current_link_gen>1<" in outputs[gpuinfo.SMI.name].stdout
    assert samples.findings(ctx, outputs)["gpu.pcie"].outcome is Outcome.PASS


@pytest.mark.parametrize("name", ["head1", "worker1", "gate1"])
def test_nodes_without_cards_are_asked_nothing_more(target: Target, name: str) -> None:
    ctx = checks_samples.context(target, name)
    asked = {command.name for command in plan(ctx)[0]}
    assert not [one for one in asked if one.startswith(("gpu.", "fabric."))]
    assert not [f for f in judge(ctx, {}) if f.check.startswith(("gpu.", "fabric."))]


def test_what_hangs_costs_its_deadline_once(target: Target) -> None:
    """All calls of nvidia-smi run beside each other, so the batch waits for one of them."""
    commands, broken = plan(samples.context(target, "h100-sxm-8"), samples.GPU_CHECKS)
    assert not broken
    smi = [command for command in commands if "nvidia-smi -q" in command.shell]
    smi += [command for command in commands if "nvidia-smi nvlink" in command.shell]
    assert {command.name for command in smi} == {gpuinfo.SMI.name, fabric_nvlink.STATE.name}
    assert all(command.slow and command.deadline_s <= 30 for command in smi)
    assert all(command.slow for command in commands if command.deadline_s > 20)
    assert len(commands) == 13


def test_unknown_hardware_is_not_run_with_a_way_out(target: Target) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    unknown = samples.Context(ctx.fleet, ctx.node.model_copy(update={"sku": "b300-9"}), ctx.lock)
    found = samples.findings(unknown, outputs)
    by_sku = {"gpu.model", "gpu.ecc", "gpu.pcie", "gpu.mig", "fabric.nvlink", "fabric.gpus"}
    assert samples.bad(found) == dict.fromkeys(by_sku, NOT_RUN)
    assert all("copy the nearest file of skus/" in found[name].remedy for name in by_sku)
    assert not is_ready(list(found.values()))


SILENT = {
    "deadline": Output(rc=124),
    "missing": Output(rc=127, stderr="sh: 1: nvidia-smi: not found"),
    "empty": Output(rc=0),
    "garbage": Output(rc=0, stdout="\x00\x01#!{]\n## \n= =\n<gpu>\n"),
    "an error text with status 0": Output(rc=0, stdout="Failed to connect to bus: No such file\n"),
    "refused": Output(rc=1, stderr="Permission denied"),
    "cut": Output(rc=0, stdout="## loaded\n", truncated=True),
}


@pytest.mark.parametrize("silence", SILENT)
def test_silence_of_one_command_or_all_is_never_ready(target: Target, silence: str) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    good = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    for name in good:
        assert not is_ready(list(samples.findings(ctx, {**good, name: SILENT[silence]}).values()))
    found = samples.findings(ctx, dict.fromkeys(good, SILENT[silence]))
    assert not [name for name, one in found.items() if one.outcome is Outcome.PASS]
    assert len(found) == 29


def test_a_lock_without_driver_is_a_warning(target: Target) -> None:
    ctx = samples.context(target, "rtx4090-2")
    outputs = samples.answers(ctx, presets.node("head1", "rtx4090-2"))
    lock = target.lock.but(host=ctx.lock.host.model_copy(update={"driver": None}))
    found = samples.findings(samples.Context(ctx.fleet, ctx.node, lock), outputs)["gpu.driver"]
    assert found.outcome is WARN and "pins no driver" in found.summary
