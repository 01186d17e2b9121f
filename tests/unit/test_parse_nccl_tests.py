"""The reader of nccl-tests: generations and failures without samples, damage, speed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nccl_tests import read
from rackpin.parse.nccl_tests_model import Measure
from tests.unit.parse_noise import HARMLESS, agrees, cuts, damaged, garbage, linear, reading

START = """\
# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807
# Collective test starting: {op}_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 1 iters: 20 \
agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on      gpu01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   4712 on      gpu01 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   9711 on      gpu02 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid   9712 on      gpu02 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
NCCL version 2.28.7+cuda12.9
#
"""
HEAD = (
    "#       size         count      type   redop    root"
    "     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)      \n"
)
ROWS = "".join(
    f"{size:>12}  {size // 4:>12}     float     sum      -1"
    + "".join(f"  {time:>7}  {algbw:>6.2f}  {busbw:>6.2f}      0" for time, algbw, busbw in halves)
    + "\n"
    for size, halves in (
        (1048576, [("61.20", 17.13, 25.70), ("60.11", 17.44, 26.17)]),
        (2097152, [("82.40", 25.45, 38.18), ("81.90", 25.61, 38.41)]),
        (4194304, [("121.5", 34.52, 51.78), ("120.9", 34.69, 52.04)]),
    )
)
END = """\
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 38.7133
#
# Collective test concluded: {op}_perf
#
"""


def run(op: str = "all_reduce", rows: str = ROWS, end: str = END) -> str:
    return START.format(op=op) + HEAD + rows + end.format(op=op)


WHOLE = run()
REPORT = {
    "version": 3,
    "args": ["./build/all_reduce_perf", "-J", "x.json"],
    "nccl_version": 22807,
    "config": {
        "nthreads": 1,
        "ngpus": 2,
        "minimum_bytes": 8,
        "maximum_bytes": 16,
        "validation": 1,
        "devices": [{"rank": 0, "hostname": "gpu01", "device_info": "H100"}],
    },
    "results": [
        {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": {"time": 10.5, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0.0},
            "in_place": {"cpu_time": 9.5, "alg_bw": 1.1, "bus_bw": 1.1, "nwrong": None},
        }
        for size in (8, 16)
    ],
    "out_of_bounds": {"count": 0, "okay": "true"},
    "average_bus_bandwidth": {"bandwidth": 1.05, "okay": "unchecked"},
}


def test_a_run() -> None:
    test = read(WHOLE)
    assert (test.op, test.ranks, test.hosts, test.ok, test.validated, test.complete) == (
        "all_reduce_perf",
        4,
        2,
        True,
        True,
        True,
    )
    assert (test.avg_busbw, test.peak_busbw, test.max_size, test.out_of_bounds) == (
        38.7133,
        52.04,
        4194304,
        0,
    )
    assert test.rows[2].out_of_place == Measure(121.5, 34.52, 51.78, 0)
    assert (test.rows[0].redop, test.rows[0].root, test.nccl_version) == (
        "sum",
        -1,
        "2.28.7+cuda12.9",
    )


def test_the_oldest_table_is_in_milliseconds() -> None:
    test = read(
        "nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: 2(factor) validation: 1\n"
        "# Using devices\n#   Rank  0 on     gpu01 device  0 [0x05] Tesla P100\n"
        "#   Rank  1 on     gpu01 device  1 [0x06] Tesla P100\n\n"
        "#                                       out-of-place                    in-place\n"
        "#      bytes             N    type      op"
        "     time  algbw  busbw      res     time  algbw  busbw      res\n"
        "    33554432       8388608   float     sum"
        "    2.013  16.67  16.67    0e+00    1.998  16.79  16.79    0e+00\n"
        " Out of bounds values : 0 OK\n Avg bus bandwidth    : 16.73\n"
    )
    assert test.rows[0].out_of_place == Measure(2013.0, 16.67, 16.67, 0.0)
    assert (test.check_column, test.rows[0].root, test.ok) == ("error", None, True)


@pytest.mark.parametrize(
    ("row", "redop", "root", "wrong"),
    [
        ("8 2 float prod -1 5.1 0.00 0.00 0 5.2 0.00 0.00 0", "prod", -1, 0),
        ("8 2 f8e4m3 none 3 5.1 0.00 0.00 0 5.2 0.00 0.00 N/A", "none", 3, 0),
        ("8 2 float -1 5.1 0.00 0.00 N/A 5.2 0.00 0.00 N/A", None, -1, None),
        ("8 2 float sum -1 5.1 0.00 0.00 1e+06 5.2 0.00 0.00 3", "sum", -1, 1_000_000),
        ("8 2 float sum -1 nan inf 0.00 0 5.2 0.00 0.00 0 2026-03-01 10:20:30", "sum", -1, 0),
    ],
)
def test_rows(row: str, redop: str | None, root: int, wrong: int | None) -> None:
    found = read(HEAD + f"  {row}\n").rows[0]
    assert (found.redop, found.root) == (redop, root)
    assert found.out_of_place and found.out_of_place.wrong == wrong


def test_per_iteration_columns_and_a_trace_without_out_of_place() -> None:
    names = " time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    test = read(
        f"# size count type redop root{names}{names}\n"
        "  8 2 float sum -1 5.1 0.1 0.2 0 4.0 6.0 5.9 1.5 5.2 0.3 0.4 0 4.0 6.0 5.9 1.5\n"
    )
    row = test.rows[0]
    assert row.out_of_place == Measure(5.1, 0.1, 0.2, 0) and row.in_place == Measure(
        5.2, 0.3, 0.4, 0
    )
    blank = " " * 32
    only = read(
        HEAD + f"     8     2     float     sum      -1{blank}     5.2    0.30    0.40      0\n"
    )
    assert (only.rows[0].out_of_place, only.rows[0].in_place) == (None, Measure(5.2, 0.3, 0.4, 0))


@pytest.mark.parametrize(
    ("rows", "end", "ok", "why"),
    [
        (ROWS.replace("51.78      0", "51.78     17"), END, False, "1 of 3 rows have wrong"),
        (ROWS, END.replace("0 OK", "3 FAILED"), False, "out of bounds values: 3"),
        (ROWS, END.replace("38.7133", "38.7133 FAILED"), False, "below what was asked for"),
        (ROWS, "", None, "summary"),
        ("", END, None, "not one row"),
        (ROWS.replace("52.04", "428400.12"), END, None, "can't be"),
        (ROWS.replace("34.69", "972944.75"), END, None, "can't be"),
        (
            ROWS,
            END + "gpu01: Test NCCL failure common.cu:958 'remote process exited'\n",
            False,
            "NCCL failure",
        ),
        (ROWS, END + "srun: error: gpu02: task 3: Exited with exit code 2\n", False, "task 3"),
    ],
)
def test_verdicts(rows: str, end: str, ok: bool | None, why: str) -> None:
    test = read(run(rows=rows, end=end))
    assert test.ok is ok
    assert any(why in text for text in (*test.errors, *test.warnings))


def test_a_table_without_its_header_tells_deviations_from_counts() -> None:
    old = read("  8 2 float sum 5.1 0.1 0.2 1e-07 5.2 0.3 0.4 0e+00\n" + END)
    assert (old.check_column, old.ok, old.rows[0].root) == ("error", True, None)
    new = read("  8 2 float sum -1 5.1 0.1 0.2 0 5.2 0.3 0.4 2\n" + END)
    assert (new.check_column, new.ok) == ("wrong", False)


def test_unchecked_is_not_validated() -> None:
    test = read(run(rows=ROWS.replace("     0\n", "   N/A\n").replace("  0    ", "N/A    ")))
    assert (test.ok, test.validated) == (True, False)


def test_one_rank_proves_nothing() -> None:
    lines = [line for line in WHOLE.splitlines(keepends=True) if " Rank  " not in line]
    one = "".join([*lines[:5], "#  Rank  0 Pid 1 on gpu01 device  0 [0x00] A100\n", *lines[5:]])
    assert (read(one).ranks, read(one).ok) == (1, None)
    several = read(one * 2)
    assert (several.ranks, several.ok, len(several.runs)) == (1, None, 2)
    assert any("by itself" in text for text in several.warnings)


def test_several_operations_in_one_text() -> None:
    gather = ROWS.replace("sum", "none")
    failed = run("alltoall", gather.replace("      0\n", "      5\n"), END)
    test = read(WHOLE + run("all_gather", gather) + failed)
    assert [one.op for one in test.runs] == ["all_reduce_perf", "all_gather_perf", "alltoall_perf"]
    assert [one.ok for one in test.runs] == [True, True, False]
    assert (test.op, test.ok, test.avg_busbw, len(test.rows)) == (None, False, 38.7133, 9)
    assert (test.ranks, test.out_of_bounds) == (4, 0)


def test_torn_rows_and_glued_host_names() -> None:
    log = "gpu01:4711:4711 [0] NCCL INFO AllReduce: opCount 2 count 262144 [nranks=4]\n"
    torn = "".join(f"{row[:54]}{log}{row[54:86]}{log}{row[86:]}\n" for row in ROWS.splitlines())
    assert read(run(rows=torn)).rows == read(WHOLE).rows
    unchecked = ROWS.replace("      0", "    N/A")
    torn = "".join(
        f"{row[:86]}Agpu:1:1 [0] NCCL INFO x\n{row[86:]}\n" for row in unchecked.splitlines()
    )
    assert read(run(rows=torn)).rows == read(run(rows=unchecked)).rows


def test_a_row_that_is_not_whole_is_named_and_not_read() -> None:
    lines = ROWS.splitlines(keepends=True)
    test = read(run(rows=lines[0] + lines[1][:80] + "\n" + lines[2]))
    assert [row.size for row in test.rows] == [1048576, 4194304]
    assert any(text.startswith("not a row: ") for text in test.warnings)


@pytest.mark.parametrize(
    ("columns", "algbw", "busbw", "op"),
    [
        ("sum -1", 100, 175, "all_reduce_perf"),
        ("sum -1", 100, 87.5, "reduce_scatter_perf"),
        ("none -1", 100, 87.5, "all_gather_perf"),
        ("none 0", 100, 100, "broadcast_perf"),
        ("sum 0", 100, 100, "reduce_perf"),
        ("sum -1", 100, 100, "all_reduce_perf"),
        ("none 0", 100, 87.5, None),
        ("none -1", 0.5, 0.44, None),
    ],
)
def test_the_operation_by_its_numbers(
    columns: str, algbw: float, busbw: float, op: str | None
) -> None:
    count = 32768 if busbw == 87.5 else 262144  # of one of 8 ranks, or of all
    test = read(
        HEAD + f" 1048576 {count} float {columns} 10 {algbw} {busbw} 0 10 {algbw} {busbw} 0\n"
    )
    assert (test.op, test.op_from) == (op, "numbers" if op else None)


def test_the_operation_by_the_command() -> None:
    rows = HEAD + ROWS.replace("sum", "none")
    for line in ("$ mpirun -np 4 ./build/alltoall_perf -b 8", "EXEC=/opt/nccl-tests/alltoall_perf"):
        assert read(f"{line}\n{rows}").op == "alltoall_perf"


def test_headings_name_the_run_below_them() -> None:
    plain = "# nThread 1 nGpus 2 minBytes 8 maxBytes 16\n" + HEAD + ROWS.replace("sum", "none")
    text = (
        f"===begin alltoall_perf test===\n{plain}{END}\n===begin all_gather_perf test===\n{plain}"
    )
    assert [one.op for one in read(text).runs] == ["alltoall_perf", "all_gather_perf"]


def test_shortened_tables_with_one_half_and_no_check() -> None:
    names = "# size(B) count(elems) type redop root time(us) algbw(GB/s) busbw(GB/s)\n"
    test = read(names + " 1048576 262144 float sum -1 78.12 13.42 12.61\n" + END)
    assert test.rows[0].out_of_place == Measure(78.12, 13.42, 12.61, None)
    assert (test.rows[0].in_place, test.ok, test.validated) == (None, True, False)


def test_json() -> None:
    test = read(json.dumps(REPORT))
    assert (test.format, test.op, test.ranks, test.ok, test.out_of_bounds) == (
        "json",
        "all_reduce_perf",
        2,
        True,
        0,
    )
    assert test.rows[1].out_of_place == Measure(10.5, 1.0, 1.0, 0)
    assert test.rows[1].in_place == Measure(9.5, 1.1, 1.1, None) and test.rows[1].root == -1
    bad = read(json.dumps(REPORT | {"out_of_bounds": {"count": 4, "okay": "false"}}))
    assert (bad.ok, bad.out_of_bounds) == (False, 4)


def test_a_cut_report_gives_its_whole_rows() -> None:
    text = json.dumps(REPORT, indent=1)
    part = read(text[: text.rindex('"in_place"')])
    assert (len(part.rows), part.complete, part.ok, part.ranks) == (1, False, None, 2)


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("text", [WHOLE, json.dumps(REPORT, indent=1) + "\n"], ids=["text", "json"])
def test_noise_changes_nothing(text: str, change: object) -> None:
    assert callable(change)
    assert read(change(text)) == read(text)


def _checks(part: Any, whole: Any) -> None:
    assert part.rows == whole.rows[: len(part.rows)]
    names = ("op", "ranks", "avg_busbw", "out_of_bounds", "min_bytes", "max_bytes")
    assert agrees(part, whole, names), part
    assert part.ok is not False and (part.ok is None or part.rows == whole.rows)


@pytest.mark.parametrize("text", [WHOLE, json.dumps(REPORT)], ids=["text", "json"])
def test_a_cut_text_says_nothing_that_the_whole_does_not(text: str) -> None:
    whole = read(text)
    for cut in cuts(text):
        if part := reading(read, cut):
            _checks(part, whole)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all is well\n",
        "bash: all_reduce_perf: command not found\n",
        "8 2 float\n",
        "{}",
        "Rank 0\n",
    ],
)
def test_other_texts_are_refused_with_a_reason(text: str) -> None:
    with pytest.raises(NotThisKind, match=r"\w+"):
        read(text)


@given(damaged(WHOLE))
def test_damage_never_crashes(text: str) -> None:
    test = reading(read, text)
    assert test is None or test.ok is not True or test.complete


@given(damaged(json.dumps(REPORT)))
def test_a_damaged_report_never_crashes(text: str) -> None:
    assert (test := reading(read, text)) is None or test.format


@given(garbage)
def test_garbage_never_crashes(text: str) -> None:
    assert (test := reading(read, text)) is None or test.ok is not True or test.complete


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        json.dumps(REPORT),
        "a.b-" * 20 + ":1 [0] ",
        "8 2 float sum ",
        "{",
        '{"results": [',
        "[a",
    ],
)
def test_time_grows_with_the_text(text: str) -> None:
    assert linear(read, text)
