"""Recorded outputs of the system's tools against their index."""

from __future__ import annotations

import pytest

from rackpin.diagnose.engine import diagnose
from rackpin.parse.lspci import Link
from rackpin.parse.system import SystemReading, read
from tests.recorded.corpus import Sample, needs_corpus, samples

pytestmark = needs_corpus

# (sample, key) where the text doesn't say what its index expects, and why.
WRONG = {
    ("067.txt", "tool"): "two lines of fabric manager; nothing shows that systemctl printed them",
    ("069.txt", "tool"): "'several' names no tool",
    ("072.txt", "device"): "the text begins inside the device: its address is not in it",
    ("052.txt", "package"): "the index names the needed package, the text says cuda-drivers has it",
}
# what the index says of the class → the rule that diagnose must put first (None: no finding)
FIRST = {
    "001": "xid.119", "002": "xid.79", "004": "system.oom-kill", "006": "driver.peermem-context",
    "007": None, "009": None, "011": "xid.145", "012": "xid.48", "014": "xid.63",
    "016": "driver.iommu-fault", "017": "xid.79", "019": "xid.94", "021": "fabric.switch-nonfatal",
    "022": "fabric.switch-nonfatal", "024": "driver.out-of-memory",
    "026": "driver.version-mismatch", "027": "driver.version-mismatch",
    "029": "module.symbol-version", "031": "driver.peermem-symbol",
    "032": "module.insert-peermem", "034": "module.key-missing", "036": "module.key-rejected",
    "037": "module.key-missing", "039": "module.vermagic", "041": "module.no-device",
    "042": "module.busy", "044": "dkms.not-installed", "046": "dkms.loaded-other", "047": None,
    "049": "apt.unmet", "051": "apt.unmet", "052": "apt.version-conflict", "054": "apt.no-pubkey",
    "056": "apt.lock-held", "057": "apt.lock-waiting", "059": "apt.not-root", "061": None,
    "062": None, "064": "fabric.version-mismatch", "066": "fabric.version-mismatch",
    "067": "fabric.version-mismatch", "069": "fabric.no-nvswitch", "071": None, "072": None,
    "074": None, "076": None, "077": None, "079": "hardware.acs", "081": "hardware.pcie-width",
    "082": None, "084": None, "086": None, "087": None, "089": "hardware.pcie-width",
    "091": None, "092": None, "094": None,
}  # fmt: skip


def link(value: Link | None) -> str:
    """As the index writes it: ``2.5GT/s (downgraded) x8 (downgraded)``."""
    assert value is not None
    speed = f"{value.speed_gts:g}GT/s" + (f" ({value.speed_note})" if value.speed_note else "")
    return f"{speed} x{value.width}" + (f" ({value.width_note})" if value.width_note else "")


def of_lspci(reading: SystemReading, key: str) -> str:
    pci = reading.lspci
    assert pci is not None
    if key in ("nvidia_gpus", "nvswitches", "mellanox"):
        return str(getattr(pci, key))
    if key in ("lines", "srcvalid_plus"):
        return str(getattr(pci.acs, key))
    device = pci.devices[0]
    if key == "acs":
        return (
            "absent" if device.acs is None else f"SrcValid{'+' if device.acs['SrcValid'] else '-'}"
        )
    return {"device": device.slot, "cap": link(device.cap), "sta": link(device.sta)}[key]


def faults(reading: SystemReading, key: str) -> str:
    if key == "xids":
        return ",".join(f"{x.bus}/{x.code}x{x.count}" for x in reading.xids) or "none"
    return ",".join(f"{s.device}@{s.bus}/{s.code}x{s.count}" for s in reading.sxids)


@pytest.mark.parametrize("sample", samples("system"), ids=str)
def test_reads_what_the_index_says(sample: Sample) -> None:
    reading = read(sample.text)
    expect = {k: v for k, v in sample.expect.items() if (sample.file, k) not in WRONG}
    if "tool" in expect:
        assert any(tool in expect["tool"] for tool in reading.tools)
    for key in expect.keys() & {"xids", "sxids"}:
        assert faults(reading, key) == expect[key]
    if reading.lspci and reading.tool == "lspci":
        keys = {"device", "cap", "sta", "acs", "nvidia_gpus", "nvswitches", "mellanox"}
        for key in expect.keys() & (keys | {"lines", "srcvalid_plus"}):
            if key == "sta" and "degraded" in expect:  # this index leaves the notes out
                assert of_lspci(reading, key).replace(" (downgraded)", "") == expect[key]
            else:
                assert of_lspci(reading, key) == expect[key], key


