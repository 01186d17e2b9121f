"""The reader of nvidia-smi: forms without samples, damage, speed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nvidia_smi import read
from tests.unit.parse_noise import HARMLESS, agrees, cuts, damaged, garbage, linear, reading

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
TABLE = """\
Sun Mar  1 10:20:30 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA B200                    On  |   00000000:1B:00.0 Off |                    0 |
| N/A   31C    P0            141W / 1000W |    1024MiB / 183359MiB |     12%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA B200                    Off |   00000000:43:00.0 Off |                    2 |
| N/A   30C    P0            140W / 1000W |       0MiB / 183359MiB |      0%   E. Process |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A            4711      C   ray::RayWorker of two words            1016MiB |
+-----------------------------------------------------------------------------------------+
"""
QUERY = f"""\
==============NVSMI LOG==============

Timestamp                                 : Sun Mar  1 10:20:30 2026
Driver Version                            : 570.86.15
CUDA Version                              : 12.8

Attached GPUs                             : 2
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA B200
    MIG Mode
        Current                           : Enabled
        Pending                           : Disabled
    GPU UUID                              : {UUID}
    Remapped Rows
        Correctable Error                 : 0
        Pending                           : Yes
        Remapping Failure Occurred        : No
    FB Memory Usage
        Total                             : 183359 MiB
        Used                              : 12 MiB
    Fabric
        State                             : In Progress
        Status                            : N/A
    GPU Recovery Action                   : Drain P2P
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 41
            Type                          : C
        Process ID                        : 42
            Type                          : G

GPU 00000000:43:00.0
    Product Name                          : NVIDIA B200
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU UUID                              : Unknown Error
    Remapped Rows
        Correctable Error                 : 0
        Pending                           : No
        Remapping Failure Occurred        : No
    FB Memory Usage
        Total                             : 183359 MiB
        Used                              : Unknown Error
    Fabric
        State                             : Completed
        Status                            : Success
    GPU Recovery Action                   : None
    Processes                             : None
"""
CSV = (
    "index, name, pci.bus_id, driver_version, memory.total [MiB], mig.mode.current, pstate\n"
    "0, NVIDIA B200, 00000000:1B:00.0, 570.86.15, 183359 MiB, Enabled, P0\n"
    "1, NVIDIA B200, 00000000:43:00.0, 570.86.15, [Unknown Error], Disabled, P0\n"
)
LIST = (
    f"GPU 0: NVIDIA B200 (UUID: {UUID})\n"
    "  MIG 1g.23gb     Device  0: (UUID: MIG-11111111-2222-3333-4444-555555555555)\n"
    f"GPU 1: NVIDIA B200 (UUID: {UUID[:-1]}0)\n"
)
XML = f"""\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<timestamp>Sun Mar  1 10:20:30 2026</timestamp>
	<driver_version>570.86.15</driver_version>
	<cuda_version>12.8</cuda_version>
	<attached_gpus>2</attached_gpus>
	<gpu id="00000000:1B:00.0">
		<product_name>NVIDIA B200</product_name>
		<mig_mode><current_mig>Disabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
		<uuid>{UUID}</uuid>
		<fb_memory_usage><total>183359 MiB</total><used>1 MiB</used></fb_memory_usage>
		<gpu_power_readings><power_draw>140.5 W</power_draw></gpu_power_readings>
		<retired_pages><pending_blacklist>No</pending_blacklist></retired_pages>
		<fabric><state>Completed</state><status>Success</status></fabric>
	</gpu>
	<gpu id="00000000:43:00.0">
		<product_name>NVIDIA B200</product_name>
		<uuid>GPU is lost</uuid>
	</gpu>
