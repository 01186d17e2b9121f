"""Answers that look right and aren't: each check's own, and any damage."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackpin.checks.base import Output
from rackpin.desired import Target
from rackpin.findings import Outcome, is_ready
from rackpin.lab.hardware import presets
from tests.unit import gpu_samples as samples

PASS, FAIL, WARN, NOT_RUN = Outcome.PASS, Outcome.FAIL, Outcome.WARN, Outcome.NOT_RUN
SMI, KERNEL, LINKS = "gpu.smi", "gpu.kernel", "fabric.nvlink"
GEN = "<current_link_gen>5</current_link_gen>"
SLOW = (GEN, "<current_link_gen>1</current_link_gen>")
WORK = ("<gpu_util>0 %</gpu_util>", "<gpu_util>93 %</gpu_util>")
CAP = "clocks_event_reason_sw_power_cap"
CAPPED = (f"<{CAP}>Not Active</{CAP}>", f"<{CAP}>Active</{CAP}>")
BRAKE = "clocks_event_reason_hw_power_brake_slowdown"
DRAM = "<dram_uncorrectable>0</dram_uncorrectable>"
FW = "/sys/class/infiniband/mlx5_3/fw_ver:28.39.1002\n"
Edit = tuple[str, str]


def tag(name: str, old: str, new: str) -> Edit:
    return f"<{name}>{old}</{name}>", f"<{name}>{new}</{name}>"


# check, command, first place changed (all: ALL), outcome, what the summary names.
ALL, ONE = -1, 1
CASES: list[tuple[str, str, int, list[Edit], Outcome, str]] = [
    ("gpu.model", SMI, ONE, [tag("product_name", "NVIDIA H100 80GB HBM3", "N/A")], NOT_RUN, "19:"),
    ("gpu.model", SMI, ONE, [("H100 80GB HBM3<", "H100 PCIe<")], FAIL, "NVIDIA H100 PCIe"),
    ("gpu.count", SMI, ONE, [tag("attached_gpus", "8", "9")], NOT_RUN, "8 of 9"),
    ("gpu.count", SMI, ONE, [("</nvidia_smi_log>", "")], NOT_RUN, "not whole"),
    ("gpu.count", SMI, ONE, [tag("minor_number", "0", "ERR!")], FAIL, "answers with errors"),
    ("gpu.driver", SMI, ONE, [tag("driver_version", "535.129.03", "N/A")], FAIL, "N/A"),
    ("gpu.driver", SMI, ONE, [tag("driver_version", "535.129.03", "535.54.03")], FAIL, "535.54.03"),
    ("gpu.driver", KERNEL, ONE, [("Kernel Module  535.129.03", "Kernel Module ")], FAIL, "loaded"),
    ("gpu.driver", KERNEL, ONE, [("libcuda.so.535.129", "libcuda.so.550.54")], FAIL, "libcuda"),
    ("gpu.driver", KERNEL, ONE, [("## disk\n535.129.03", "## disk")], FAIL, "after a reboot"),
    ("gpu.modules", KERNEL, ONE, [("/dev/nvidia3\n", "")], FAIL, "7 of 8"),
    ("gpu.modules", KERNEL, ONE, [("/dev/nvidiactl\n", "")], FAIL, "nvidiactl"),
    ("gpu.modules", KERNEL, ONE, [("nvidia_uvm 1523712", "snd 1")], WARN, "nvidia_uvm"),
    ("gpu.modules", KERNEL, ONE, [("nvidia_drm 77824", "nouveau 77824")], FAIL, "nouveau"),
    ("gpu.modules", KERNEL, ONE, [("## end\n", "")], NOT_RUN, "not whole"),
    ("gpu.ecc", SMI, ONE, [tag("current_ecc", "Enabled", "N/A")], NOT_RUN, "19:00.0"),
    ("gpu.ecc", SMI, ONE, [(DRAM, "<dram_uncorrectable>N/A</dram_uncorrectable>")], NOT_RUN, "19:"),
    ("gpu.ecc", SMI, ONE, [tag("sram_uncorrectable_parity", "0", "ERR!")], NOT_RUN, "19:"),
    ("gpu.ecc", SMI, ONE, [(DRAM, "")], NOT_RUN, "uncorrectable"),
    ("gpu.ecc", SMI, ONE, [(DRAM, "<dram_uncorrectable>3</dram_uncorrectable>")], FAIL, "3 dram"),
    ("gpu.ecc", SMI, ONE, [tag("pending_ecc", "Enabled", "Disabled")], FAIL, "next reset"),
    ("gpu.ecc", SMI, ONE, [tag("sram_threshold_exceeded", "No", "Yes")], FAIL, "threshold"),
    ("gpu.rows", SMI, ONE, [tag("remapped_row_pending", "No", "N/A")], NOT_RUN, "19:00.0"),
    ("gpu.rows", SMI, ONE, [tag("remapped_row_failure", "No", "Yes")], FAIL, "could not replace"),
    ("gpu.rows", SMI, ONE, [tag("reset_required", "No", "Yes")], FAIL, "recovered"),
    ("gpu.rows", SMI, ONE, [("<fabric>", "<gpu_recovery_action>N/A</gpu_recovery_action><fabric>")],
     PASS, ""),
    ("gpu.rows", SMI, ONE, [("<fabric>", "<gpu_recovery_action>Reboot</gpu_recovery_action>"
     "<fabric>")], FAIL, "Reboot"),
    ("gpu.rows", SMI, ONE, [("</aggregate>", "</aggregate><channel_repair_pending>Yes"
     "</channel_repair_pending>")], FAIL, "channel_repair"),
    ("gpu.mig", SMI, ONE, [tag("current_mig", "Disabled", "N/A")], NOT_RUN, "19:00.0"),
    ("gpu.mig", SMI, ONE, [tag("pending_mig", "Disabled", "Enabled")], FAIL, "next reset"),
    ("gpu.persistence", SMI, ONE, [tag("persistence_mode", "Enabled", "N/A")], NOT_RUN, "19:00.0"),
    ("gpu.persistence", SMI, ONE, [tag("persistence_mode", "Enabled", "Disabled")], WARN, "is off"),
    ("gpu.pcie", SMI, ONE, [tag("current_link_width", "16x", "N/A")], NOT_RUN, "width"),
    ("gpu.pcie", SMI, ONE, [tag("max_link_gen", "5", "N/A")], NOT_RUN, "highest speed"),
    ("gpu.pcie", SMI, ONE, [tag("max_link_gen", "5", "3")], FAIL, "limited to PCIe Gen3"),
    ("gpu.pcie", SMI, ONE, [tag("current_link_gen", "5", "N/A")], NOT_RUN, "speed"),
    ("gpu.pcie", SMI, ONE, [SLOW], WARN, "Gen1, not Gen5, in P0"),
    ("gpu.pcie", SMI, ONE, [SLOW, tag("gpu_util", "0 %", "2 %")], WARN, "Gen1, not Gen5, in P0"),
    ("gpu.pcie", SMI, ONE, [SLOW, WORK], FAIL, "Gen1, not Gen5, at work"),
    ("gpu.pcie", SMI, ONE, [SLOW, tag("performance_state", "P0", "P8")], PASS, ""),
    ("gpu.pcie", SMI, ONE, [SLOW, tag("performance_state", "P0", "N/A")], NOT_RUN, "at rest"),
    ("gpu.clocks", SMI, ALL, [("clocks_event_reason_hw", "reason_hw")], NOT_RUN, "hw_thermal"),
    ("gpu.clocks", SMI, ALL, [("clocks_event_reason", "clocks_throttle_reason")], PASS, ""),
    ("gpu.clocks", SMI, ONE, [tag(BRAKE, "Not Active", "Active")], FAIL, "power supply"),
    ("gpu.clocks", SMI, ONE, [tag(BRAKE, "Not Active", "N/A")], NOT_RUN, "hw_power_brake"),
    ("gpu.clocks", SMI, ONE, [CAPPED], WARN, "power limit"),
    ("gpu.clocks", SMI, ONE, [CAPPED, WORK], PASS, ""),
    ("gpu.clocks", SMI, ONE, [CAPPED, tag("gpu_util", "0 %", "N/A")], WARN, "power limit"),
    ("gpu.clocks", SMI, ONE, [tag("current_power_limit", "700.00 W", "350.00 W")], WARN, "350"),
    ("gpu.vbios", SMI, ONE, [tag("vbios_version", "96.00.74.00.01", "N/A")], NOT_RUN, "N/A"),
    ("fabric.gpus", SMI, ONE, [tag("status", "Success", "N/A")], NOT_RUN, "19:00.0"),
    ("fabric.gpus", SMI, ONE, [tag("state", "Completed", "N/A")], NOT_RUN, "19:00.0"),
    ("fabric.gpus", SMI, ONE, [tag("status", "Success", "Insufficient Resources")], FAIL, "joined"),
    ("fabric.manager", "fabric.manager", ONE, [(" version is :", "")], NOT_RUN, "versions"),
    ("fabric.manager", "fabric.manager", ONE, [("LoadState=loaded", "LoadState=not-found")], FAIL,
     "not installed"),
    ("fabric.manager", "fabric.manager", ONE, [("ActiveState=active", "")], NOT_RUN, "systemctl"),
    ("fabric.manager", KERNEL, ONE, [("Module  535.129", "Module  535.54")], FAIL, "535.54.03"),
    (LINKS, LINKS, ONE, [("\t Link 17: 26.562 GB/s\n", "")], FAIL, "GPU 0 has 17 of 18"),
    (LINKS, LINKS, ONE, [("Link 4: 26.562 GB/s", "Link 4: <inactive>")], FAIL, "down: 4"),
    (LINKS, LINKS, ALL, [(": 26.562 GB/s", ": <inactive>")], FAIL, "GPU 5 has 0 of 18"),
    (LINKS, LINKS, ONE, [("Link 4: 26.562", "Link 4: 25")], WARN, "several speeds"),
    ("fabric.hcas", "fabric.hcas", ONE, [("400 Gb/sec", "200 Gb/sec")], FAIL, "200 of 400"),
    ("fabric.hcas", "fabric.hcas", ONE, [("link_layer:InfiniBand", "link_layer:")], FAIL, "layer"),
    ("fabric.hcas", "fabric.hcas", ONE, [(FW, "")], NOT_RUN, "mlx5_3"),
    ("fabric.hcas", "fabric.hcas", ONE, [("4: ACTIVE", "2: INIT")], FAIL, "INIT"),
    ("fabric.hcas", "fabric.hcas", ONE, [("\nend\n", "\n")], NOT_RUN, "not whole"),
    ("fabric.peermem", KERNEL, ONE, [("nvidia_peermem ", "snd ")], FAIL, "host's memory"),
    ("gpu.bus", "gpu.bus", ONE, [("(rev a1)\n0000:3b:00.0", "(rev a1)\n#")], FAIL, "7 of 8"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "command", "times", "edits", "outcome", "named"), CASES)
def test_lies(
    target: Target,
    check: str,
    command: str,
    times: int,
    edits: list[Edit],
    outcome: Outcome,
    named: str,
) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    for old, new in edits:
        outputs[command] = samples.altered(outputs[command], old, new, times)
    found = samples.findings(ctx, outputs)[check]
    assert (found.outcome, found.required) == (outcome, True), found.summary
    assert named in found.summary or outcome is PASS


def test_seven_of_eight_with_a_clean_status(target: Target) -> None:
    """One card is left out of the list, and the list says seven of itself."""
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    whole = outputs["gpu.smi"].stdout
    start, end = whole.index("<gpu id"), whole.index("</gpu>") + len("</gpu>")
    seven = (whole[:start] + whole[end:]).replace("<attached_gpus>8<", "<attached_gpus>7<")
    outputs["gpu.smi"] = replace(outputs["gpu.smi"], stdout=seven)
    found = samples.findings(ctx, outputs)
    assert (found["gpu.count"].outcome, found["gpu.bus"].outcome) == (FAIL, PASS)
    assert "lists 7 of 8" in found["gpu.count"].summary
    twice = whole[:end] + whole[start:end] + whole[whole.index("</gpu>", end) + len("</gpu>") :]
    outputs["gpu.smi"] = replace(outputs["gpu.smi"], stdout=twice)
    found = samples.findings(ctx, outputs)
    assert found["gpu.count"].outcome is FAIL and "is listed 2 times" in found["gpu.count"].summary


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("No devices were found\n", FAIL),
        ("Unable to determine the device handle for GPU 0000:3b:00.0: Unknown Error\n", FAIL),
        ("Failed to initialize NVML: Driver/library version mismatch\n", FAIL),
        ("NVIDIA-SMI 535.129.03\n", NOT_RUN),
        ("<?xml version='1.0'?>\n<nvidia_smi_log>\n</nvidia_smi_log>\n", FAIL),
        ("<nvidia_smi_log><attached_gpus>8</attached_gpus>\n", FAIL),
    ],
)
@pytest.mark.parametrize("rc", [0, 9])
def test_an_error_text_with_any_status(
    target: Target, text: str, outcome: Outcome, rc: int
) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    outputs["gpu.smi"] = Output(rc=rc, stdout=text)
    found = samples.findings(ctx, outputs)
    assert found["gpu.count"].outcome is outcome, found["gpu.count"].summary
    for name in ("gpu.model", "gpu.ecc", "gpu.mig", "gpu.clocks", "fabric.gpus"):
        assert found[name].outcome is NOT_RUN


def test_a_bad_status_fails_and_hides_nothing(target: Target) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    bad = samples.altered(outputs["gpu.smi"], *tag("current_ecc", "Enabled", "Disabled"), 1)
    outputs["gpu.smi"] = replace(bad, rc=14)
    found = samples.findings(ctx, outputs)
    assert found["gpu.count"].outcome is FAIL and "status 14" in found["gpu.count"].summary
    assert samples.bad(found) == {"gpu.count": FAIL, "gpu.ecc": FAIL}


def test_more_ports_than_the_sku_has_may_rest(target: Target) -> None:
    """Storage ports beside the fabric's eight, one of them down and Ethernet: only a worry."""
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    text = outputs["fabric.hcas"].stdout
    more = re.sub("mlx5_7", "mlx5_8", "\n".join(x for x in text.splitlines() if "mlx5_7" in x))
    more = more.replace("4: ACTIVE", "1: DOWN").replace("InfiniBand", "Ethernet")
    outputs["fabric.hcas"] = Output(rc=0, stdout=f"{more}\n{text}")
    found = samples.findings(ctx, outputs)["fabric.hcas"]
    assert found.outcome is WARN and "mlx5_8" in found.summary


