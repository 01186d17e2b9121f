"""The reader of the system's outputs: each tool, together, spoiled, cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackpin.parse.kinds import NotThisKind
from rackpin.parse.system import read
from tests.unit.texts import grows_gently, spoiled

DMESG = """\
[   10.100000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15
[  200.000001] NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout!
[  200.000002] NVRM: GPU4 RPC history (CPU -> GSP):
[  200.000003] NVRM:      0    103  GSP_RM_ALLOC          0xbc4a6898c5b71c3e 0xd0cd7f344dd11f0a
[  201.000001] NVRM: Xid (PCI:0000:1b:00 GPU-I:03): 31, pid=12, name=python, Ch 00000008
[  202.000001] nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress
"""
LSPCI = """\
0000:17:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1, Exit Latency L1 <4us
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x8 (downgraded)
\tKernel driver in use: nvidia
0000:18:00.0 Infiniband controller [0207]: Mellanox MT2910 [ConnectX-7] [15b3:1021]
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir- UpstreamFwd+ EgressCtrl- DirectTrans-
"""
STATUS = """\
● vllm@a.service - vLLM a
     Loaded: loaded (/etc/systemd/system/vllm@.service; enabled; preset: enabled)
     Active: failed (Result: exit-code) since Mon 2025-06-02 10:00:00 UTC; 3s ago
   Main PID: 4711 (code=exited, status=1/FAILURE)
"""
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max open files            1024                 524288               files
Max locked memory         unlimited            unlimited            bytes
"""


@given(spoiled(DMESG))
@settings(max_examples=40, deadline=None)
def test_xids_in_any_dress(text: str) -> None:
    reading = read(text)
    times = 2 if text == DMESG * 2 else 1
    assert [(x.bus, x.code, x.count) for x in reading.xids] == [
        ("0000:9b:00", 119, times),
        ("0000:1b:00", 31, times),
    ]
    assert [(s.device, s.bus, s.code, s.severity) for s in reading.sxids] == [
        ("nvidia-nvswitch2", "0000:85:00.0", 12028, "Non-fatal")
    ]


@pytest.mark.parametrize(
    ("line", "bus", "code"),
    [
        ("NVRM: Xid (0000:03:00): 13, 0001 00000000", "0000:03:00", 13),
        (
            "NVRM: Xid (PCI:0000:03:00.0): 79, pid=1, GPU has fallen off the bus.",
            "0000:03:00.0",
            79,
        ),
        ("NVRM: Xid: 8, Channel 00000003", "", 8),
    ],
)
def test_older_forms_of_an_xid(line: str, bus: str, code: int) -> None:
    assert [(x.bus, x.code) for x in read(line + "\n").xids] == [(bus, code)]


def test_lspci_link_and_acs() -> None:
    reading = read(LSPCI)
    assert (reading.tool, reading.form) == ("lspci", "lspci -vvv")
    pci = reading.lspci
    assert pci is not None
    assert (pci.nvidia_gpus, pci.nvswitches, pci.mellanox) == (1, 0, 1)
    gpu, nic = pci.devices
    assert gpu.degraded is True and gpu.driver == "nvidia" and gpu.device_id == "2330"
    assert gpu.sta is not None and (gpu.sta.width, gpu.sta.width_note) == (8, "downgraded")
    assert nic.acs is not None and nic.acs["ReqRedir"] and not nic.acs["TransBlk"]
    assert (pci.acs.lines, pci.acs.srcvalid_plus, pci.acs.redirecting) == (1, 1, 1)
    assert nic.degraded is None


def test_units_status_show_and_list() -> None:
    assert [(u.name, u.state, u.result) for u in read(STATUS).units] == [
        ("vllm@a.service", "failed", "exit-code")
    ]
    shown = read("Id=ray.service\nActiveState=active\nLimitMEMLOCK=infinity\nMainPID=7\n").units
    assert [(u.name, u.state, u.properties["LimitMEMLOCK"]) for u in shown] == [
        ("ray.service", "active", "infinity")
    ]
    listed = read(
        "  UNIT LOAD ACTIVE SUB DESCRIPTION\n● vllm@a.service loaded failed failed vLLM\n"
    )
    assert [(u.name, u.state) for u in listed.units] == [("vllm@a.service", "failed")]


def test_limits() -> None:
    of = {limit.name: limit for limit in read(LIMITS).limits}
    assert (of["open files"].soft, of["open files"].hard) == (1024, 524288)
    assert of["locked memory"].soft is None and of["stack size"].hard is None
    asked = read("max locked memory           (kbytes, -l) 8192\n").limits
    assert [(limit.name, limit.soft, limit.unit, limit.hard_known) for limit in asked] == [
        ("locked memory", 8192, "kbytes", False)
    ]


def test_dkms_both_spellings_and_states() -> None:
    text = (
        "nvidia/550.54.15, 6.8.0-2-generic, x86_64: installed (WARNING! Diff between built and "
        "installed module!)\nnvidia, 535.54.03, 6.8.0-2-generic, x86_64: built\n"
        "kpatch, 0.3.2: added\n8812au, 4.2.2, 4.4.0-24-generic, x86_64: installed (WARNING! Diff\n"
    )
    assert [(m.module, m.version, m.kernel, m.state, m.differs) for m in read(text).dkms] == [
        ("nvidia", "550.54.15", "6.8.0-2-generic", "installed", 1),
        ("nvidia", "535.54.03", "6.8.0-2-generic", "built", 0),
        ("kpatch", "0.3.2", None, "added", 0),
        ("8812au", "4.2.2", "4.4.0-24-generic", "installed", 1),
    ]


def test_modules_and_secure_boot() -> None:
    text = (
        "$ mokutil --sb-state\nSecureBoot enabled\n"
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n"
        "modprobe: FATAL: Module gdrdrv not found in directory /lib/modules/6.8.0-2-generic\n"
        "Linux gpu1 6.8.0-2-generic #2-Ubuntu SMP x86_64 GNU/Linux\n"
    )
    reading = read(text)
    assert reading.secure_boot is True and reading.running_kernel == "6.8.0-2-generic"
    assert [(r.module, r.action, r.why) for r in reading.refused] == [
        ("nvidia", "insert", "Key was rejected by service"),
        ("gdrdrv", "insert", "not found"),
    ]
    assert read("SecureBoot disabled\n").secure_boot is False


def test_ansible_folds_errors_into_json() -> None:
    text = (
        'fatal: [n1]: FAILED! => {"msg": "x", "stderr": "E: Could not open lock file '
        "/var/lib/dpkg/lock-frontend - open (13: Permission denied)\\nE: Unable to acquire the "
        'dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?\\n"}\n'
    )
    apt = read(text).apt
    assert apt is not None and [lock.denied for lock in apt.locks] == [True]
    assert len(apt.errors) == 2


def test_healthy_texts_have_no_errors() -> None:
    assert read("[    1.000000] docker0: port 1(veth1) entered disabled state\n").errors == ()
    assert read("nvidia/550.54.15, 6.8.0-2-generic, x86_64: installed\n550.54.15\n").errors == ()


@given(st.sampled_from([DMESG, LSPCI, LIMITS, STATUS]), st.data())
@settings(max_examples=200, deadline=None)
def test_a_cut_text_never_lies(text: str, data: st.DataObject) -> None:
    whole = read(text)
    try:
        reading = read(text[: data.draw(st.integers(0, len(text)))])
    except NotThisKind:
        return
    assert {(x.bus, x.code) for x in reading.xids} <= {(x.bus, x.code) for x in whole.xids}
    assert {(s.bus, s.code) for s in reading.sxids} <= {(s.bus, s.code) for s in whole.sxids}
    assert {(v.name, v.soft) for v in reading.limits} <= {(v.name, v.soft) for v in whole.limits}
    widths = (
        {(d.cap.width, d.sta.width) for d in whole.lspci.devices if d.cap and d.sta}
        if (whole.lspci)
        else set()
    )
    for device in reading.lspci.devices if reading.lspci else ():
        if device.cap and device.sta:
            assert (device.cap.width, device.sta.width) in widths


@given(st.text())
def test_garbage_is_refused(text: str) -> None:
    try:
        reading = read(text)
    except NotThisKind:
        return
    assert reading.tools


def test_what_is_of_no_tool_is_refused_with_the_reason() -> None:
    with pytest.raises(NotThisKind, match="none of the known tools"):
        read("Filesystem     1K-blocks  Used Available\n/dev/sda1 100 1 99\n")
    with pytest.raises(NotThisKind):
        read("")


@pytest.mark.parametrize(
    "text", [DMESG, LSPCI, STATUS, LIMITS, "a." * 3000 + "\n", "x: y " * 900 + "\n"]
)
def test_it_is_linear(text: str) -> None:
    def work(whole: str) -> object:
        try:
            return read(whole)
        except NotThisKind as why:
            return why

    assert grows_gently(work, text)


def test_a_module_for_another_kernel() -> None:
    magic = read(
        "nvidia: version magic '6.5.0-28-generic SMP' should be '6.8.0-40-generic SMP'\n"
    ).version_magic
    assert [(m.module, m.module_kernel, m.running_kernel) for m in magic] == [
        ("nvidia", "6.5.0-28-generic", "6.8.0-40-generic")
    ]


def test_grepped_link_states_are_one_device_each() -> None:
    pci = read("\t\tLnkSta:\tSpeed 16GT/s, Width x16\n\t\tLnkSta:\tSpeed 8GT/s, Width x4\n").lspci
    assert pci is not None
    assert [device.sta and device.sta.width for device in pci.devices] == [16, 4]


def test_the_fabric_state_of_each_gpu() -> None:
    gpu = "    Fabric\n        State        : Completed\n        Status       : Success\n"
    other = gpu.replace("Completed", "In Progress").replace("Success", "N/A")
    fabric = read(gpu + other).fabric_manager
    assert fabric is not None
    assert fabric.gpu_states == ("Completed/Success", "In Progress/N/A")


def test_alternatives_and_versions_of_unmet_dependencies() -> None:
    apt = read(
        "The following packages have unmet dependencies:\n"
        " nvidia-driver : Depends: nvidia-driver-libs (= 390.87-8) but it is not going to be "
        "installed or\n"
        "        Depends: nvidia-alternative (= 390.87-8) but 410.104-1 is to be installed\n"
    ).apt
    assert apt is not None
    assert [(u.package, u.needs, u.have, u.reason) for u in apt.unmet] == [
        ("nvidia-driver", "nvidia-driver-libs", None, "it is not going to be installed"),
        ("nvidia-driver", "nvidia-alternative", "410.104-1", "410.104-1 is to be installed"),
    ]