</nvidia_smi_log>
"""
FORMS = {"table": TABLE, "query": QUERY, "csv": CSV, "list": LIST, "xml": XML}


def test_table() -> None:
    smi = read(TABLE)
    first, second = smi.gpus
    assert (smi.form, smi.driver, smi.cuda, smi.mig, smi.complete) == (
        "table",
        "570.86.15",
        "12.8",
        False,
        True,
    )
    assert (first.name, first.bus_id, first.persistence) == (
        "NVIDIA B200",
        "00000000:1B:00.0",
        True,
    )
    assert (first.memory_used, first.memory_total, first.power, first.power_limit) == (
        1024,
        183359,
        141,
        1000,
    )
    assert (first.temperature, first.utilization, first.fan) == (31, 12, None)
    assert (second.compute_mode, second.persistence, second.ecc_uncorrected) == (
        "E. Process",
        False,
        2,
    )
    assert smi.processes and smi.processes[0].name == "ray::RayWorker of two words"


def test_a_lost_gpu_in_the_table_is_a_gpu_with_errors() -> None:
    lost = (
        "|   1  ERR!                    ERR! | 00000000:43:00.0  ERR! |                 ERR! |\n"
        "|ERR!  ERR! ERR!       ERR! /  ERR! |    ERR! / ERR!         |    ERR!         ERR! |\n"
        "|                                   |                        |                 ERR! |\n"
    )
    start = TABLE.index("|   1  NVIDIA")
    smi = read(TABLE[:start] + lost + TABLE[TABLE.index("+---", start) :])
    second = smi.gpus[1]
    assert (second.name, second.memory_total, second.mig) == (None, None, None)
    assert smi.error == "other" and {"Fan", "Name", "GPU-Util"} <= set(second.bad)
    assert smi.mig is False and smi.gpus[0].memory_total == 183359


def test_a_copy_without_rules_and_with_single_blanks() -> None:
    rule = "+-----------------------------------------+------------------------+-----------"
    lines = [line for line in TABLE.splitlines() if not line.startswith(rule)]
    assert len(lines) == len(TABLE.splitlines()) - 2
    assert read("\n".join(lines) + "\n").gpus == read(TABLE).gpus
    assert read("\n".join(" ".join(line.split()) for line in lines)).gpus == read(TABLE).gpus


def test_a_gpu_that_cannot_be_asked_leaves_the_rest_incomplete() -> None:
    lost = "Unable to determine the device handle for GPU2: 0000:61:00.0: Unknown Error\n"
    for text in (TABLE, CSV, CSV.partition("\n")[2], LIST):
        smi = read(lost + text)
        assert (smi.gpus, smi.failed_gpus) == (read(text).gpus, ("0000:61:00.0",))
        assert (smi.error, smi.complete) == ("nvml-unknown", False)


def test_older_and_other_tables() -> None:
    old = read(
        "| NVIDIA-SMI 3.295.41   Driver Version: 295.41         |\n"
        "| Nb.  Name                     | Bus Id        Disp.  | Volatile ECC SB / DB |\n"
        "| Fan   Temp   Power Usage /Cap | Memory Usage         | GPU Util. Compute M. |\n"
        "|===============================+======================+======================|\n"
        "| 0.  Tesla M2050               | 0000:06:00.0  Off    |         0          0 |\n"
        "|  N/A    N/A  P0    Off /  Off |   0%    6MB / 2687MB |    0%     Default    |\n"
        "|-------------------------------+----------------------+----------------------|\n"
    )
    gpu = old.gpus[0]
    assert (old.driver, gpu.name, gpu.memory_used, gpu.power) == ("295.41", "Tesla M2050", 6, None)
    vgpu = read(
        "| NVIDIA-SMI 535.54.06              Driver Version: 535.54.06                 |\n"
        "| GPU  Name                       | Bus-Id                       | GPU-Util   |\n"
        "|      vGPU ID     Name           | VM ID     VM Name            | vGPU-Util  |\n"
        "|=================================+==============================+============|\n"
        "|   0  NVIDIA A40                 | 00000000:3B:00.0             |   7%       |\n"
        "|      3251634178  NVIDIA A40-8Q  | ee7b...  vm-1                |      0%    |\n"
        "+---------------------------------+------------------------------+------------+\n"
    )
    gpu = vgpu.gpus[0]
    assert (gpu.name, gpu.utilization, gpu.ecc_uncorrected) == ("NVIDIA A40", 7, None)
    assert len(vgpu.gpus) == 1 and vgpu.mig is None


def test_query() -> None:
    smi = read(QUERY)
    first, second = smi.gpus
    assert (smi.form, smi.attached, smi.mig, smi.complete) == ("query", 2, True, True)
    assert (first.row_remap_pending, first.row_remap_failed, first.mig_pending) == (
        True,
        False,
        False,
    )
    assert (first.fabric_state, first.fabric_status, second.fabric_status) == (
        "In Progress",
        None,
        "Success",
    )
    assert (first.recovery_action, second.recovery_action) == ("Drain P2P", "None")
    assert first.fields["Processes / Process ID #2 / Type"] == "G"
    assert (second.uuid, second.memory_used, smi.error) == (None, None, "nvml-unknown")
    assert "GPU 00000000:43:00.0: GPU UUID is Unknown Error" in smi.errors


def test_csv_with_and_without_header_and_units() -> None:
    smi = read(CSV)
    assert [gpu.index for gpu in smi.gpus] == [0, 1]
    assert (smi.driver, smi.mig, smi.error) == ("570.86.15", True, "nvml-unknown")
    assert [gpu.memory_total for gpu in smi.gpus] == [183359, None]
    bare = read(CSV.partition("\n")[2])
    assert (bare.form, bare.columns, bare.driver) == ("csv", (), "570.86.15")
    assert [(gpu.name, gpu.bus_id) for gpu in bare.gpus] == [(g.name, g.bus_id) for g in smi.gpus]
    assert bare.gpus[0].memory_total is None  # which memory it is, only the header says
    assert read(CSV.replace(" MiB,", ",")).gpus[0].memory_total == 183359
    assert [gpu.name for gpu in read("NVIDIA B200\nNVIDIA B200\n").gpus] == ["NVIDIA B200"] * 2
    assert read("570.86.15\n570.86.15\n").driver == "570.86.15"


def test_a_version_with_a_remark_behind_it_is_the_version() -> None:
    text = QUERY.replace("570.86.15\n", "570.86.15 [Deprecated; use KMD Version instead]\n")
    assert read(text.replace("12.8\n", "12.8 [Deprecated]\n")).gpus == read(QUERY).gpus
    assert read(text.replace("12.8\n", "12.8 [Deprecated]\n")).driver == "570.86.15"


def test_a_list_of_fields_is_no_table() -> None:
    with pytest.raises(NotThisKind):
        read("timestamp\nname\nuuid\n")
    assert [gpu.name for gpu in read("name\nNVIDIA B200\n").gpus] == ["NVIDIA B200"]


def test_csv_rows_of_another_width_are_told() -> None:
    smi = read(CSV + "2, NVIDIA B200, 00000000:61:00.0\n")
    assert (smi.same_width, smi.complete, len(smi.rows)) == (False, False, 3)
    assert "row 3" in smi.notes[0]
    names = "pid, process_name, used_gpu_memory [MiB]\n7, a, b and c, 12 MiB\n"
    assert read(names).rows == (("7", "a, b and c", "12 MiB"),)


def test_list() -> None:
    smi = read(LIST)
    assert (smi.form, len(smi.gpus), smi.mig) == ("list", 2, True)
    assert smi.gpus[0].uuid == UUID and smi.gpus[0].name == "NVIDIA B200"
    assert read(LIST.splitlines()[0] + "\n").mig is None


def test_names_that_were_taken_out_are_still_names() -> None:
    gpu = read("GPU 0: NVIDIA B200 (UUID: GPU-...)\n").gpus[0]
    assert (gpu.name, gpu.uuid) == ("NVIDIA B200", "GPU-...")
    plain = XML.replace(' id="00000000:1B:00.0"', "")
    assert [gpu.name for gpu in read(plain).gpus] == ["NVIDIA B200"] * 2


def test_xml_whole_and_cut() -> None:
    smi = read(XML)
    first = smi.gpus[0]
    assert (smi.form, smi.driver, smi.cuda, smi.attached, smi.complete) == (
        "xml",
        "570.86.15",
        "12.8",
        2,
        True,
    )
    assert (first.uuid, first.memory_total, first.power, first.mig_pending) == (
        UUID,
        183359,
        140.5,
        True,
    )
    assert first.page_retirement_pending is False and smi.error == "gpu-lost"
    part = read(XML[: XML.index("GPU is lost")])
    assert (len(part.gpus), part.complete) == (1, False)


@pytest.mark.parametrize(
    ("text", "error", "bus"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 0, ""),
        ("Failed to initialize NVML: Driver Not Loaded", 0, ""),
        ("Failed to initialize NVML: Driver/library version mismatch", 1, ""),
        ("No devices were found", 2, ""),
        (
            "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost.",
            3,
            "0000:1B:00.0",
        ),
        (
            "Unable to determine the device handle for GPU 0: 0000:1B:00.0: Unknown Error",
            4,
            "0000:1B:00.0",
        ),
        ("Failed to initialize NVML: Unknown Error", 4, ""),
        ("Failed to initialize NVML: Insufficient Permissions", 5, ""),
        ("Failed to initialize NVML: GPU access blocked by the operating system", 6, ""),
        ('Field "nonsense" is not a valid field to query.', 6, ""),
        ("bash: nvidia-smi: command not found", 6, ""),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", 6, ""),
    ],
)
def test_failures(text: str, error: int, bus: str) -> None:
    classes = (
        "driver-not-loaded",
        "library-mismatch",
        "no-devices",
        "gpu-lost",
        "nvml-unknown",
        "insufficient-permissions",
        "other",
    )
    for noisy in (text, f"gpu01: {text}\n", f"root@gpu01:~# nvidia-smi\n{text}\n"):
        smi = read(noisy)
        assert (smi.form, smi.error, smi.gpus) == ("error", classes[error], ())
        assert smi.failed_gpus == ((bus,) if bus else ()) and smi.errors


@pytest.mark.parametrize("text", ["No", "NVIDIA", "NVIDIA-SMI has fai", "Off", "GPU 0: NVIDIA H1"])
def test_the_beginning_of_a_message_is_no_gpu(text: str) -> None:
    assert reading(read, text) is None


def test_short_forms() -> None:
    version = (
        "NVIDIA-SMI version  : 570.86.15\nNVML version        : 570.86\nKMD version : 570.86.15\n"
    )
    smi = read(version + "CUDA UMD Version        : Not Found\n")
    assert (smi.form, smi.driver, smi.nvml, smi.cuda) == ("--version", "570.86.15", "570.86", None)
    module = read(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
        "GCC version:  gcc version 13.3.0\n"
    )
    assert (module.driver, module.flavour, module.error) == ("570.86.15", "open", None)


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("form", FORMS)
def test_noise_changes_nothing(form: str, change: object) -> None:
    assert callable(change)
    assert read(change(FORMS[form])) == read(FORMS[form])


def _checks(part: Any, whole: Any) -> None:
    assert part.form in (whole.form, "error")
    assert agrees(part, whole, ("driver", "cuda", "attached"))
    assert len(part.gpus) <= len(whole.gpus)
    for mine, theirs in zip(part.gpus, whole.gpus, strict=False):
        names = [name for name in vars(mine) if name not in ("bad", "fields")]
        assert agrees(mine, theirs, tuple(names)), mine
    assert not part.complete or len(part.gpus) == len(whole.gpus)


@pytest.mark.parametrize("form", FORMS)
def test_a_cut_text_says_nothing_that_the_whole_does_not(form: str) -> None:
    whole = read(FORMS[form])
    for cut in cuts(FORMS[form]):
        if (part := reading(read, cut)) and part.form != "error":
            _checks(part, whole)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_text_twice_has_the_same_gpus(form: str) -> None:
    assert read(FORMS[form] * 2).gpus == read(FORMS[form]).gpus


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all is well\n",
        "a, b\n1, 2\n",
        "GPU 0: NVIDIA B200 (UUID: GPU-01234567)\n  Link 0: 50 GB/s\n",
    ],
)
def test_other_texts_are_refused_with_a_reason(text: str) -> None:
    with pytest.raises(NotThisKind, match=r"\w+"):
        read(text)


@given(damaged(TABLE))
def test_a_damaged_table_never_crashes(text: str) -> None:
    assert (smi := reading(read, text)) is None or smi.form


@given(damaged(QUERY))
def test_a_damaged_query_never_crashes(text: str) -> None:
    assert (smi := reading(read, text)) is None or smi.form


@given(damaged(XML + CSV + LIST))
def test_damaged_lists_never_crash(text: str) -> None:
    assert (smi := reading(read, text)) is None or smi.form


@given(garbage)
def test_garbage_never_crashes(text: str) -> None:
    assert (smi := reading(read, text)) is None or smi.form


@pytest.mark.parametrize(
    "text", [*FORMS.values(), "a, " * 40 + "\n", "|" * 90 + "\n", "<gpu>", " : "]
)
def test_time_grows_with_the_text(text: str) -> None:
    assert linear(read, text)
