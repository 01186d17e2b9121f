"""The reader of ``nvidia-smi topo -m``: forms without samples, damage, speed."""

from __future__ import annotations

import time
from itertools import combinations
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpin.parse.cliques import complete_groups, connected
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.topo import read
from tests.unit.parse_noise import HARMLESS, cuts, damaged, garbage, linear, reading

HEAD = "\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
BODY = (
    "GPU0\t X \tNV18\tSYS\tPIX\tNODE\t0-11,24-35\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\tNODE\tPIX\t0-11,24-35\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tSYS\tSYS\t12-23,36-47\t1\t\tN/A\n"
    "NIC0\tPIX\tNODE\tSYS\t X \tNODE\t\t\t\t\n"
    "NIC1\tNODE\tPIX\tSYS\tNODE\t X \t\t\t\t\n"
)
LEGEND = (
    "\nLegend:\n\n  X    = Self\n  SYS  = over the sockets\n  PIX  = one bridge\n"
    "  NV#  = that many links\n"
)
NICS = "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_0\n"
WHOLE = HEAD + BODY + LEGEND + NICS


def square(links: list[list[str]]) -> str:
    names = [f"GPU{i}" for i in range(len(links))]
    rows = ["\t".join([name, *row, "0-7", "0"]) for name, row in zip(names, links, strict=True)]
    return "\n".join(["\t".join(["", *names, "CPU Affinity", "NUMA Affinity"]), *rows, ""])


def test_reads_a_table() -> None:
    top = read(WHOLE)
    assert (top.gpus, top.nvlink_groups, top.link_counts) == (3, ((0, 1),), {"NV18": 1, "SYS": 2})
    assert [(nic.name, nic.device) for nic in top.nics] == [
        ("NIC0", "mlx5_0"),
        ("NIC1", "mlx5_bond_0"),
    ]
    assert [(near.link, near.nics) for near in top.closest_nics] == [
        ("PIX", ("NIC0",)),
        ("PIX", ("NIC1",)),
        ("SYS", ("NIC0", "NIC1")),
    ]
    assert top.cpu_affinity == ("0-11,24-35", "0-11,24-35", "12-23,36-47")
    assert top.numa_affinity == ("0", "0", "1") and top.complete and top.nvlink_shown


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("text", [WHOLE, WHOLE.expandtabs(8)], ids=["tabs", "blanks"])
def test_noise_changes_nothing(text: str, change: object) -> None:
    assert callable(change)
    assert read(change(text)) == read(WHOLE)


def test_blank_affinity_is_none_and_not_the_next_columns() -> None:
    top = read("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\t0\t\tN/A\n")
    assert (top.cpu_affinity, top.numa_affinity, top.gpu_numa_id) == ((None,), ("0",), ("N/A",))


def test_lines_that_a_narrow_terminal_broke_go_on_below() -> None:
    whole = read(HEAD + BODY)
    broken = ""
    for line in (HEAD + BODY).expandtabs(8).splitlines():
        words = line.rstrip()
        broken += (
            words[:46].rstrip() + "\n" + ("  " + words[46:].strip() + "\n" if words[46:] else "")
        )
    assert read(broken) == whole
    titles = HEAD.replace("\tCPU Affinity", "\tCPU\nAffinity")
    assert read(titles + BODY) == whole


def test_a_table_drawn_with_bars() -> None:
    bars = (HEAD + BODY).replace("\t", " | ").replace("\n", " |\n")
    assert read(bars).closest_nics == read(HEAD + BODY).closest_nics


def test_a_blank_affinity_among_blanks_is_not_guessed() -> None:
    head = "      GPU0  CPU Affinity  NUMA Affinity  GPU NUMA ID\n"
    top = read(head + "GPU0   X                  1              N/A\n")
    assert (top.cpu_affinity, top.numa_affinity, top.gpus) == ((None,), (None,), 1)


def test_cells_that_a_copy_glued_together_are_two() -> None:
    text = (HEAD + BODY).expandtabs(8).replace("NODE    PIX ", "NODEPIX ")
    assert "NODEPIX" in text and read(text) == read(HEAD + BODY)


def test_fields_that_no_title_names_are_left() -> None:
    top = read("\tGPU0\tCPU Affinity\nGPU0\t X \t0-11, 24-35\t0\tN/A\n")
    assert (top.cpu_affinity, top.numa_affinity) == (("0-11,24-35",), (None,))


def test_the_form_that_hides_nvlink_says_so() -> None:
    links = [["X", "SYS"], ["SYS", "X"]]
    legend = "\nLegend:\n\n  X    = Self\n  PIX  = one bridge\n"
    assert read(square(links) + legend).nvlink_shown is False
    assert read(square(links)).nvlink_shown is None


def test_a_missing_header_is_made_from_the_rows() -> None:
    top = read(square([["X", "NV4"], ["NV4", "X"]]).partition("\n")[2])
    assert (top.gpus, top.nvlink_groups, top.complete) == (2, ((0, 1),), False)
    assert top.numa_affinity == ("0", "0")