def test_index_facts_of_single_samples() -> None:
    """Keys that one or two samples have."""
    of = {sample.file[:3]: (sample.expect, read(sample.text)) for sample in samples("system")}
    for number in ("026", "027"):
        expect, reading = of[number]
        assert reading.mismatch is not None
        assert (reading.mismatch.user, reading.mismatch.module) == (
            expect["user"],
            expect["module"],
        )
    expect, reading = of["039"]
    assert reading.modinfo is not None
    assert reading.modinfo.kernel == expect["module_kernel"]
    assert reading.running_kernel == expect["running_kernel"]
    assert reading.modinfo.version == expect["driver"]
    assert of["037"][1].secure_boot is True
    for number in ("064", "066", "067"):
        expect, reading = of[number]
        assert reading.fabric_manager is not None
        assert reading.fabric_manager.version == expect["fm"]
        driver = reading.fabric_manager.driver
        assert driver == (None if expect["driver"].startswith("?") else expect["driver"])
    for number in ("064", "066", "069"):
        assert "failed" in [unit.state for unit in of[number][1].units]
    assert of["021"][1].fabric_manager is not None and of["022"][1].fabric_manager is not None
    assert len(of["021"][1].fabric_manager.errors) == 1
    assert str(len(of["022"][1].fabric_manager.errors)) == of["022"][0]["errors"]
    states = {(m.module, m.version): (m.state, m.differs) for m in of["044"][1].dkms}
    assert states == {("nvidia", "396.44"): ("installed", 3), ("nvidia", "440.31"): ("built", 0)}
    assert of["046"][1].loaded_version == of["046"][0]["loaded"]
    assert [(m.version, m.differs) for m in of["046"][1].dkms] == [("535.154.05", 5)]
    assert [m.kernel for m in of["047"][1].dkms if m.module == "kpatch"] == [None]
    assert sum(m.module == "nvidia-340" for m in of["047"][1].dkms) == 2
    assert of["016"][1].iommu_faults == ("0000:09:00.0",)
    assert of["006"][1].faults == {"peermem invalid context": 7}
    assert of["094"][1].lost_carrier == {}
    assert of["069"][1].lspci is not None and of["069"][1].lspci.nvidia_gpus == 2


def test_apt_samples() -> None:
    of = {sample.file[:3]: (sample.expect, read(sample.text).apt) for sample in samples("system")}
    for number, holder in (
        ("056", ("packagekitd", 7515, False)),
        ("057", ("unattended-upgr", 23320, True)),
    ):
        apt = of[number][1]
        assert apt is not None
        assert [(lock.process, lock.pid, lock.waiting) for lock in apt.locks] == [holder]
    denied = of["059"][1]
    assert denied is not None and [lock.denied for lock in denied.locks] == [True]
    keys = of["054"][1]
    assert keys is not None and keys.missing_keys == ("A4B469963BF863CC",) and keys.errors == ()
    both = of["049"][1]
    assert both is not None
    assert {(u.package, u.needs, u.op, u.version) for u in both.unmet} == {
        ("nvidia-container-runtime", "nvidia-container-toolkit", ">=", "1.5.0"),
        ("nvidia-container-runtime", "nvidia-container-toolkit", "<", "2.0.0"),
    }
    conflict = of["052"][1]
    assert conflict is not None
    assert [(u.needs, u.have, u.version) for u in conflict.unmet] == [
        ("nvidia-settings", of["052"][0]["have"], "352.39")
    ]
    known = of["061"][1]
    assert known is not None
    assert [v.split("-")[0] for v in known.packages[0].versions] == ["590.48.02", "590.48.01"]
    policy = of["062"][1]
    assert policy is not None
    assert policy.packages[0].candidate == of["062"][0]["candidate"]
    assert policy.packages[0].installed is None


@pytest.mark.parametrize("sample", samples("system"), ids=str)
def test_diagnose_names_the_class(sample: Sample) -> None:
    findings = diagnose([(sample.file, sample.text)])
    assert (findings[0].rule if findings else None) == FIRST[sample.file[:3]]
