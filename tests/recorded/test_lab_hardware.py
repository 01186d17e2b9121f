"""Simulated hardware against the real tools' output: the same labels, headers and columns."""

from __future__ import annotations

import re
from functools import cache

import pytest

from rackpin.lab.hardware import presets
from rackpin.lab.hardware.answer import answer
from rackpin.lab.hardware.drivers import NEW_FROM
from tests.recorded.corpus import Sample, needs_corpus, samples

pytestmark = needs_corpus
NEW = "driver=590.48.01"

# labels that depend on the machine and not on the form: MIG instances, processes that run
NOT_THE_FORM = re.compile(r"^(MIG Device|Processes|Clocks Throttle)")


@cache
def said(preset: str, call: str, *faults: str) -> str:
    return answer(presets.node("gpu01", preset, faults), call.split()).stdout


def of(kind: str, **wanted: str) -> list[Sample]:
    """Samples whose index says all of ``wanted``."""
    return [
        one
        for one in samples(kind)
        if all(one.expect.get(key, "") == value for key, value in wanted.items())
    ]


def major(sample: Sample) -> int:
    return int(sample.expect.get("driver", "0").split(".")[0])


def column(text: str) -> set[int]:
    """Where the colons of a -q stand."""
    return {line.index(" : ") for line in text.splitlines() if " : " in line}


def labels(text: str, card: int = 0) -> list[str]:
    """Paths of labels of one card of a -q, without what isn't the form."""
    cards = re.split(r"^GPU [0-9A-F]{8}:.*$", text, flags=re.MULTILINE)
    path: list[str] = []
    found = []
    for line in cards[card + 1].splitlines():
        label = line.partition(" : ")[0].rstrip()
        if not label.strip():
            continue
        depth = (len(label) - len(label.lstrip())) // 4 - 1
        path = [*path[:depth], label.strip()]
        if not NOT_THE_FORM.match(path[0]):
            found.append(" / ".join(path))
    return found


# sample → the card that it is the same form as
QUERIES = {"021.txt": ("h100-sxm-8",), "019.txt": ("rtx4090-2",), "009.txt": ("h100-sxm-8", NEW)}


@pytest.mark.parametrize("file", QUERIES)
def test_query_has_the_labels_of_the_real_one_in_its_order(file: str) -> None:
    (sample,) = [one for one in samples("nvidia-smi") if one.file == file]
    preset, *faults = QUERIES[file]
    ours = said(preset, "nvidia-smi -q", *faults)
    real, mine = labels(sample.text), labels(ours)
    if sample.expect["mig"] == "Enabled":  # a card in MIG mode has no histogram
        mine = [label for label in mine if not label.startswith("Remapped Rows /")]
    if file == "019.txt":  # a GeForce card has no sparse operation mode
        mine = [label for label in mine if label != "Sparse Operation Mode"]
    assert mine == real
    assert column(ours) == column(sample.text)


def test_a_section_has_the_labels_of_the_real_one() -> None:
    (sample,) = [one for one in samples("nvidia-smi") if one.file == "026.txt"]
    ours = said("a100-sxm-8", "nvidia-smi -q -d PAGE_RETIREMENT")
    assert labels(ours) == labels(sample.text)
    assert ours.count("Retired Pages") == sample.text.count("Retired Pages") == 8


def csv_samples() -> list[Sample]:
    return [one for one in of("nvidia-smi", form="csv") if "pid" not in one.text.split("\n")[0]]


@pytest.mark.parametrize("sample", csv_samples(), ids=str)
def test_every_field_that_real_ones_print_can_be_asked_for(sample: Sample) -> None:
    head = sample.text.splitlines()[0]
    names = [name.partition(" [")[0] for name in head.split(", ")]
    ours = said("h100-sxm-8", f"nvidia-smi --query-gpu={','.join(names)} --format=csv", NEW)
    assert ours.splitlines()[0] == head
    assert {len(line.split(", ")) for line in ours.splitlines()} == {len(names)}


def test_process_fields() -> None:
    (sample,) = [one for one in samples("nvidia-smi") if one.file == "014.txt"]
    head = sample.text.splitlines()[0]
    names = ",".join(name.partition(" [")[0] for name in head.split(", "))
    call = f"nvidia-smi --query-compute-apps={names} --format=csv"
    assert said("h100-sxm-8", call, NEW) == f"{head}\n"


def shape(line: str) -> list[int]:
    """Where the borders of a line of the table stand."""
    return [place for place, sign in enumerate(line) if sign == "|"]


HEADS = ("| GPU  Name ", "| Fan  Temp ", "|  GPU   GI ", "| Processes:", "|        ID")