def test_cells_that_contradict_each_other_are_not_counted() -> None:
    top = read(square([["X", "NV4"], ["SYS", "X"]]))
    assert (top.link_counts, top.nvlink_groups, top.complete) == ({}, (), False)
    assert "GPU0 to GPU1 is NV4" in top.errors[0]


def test_gpu_numbers_are_the_names_numbers() -> None:
    text = square([["X", "NV4"], ["NV4", "X"]]).replace("GPU1", "GPU7").replace("GPU0", "GPU6")
    assert read(text).nvlink_groups == ((6, 7),)


@pytest.mark.parametrize(
    ("text", "error", "gpus"),
    [
        ("No devices were found\n", "no-devices", 0),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "library-mismatch", None),
    ],
)
def test_what_the_tool_fails_with_is_a_reading(text: str, error: str, gpus: int | None) -> None:
    top = read(text)
    assert (top.error, top.gpus, top.complete) == (error, gpus, False) and top.errors


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU0 is fine, GPU1 is not\n",
        HEAD,
        "bash: nvidia-smi: command not found\n",
        "\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n",
    ],
)
def test_other_texts_are_refused_with_a_reason(text: str) -> None:
    with pytest.raises(NotThisKind, match=r"\w+"):
        read(text)


@pytest.mark.parametrize("text", [WHOLE, (HEAD + BODY).expandtabs(8)], ids=["tabs", "blanks"])
def test_a_cut_text_says_nothing_that_the_whole_does_not(text: str) -> None:
    whole = read(text)
    for cut in cuts(text):
        if not (part := reading(read, cut)):
            continue
        assert part.gpus == whole.gpus
        assert all(count <= whole.link_counts[link] for link, count in part.link_counts.items())
        assert set(part.nvlink_groups) <= set(whole.nvlink_groups)
        for name in ("cpu_affinity", "numa_affinity", "gpu_numa_id"):
            pairs = zip(getattr(part, name), getattr(whole, name), strict=True)
            assert all(mine in (None, theirs) for mine, theirs in pairs), (cut, name)
        for mine, theirs in zip(part.closest_nics, whole.closest_nics, strict=True):
            assert mine.link is None or mine == theirs
        names = [nic.device for nic in whole.nics]
        pairs = zip((nic.device for nic in part.nics), names, strict=True)
        assert all(mine in (None, theirs) for mine, theirs in pairs), cut
        assert not part.complete or part.link_counts == whole.link_counts


def test_a_last_legend_line_without_its_end_is_like_the_others() -> None:
    text = HEAD + BODY + LEGEND + NICS.replace("mlx5_bond_0", "mlx5_12").rstrip()
    assert [nic.device for nic in read(text).nics] == ["mlx5_0", "mlx5_12"]


def test_the_same_table_twice_is_one_and_another_one_is_named() -> None:
    assert read(WHOLE + WHOLE) == read(WHOLE)
    other = read(WHOLE + WHOLE.replace("NV18", "NV12"))
    assert other.link_counts == read(WHOLE).link_counts and not other.complete
    assert "different table" in other.errors[0]


@given(damaged(WHOLE))
def test_damage_never_crashes(text: str) -> None:
    top = reading(read, text)
    assert top is None or top.gpus is None or len(top.gpu_indices) == top.gpus


@given(garbage)
def test_garbage_never_crashes(text: str) -> None:
    top = reading(read, text)
    assert top is None or top.gpus or top.errors


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda p: p[0] < p[1])))
def test_groups_are_disjoint_joined_all_to_all_and_largest(pairs: set[tuple[int, int]]) -> None:
    groups = complete_groups(range(8), pairs)
    members = [node for group in groups for node in group]
    assert len(members) == len(set(members))
    assert all(pair in pairs for group in groups for pair in combinations(group, 2))
    sizes = [n for n in range(2, 9) for c in combinations(range(8), n) if _joined(c, pairs)]
    assert max(map(len, groups), default=0) == max(sizes, default=0)
    assert all(any(set(g) <= set(part) for part in connected(range(8), pairs)) for g in groups)


def _joined(nodes: tuple[int, ...], pairs: set[tuple[int, int]]) -> bool:
    return all(pair in pairs for pair in combinations(nodes, 2))


class TestSpeed:
    eight: ClassVar[str] = square([["X" if i == j else "NV18" for j in range(8)] for i in range(8)])

    def test_ten_thousand_texts_a_minute(self) -> None:
        start = time.process_time()
        for _ in range(200):
            read(self.eight + LEGEND)
        assert (time.process_time() - start) / 200 < 60 / 10_000

    @pytest.mark.parametrize("text", [WHOLE, "GPU0 X ", "\tGPU0\tGPU1\n", "X" * 50 + "\n"])
    def test_time_grows_with_the_text(self, text: str) -> None:
        assert linear(read, text)

    def test_a_partial_mesh_of_many_gpus_takes_no_time(self) -> None:
        mesh = [
            ["X" if i == j else ("NV2", "SYS")[(i * j) % 3 == 0] for j in range(64)]
            for i in range(64)
        ]
        start = time.process_time()
        assert read(square(mesh)).gpus == 64
        assert time.process_time() - start < 2
