"""Which operation a table without its name is of, when its numbers leave only one.

Bus bandwidth is algorithm bandwidth times a factor of the operation and the rank count n:
2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter, alltoall, gather and scatter, 1 for
broadcast, reduce and sendrecv. alltoall and sendrecv never check in place.
Source: the GetBw functions, and ``reportErrors``, of nccl-tests' src/*.cu.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.parse.nccl_tests_model import Row, measures

_LEAST_GBPS = 1.0  # below, the two printed decimals say too little
# Bytes of an element, by the tool's word for its type (test_typenames of nccl-tests' src/common.h).
_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}


def inferred(rows: Sequence[Row], ranks: int | None, no_redop: bool) -> str | None:
    """The operation's program name, None when more than one fits or the rows disagree.

    ``no_redop``: the table's header has no such column, as all_gather's before 2.11.
    """
    reduces = {row.redop for row in rows} - {None, "none"}
    rooted = any(row.root is not None and row.root >= 0 for row in rows)
    if reduces and rooted:
        return "reduce_perf"  # the only one with both
    if reduces and not rooted and _whole(rows):
        return "all_reduce_perf"  # reduce_scatter counts the elements of one rank
    if ranks == 1:
        return None
    halves = [half for half in measures(rows) if (half.algbw or 0) >= _LEAST_GBPS]
    ratios = [half.busbw / half.algbw for half in halves if half.algbw and half.busbw is not None]
    if not ratios or max(ratios) - min(ratios) > 0.03:
        return None
    best = max(halves, key=lambda half: half.algbw or 0)
    ratio = (best.busbw or 0) / (best.algbw or 1)
    if ratio > 1.02:
        return "all_reduce_perf" if ratio < 2.01 and not rooted else None
    if all(half.algbw == half.busbw for half in halves):
        if rooted:
            return "broadcast_perf"
        # n = 2 makes all_reduce's factor 1; sendrecv has the same columns, no check in place.
        return "all_reduce_perf" if reduces and _checked(rows) else None
    if ratio > 0.99 or rooted:
        return None
    if reduces:
        return "reduce_scatter_perf"
    if no_redop or _checked(rows):
        return "all_gather_perf"
    return None


def likeliest(rows: Sequence[Row]) -> str | None:
    """Of the operations that the numbers leave, the one that is run most; None for no idea.

    all_gather and alltoall print the same table when nothing was checked.
    """
    plain = all(row.redop in (None, "none") for row in rows)
    rooted = any(row.root is not None and row.root >= 0 for row in rows)
    parts = [share for row in rows if row.count and (share := _share(row)) is not None]
    if rows and plain and not rooted and parts and min(parts) > 1:
        return "all_gather_perf"
    return None


def _share(row: Row) -> float | None:
    """The row's bytes through those of its elements: 1, or the ranks that share them."""
    width = _BYTES.get(row.type or "")
    return row.size / (row.count * width) if width and row.count else None


def _whole(rows: Sequence[Row]) -> bool:
    """Whether each row counts all elements of its size (padding of small sizes apart)."""
    shares = [share for row in rows if row.size >= 1024 and (share := _share(row)) is not None]
    return bool(shares) and all(abs(share - 1) < 0.01 for share in shares)


def _checked(rows: Sequence[Row]) -> bool:
    return any(row.in_place and row.in_place.wrong is not None for row in rows)