def test_open_modules_need_no_peermem(target: Target) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    kernel = samples.altered(outputs["gpu.kernel"], "nvidia_peermem ", "snd ")
    old, new = "NVIDIA UNIX x86_64 Kernel Module", "NVIDIA UNIX Open Kernel Module for x86_64"
    outputs["gpu.kernel"] = samples.altered(kernel, old, new)
    assert samples.findings(ctx, outputs)["fabric.peermem"].outcome is PASS
    outputs["gpu.kernel"] = samples.altered(outputs["gpu.kernel"], samples.RELEASE, "5.4.0-generic")
    assert samples.findings(ctx, outputs)["fabric.peermem"].outcome is FAIL


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_judges_survive_damaged_answers(target: Target, data: st.DataObject) -> None:
    """A cut answer never passes what it lost; nothing raises."""
    ctx = samples.context(target, "a100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "a100-sxm-8"))
    name = data.draw(st.sampled_from(sorted(outputs)))
    whole = outputs[name].stdout
    start = data.draw(st.integers(0, len(whole)))
    outputs[name] = Output(rc=0, stdout=whole[:start] + data.draw(st.text(max_size=8)))
    found = samples.findings(ctx, outputs)
    if start < len(whole) // 2:
        assert not is_ready(list(found.values())), f"{name} cut at {start} of {len(whole)}"


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(stdout=st.text(max_size=300), rc=st.sampled_from([0, 0, 1, 255]))
def test_judges_survive_any_text(target: Target, stdout: str, rc: int) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    good = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    found = samples.findings(ctx, dict.fromkeys(good, Output(rc=rc, stdout=stdout)))
    assert not [one.summary for one in found.values() if one.outcome is PASS]
