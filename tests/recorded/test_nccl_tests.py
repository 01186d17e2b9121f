"""Every recorded output of nccl-tests against its index."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rackpin.parse.nccl_tests import NcclTests, read
from rackpin.parse.nccl_tests_model import Measure
from tests.recorded.corpus import Sample, needs_corpus, samples

# What the thread behind a sample says about it, not the text.
OUTSIDE = {"cause", "fix"}
# The operation stands in the document around these: a message of the shared source file, no table.
NO_OP = {"059.txt", "061.txt", "062.txt", "064.txt"}
# all_gather and alltoall without a check print the same table.
LIKELY = {"009.txt", "022.txt"}


def _last(test: NcclTests) -> tuple[Measure | None, Measure | None]:
    """The halves of the largest size's last row, which the index calls last."""
    row = [row for row in test.rows if row.size == test.max_size][-1]
    return row.out_of_place, row.in_place


def _measured(half: Measure | None, expected: str) -> bool:
    """``63896 algbw=134.44 busbw=235.26 wrong=N/A`` or one number."""
    assert half is not None
    first, *rest = expected.split(" ")
    said = dict(item.split("=") for item in rest) | ({"time_us": first} if rest else {})
    said = said or {"busbw": first}
    return all(
        getattr(half, key) == (None if text == "N/A" else float(text)) for key, text in said.items()
    )


def _wrong(test: NcclTests) -> str:
    if test.check_column == "error" and test.validated:
        return "error-column(float)"
    halves = [half for row in test.rows for half in (row.out_of_place, row.in_place) if half]
    return str(sum(half.wrong or 0 for half in halves)) if test.validated else "N/A (not checked)"


def _bounds(test: NcclTests) -> str:
    if test.out_of_bounds is None:
        return "absent"
    return f"{test.out_of_bounds} {'OK' if test.out_of_bounds == 0 else 'FAILED'}"


def _number(value: int | float | None) -> str:
    return "absent" if value is None else f"{value:g}"


SAYS: dict[str, Callable[[NcclTests], str]] = {
    "ranks_listed": lambda test: str(test.ranks_listed or "none"),
    "hosts": lambda test: str(test.hosts),
    "minBytes": lambda test: str(test.min_bytes),
    "maxBytes": lambda test: str(test.max_bytes),
    "reduced_max_bytes": lambda test: str(test.reduced_max_bytes),
    "nccl": lambda test: str(test.nccl_version),
    "nccl_library": lambda test: str(test.nccl_library),
    "rows": lambda test: str(len(test.rows)),
    "max_size": lambda test: str(test.max_size),
    "dtype": lambda test: str(test.rows[0].type),
    "peak_busbw": lambda test: _number(test.peak_busbw),
    "avg_busbw": lambda test: _number(test.avg_busbw),
    "out_of_bounds": _bounds,
    "wrong": _wrong,
    "format": lambda test: test.format,
}
VERDICTS = {"pass": True, "FAIL": False, "fail": False, "incomplete": None, "MEANINGLESS": None}


@needs_corpus
@pytest.mark.parametrize("sample", samples("nccl-tests"), ids=str)
def test_says_what_the_index_says(sample: Sample) -> None:
    test = read(sample.text)
    for key, expected in sample.expect.items():
        if key in OUTSIDE:
            continue
        if key == "op":
            if expected != "?":
                assert test.op == (None if sample.file in NO_OP else expected.split(" ")[0])
            assert (test.op_from == "likely") is (sample.file in LIKELY)
        elif key.startswith(("last_oop", "last_ip")):
            assert _measured(_last(test)[key.startswith("last_ip")], expected), key
        elif key == "redop":
            words = {str(row.redop) for row in test.rows if row.size == test.max_size}
            assert words == {expected}
        elif key == "max_rank":
            assert test.ranks == int(expected.split("(")[0]) + 1
        elif key == "verdict":
            assert test.ok is VERDICTS[expected.split(" ")[0].rstrip(":")]
            assert ("not validated" not in expected) or test.validated is False
        elif key == "error":
            assert test.errors and not test.rows
        else:
            assert SAYS[key](test) == expected, key
    if "TRUNCATED in device list" in sample.note:
        assert test.ranks is None
    elif "max_rank" not in sample.expect and "ranks_listed" in sample.expect:
        assert (test.ranks or "none") == (test.ranks_listed or "none")