def tables() -> list[Sample]:
    """Whole tables of the branches that can be simulated, and the wide one before them."""
    return [
        one
        for one in of("nvidia-smi", form="table")
        if major(one) >= NEW_FROM and one.expect.get("mig") != "enabled" and "WDDM" not in one.text
    ]


@pytest.mark.parametrize("sample", tables(), ids=str)
def test_table_has_the_lines_of_the_real_one(sample: Sample) -> None:
    ours = said("l40s-8", "nvidia-smi", NEW).splitlines()
    for line in sample.text.splitlines():
        if line.startswith(HEADS) or (set(line) <= set("+-=|") and line):
            assert line in ours, line
    cards = [
        line for line in sample.text.splitlines() if re.match(r"^\| +\d+  \S.* (On|Off) ", line)
    ]
    mine = [line for line in ours if re.match(r"^\| +\d+  \S.* (On|Off) ", line)]
    assert cards
    assert all(shape(line) == shape(mine[0]) for line in [*cards, *mine])


def test_mig_table_has_the_head_of_the_real_one() -> None:
    ours = said("h100-sxm-8", "nvidia-smi", NEW, "mig-on").splitlines()
    found = of("nvidia-smi", form="table", mig="enabled")
    assert found
    for sample in found:
        text = sample.text.split("| MIG devices:")[1].splitlines()
        for line in text[1:6]:
            assert line in ours, (sample.file, line)


def test_messages_are_the_real_ones() -> None:
    """Each is in a recorded output, values apart."""
    real = {
        re.sub(r"[\d:.a-f]{6,}", "N", one.text.strip()) for one in of("nvidia-smi", form="error")
    }
    for fault in ("nouveau", "off-bus", "gsp-timeout", "library-mismatch"):
        ours = said("h100-sxm-8", "nvidia-smi", fault).strip()
        assert re.sub(r"[\d:.a-f]{6,}", "N", ours) in real, fault


def test_topology_has_the_head_legend_and_words_of_the_real_one() -> None:
    (sample,) = [one for one in samples("topo") if one.file == "031.txt"]
    ours = said("l40s-8", "nvidia-smi topo -m")
    legend = sample.text.split("Legend:")[1].split("NIC Legend")[0]
    assert ours.split("Legend:")[1].split("NIC Legend")[0] == legend
    real = sample.text.splitlines()[0].split("\t")
    mine = ours.splitlines()[0].split("\t")
    assert (mine[:2], mine[-3:]) == (real[:2], real[-3:])
    cells = sample.text.splitlines()[5].split("\t")  # a NIC's row ends with empty cells
    assert ours.splitlines()[9].split("\t")[-4:] == cells[-4:] == [""] * 4
    (hgx,) = [one for one in samples("topo") if one.file == "036.txt"]
    first = [cell for cell in hgx.text.splitlines()[1].split("\t") if not cell.startswith("N")]
    ours_first = said("h100-sxm-8", "nvidia-smi topo -m").splitlines()[1].split("\t")
    assert [c for c in ours_first if not c.startswith(("N", "S", "P"))] == [
        c for c in first if not c.startswith(("N", "S", "P"))
    ]


@pytest.mark.parametrize(
    ("file", "call", "preset"),
    [
        ("002.txt", "nvidia-smi nvlink -s -i 0", "h100-sxm-8"),
        ("007.txt", "nvidia-smi nvlink -s -i 7", "a100-sxm-8"),
    ],
)
def test_nvlink_lines_are_the_real_ones(file: str, call: str, preset: str) -> None:
    (sample,) = [one for one in samples("nvlink") if one.file == file]
    assert said(preset, call).splitlines()[1:] == sample.text.rstrip().splitlines()[1:]


def test_p2p_legend_is_the_real_one() -> None:
    (sample,) = [one for one in samples("nvlink") if one.file == "016.txt"]
    ours = said("h100-sxm-8", "nvidia-smi topo -p2p r")
    assert ours.split("Legend:")[1].split() == sample.text.split("Legend:")[1].split()
    assert [line.split() for line in ours.splitlines()[:9]] == [
        line.split() for line in sample.text.splitlines()[:9]
    ]


def keys(text: str) -> list[str]:
    """Labels before a colon, in order, of the first device."""
    found: list[str] = []
    for line in text.splitlines():
        key = re.sub(r"'.*'|\bmlx\w+", "", line).partition(":")[0].strip()
        if key and key in found:
            return found
        if key:
            found.append(key)
    return found


@pytest.mark.parametrize(
    ("file", "call"), [("002.txt", "ibstat"), ("027.txt", "ibstatus"), ("004.txt", "ibstat")]
)
def test_infiniband_has_the_labels_of_the_real_one(file: str, call: str) -> None:
    (sample,) = [one for one in samples("infiniband") if one.file == file]
    assert keys(said("h100-sxm-8", call)) == keys(sample.text)


def test_gids_have_the_columns_of_the_real_ones() -> None:
    (sample,) = [one for one in samples("infiniband") if one.file == "031.txt"]
    assert said("h100-sxm-8", "show_gids").splitlines()[:2] == sample.text.splitlines()[:2]


def test_verbose_devinfo_begins_like_the_real_one() -> None:
    (sample,) = [one for one in samples("infiniband") if one.file == "036.txt"]
    real = keys(sample.text)[:9]
    assert keys(said("h100-sxm-8", "ibv_devinfo"))[:9] == real


def test_lspci_names_and_numbers_are_the_real_ones() -> None:
    (sample,) = [one for one in samples("system") if one.file == "091.txt"]
    ours = said("a100-sxm-8", "lspci -nn")
    real, mine = (
        {line.partition(" ")[2] for line in text.splitlines() if "[10de:" in line}
        for text in (sample.text, ours)
    )
    assert mine == real


def test_lspci_link_lines_are_the_real_ones() -> None:
    (sample,) = [one for one in samples("system") if one.file == "072.txt"]
    ours = said("h100-sxm-8", "lspci -vv -s 19:00.0")
    for key in ("LnkSta:", "NUMA node:"):
        (real,) = [line for line in sample.text.splitlines() if line.strip().startswith(key)]
        assert real in ours.splitlines(), key
    (acs,) = [one for one in samples("system") if one.file == "087.txt"]
    off = next(line for line in acs.text.splitlines() if "ACSCtl" in line)
    assert off.split() in [line.split() for line in said("h100-sxm-8", "lspci -vv").splitlines()]


def messages(text: str) -> set[str]:
    """Kernel messages without time, addresses and serial numbers."""
    lines = [re.sub(r"^\[.*?\] *", "", line) for line in text.splitlines()]
    values = r"PCI:[\w:]+|\d{4}:\w\w:\w\w\.\d|\d{13}|GPU-\S+|=\d+"
    return {re.sub(values, "N", line) for line in lines}


@pytest.mark.parametrize(
    ("file", "fault", "all_of_it"),
    [("002.txt", "off-bus", False), ("014.txt", "remap-pending", True)],
)
def test_xid_lines_are_the_real_ones(file: str, fault: str, all_of_it: bool) -> None:
    (sample,) = [one for one in samples("system") if one.file == file]
    healthy = messages(said("h100-sxm-8", "dmesg"))
    ours = messages(said("h100-sxm-8", "dmesg", fault)) - healthy
    real = messages(sample.text)
    assert ours and ours <= real
    assert ours == real or not all_of_it


def perf_head(text: str) -> list[str]:
    heads = re.compile(r"#\s+(out-of|size|\(B\))")
    return [line.rstrip() for line in text.splitlines() if heads.match(line)]


@pytest.mark.parametrize(("file", "fault"), [("029.txt", "2.13.9"), ("027.txt", "2.19.6")])
def test_all_reduce_perf_is_that_version_s(file: str, fault: str) -> None:
    (sample,) = [one for one in samples("nccl-tests") if one.file == file]
    kind = presets.preset("h100-sxm-8").model_copy(update={"nccl_tests": fault})
    node = presets.healthy(kind, "gpu01")
    ours = answer(node, ["all_reduce_perf", "-b", "1M", "-e", "128M", "-f", "2", "-g", "8"]).stdout
    assert perf_head(ours) == perf_head(sample.text)

    def words(text: str, begin: str) -> list[str]:
        line = next(line for line in text.splitlines() if line.startswith(begin))
        return re.sub(r"\d+", "N", line).split()

    for begin in ("# nThread", "# Out of bounds"):
        assert words(ours, begin) == words(sample.text, begin)
    size = re.compile(r"^ +\d+ +\d+ +float.*$", re.MULTILINE)
    width = {len(line.rstrip()) for line in size.findall(sample.text)}
    assert {len(line.rstrip()) for line in size.findall(ours)} == width


@pytest.mark.parametrize(("file", "version"), [("101.txt", "2.19.6"), ("102.txt", "2.13.9")])
def test_all_reduce_perf_without_a_driver_fails_like_the_real_one(file: str, version: str) -> None:
    (sample,) = [one for one in samples("nccl-tests") if one.file == file]
    kind = presets.preset("h100-sxm-8").model_copy(update={"nccl_tests": version})
    node = presets.healthy(kind, "gpu01").model_copy(update={"nouveau": True})
    failed = answer(node, ["all_reduce_perf", "-b", "8M", "-e", "64M", "-f", "2"])
    assert failed.code == 2

    def bare(text: str) -> set[str]:
        return {re.sub(r"pid \d+", "pid N", line) for line in text.splitlines()}

    assert bare(failed.stdout) <= bare(sample.text)
