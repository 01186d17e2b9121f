"""nccl-tests' printed output: banner, devices, table and summary of one run after another."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.parse.nccl_tests_lines import (
    EXIT,
    LONGEST,
    PROMPT,
    TAG,
    Seen,
    banner,
    command,
    failure,
    log_line,
    summary,
)
from rackpin.parse.nccl_tests_model import Run, column, peak, validated, verdict
from rackpin.parse.nccl_tests_op import inferred, likeliest
from rackpin.parse.nccl_tests_rows import header, without_log
from rackpin.parse.text import last_line, number


def runs(found: Sequence[str], whole_end: bool) -> tuple[list[Run], int | None]:
    """All runs in these lines, and the exit code that a launcher reports."""
    seen = [Seen()]
    exit_code: int | None = None
    last = last_line(found)
    for place, line in enumerate(found):
        text, log = without_log(TAG.sub("", line, count=1))
        if log:
            log_line(log, seen[-1])
        if not text.strip():
            continue
        cut = not whole_end and place == last
        if _table(text, seen, bool(log), cut):
            seen[-1].list_is_last = False
            continue
        if len(text) > LONGEST:
            continue
        if match := EXIT.search(text):
            exit_code = int(match[1])
        if not cut and banner(text, seen):
            continue
        if not summary(text, seen[-1], cut) and not failure(text, seen[-1]) and not cut:
            command(text, seen[-1])
            seen[-1].list_is_last &= not text.strip(" #") or bool(PROMPT.match(text))
    for one in seen:
        one.table.drop()
    kept = [one for one in seen if not one.empty]
    return [_run(one) for one in kept], exit_code


def _table(text: str, seen: list[Seen], torn: bool, cut: bool) -> bool:
    if "algbw" in text and (head := header(text)):
        if seen[-1].table.rows:
            before = seen[-1]
            seen.append(Seen(op=before.next_op or (None if before.summed else before.op)))
        seen[-1].table.header = head
        return True
    body = text.lstrip()
    if not body[:1].isdigit() and not seen[-1].table.is_open:
        return False
    if cut:
        seen[-1].table.drop(text)  # its last number may be cut
        return True
    if seen[-1].summed and body[:1].isdigit():
        fresh = Seen(op=seen[-1].next_op)
        fresh.table.header = seen[-1].table.header
        if fresh.table.take(text, torn):
            seen.append(fresh)
            return True
        return False
    return seen[-1].table.take(text, torn)


def _run(one: Seen) -> Run:
    rows = tuple(one.table.rows)
    head = one.table.header
    ranks = None if one.list_is_last or not one.ranks else max(one.ranks) + 1
    guess = None if one.op else inferred(rows, ranks, bool(head and not head.redop))
    likely = None if one.op or guess else likeliest(rows)
    check = head.check if head else column(rows)
    bounds, said = one.bounds or (None, None)
    average, judged = one.average or ("", None)
    ok, why = verdict(
        rows,
        counts=check == "wrong",
        failed=bool(one.errors) or "FAILED" in (said, judged),
        out_of_bounds=bounds,
        complete=one.summed,
        ranks=ranks,
    )
    if judged == "FAILED":
        why = (*why, "the average bus bandwidth is below what was asked for")
    unreadable = tuple(f"not a row: {line[:200]}" for line in one.table.unreadable[:20])
    library = one.versions.get("library")
    return Run(
        op=one.op or guess or likely,
        op_from=("text" if one.op else "numbers" if guess else "likely" if likely else None),
        ranks=ranks,
        ranks_listed=len(one.ranks),
        hosts=len({host for host, _ in one.ranks.values()}),
        devices=tuple(dict.fromkeys(name for _, name in one.ranks.values() if name)),
        tests_version=one.versions.get("tests"),
        nccl_version=one.versions.get("nccl"),
        nccl_library=int(library) if library else None,
        min_bytes=one.sizes[0] if one.sizes else None,
        max_bytes=one.sizes[1] if one.sizes else None,
        reduced_max_bytes=one.reduced,
        validation=one.validation,
        rows=rows,
        check_column=check,
        max_size=max((row.size for row in rows), default=None),
        peak_busbw=peak(rows),
        avg_busbw=number(average),
        out_of_bounds=bounds,
        validated=validated(rows),
        complete=one.summed,
        ok=ok,
        errors=(*one.errors, *(why if ok is False else ())),
        warnings=(*one.warnings, *unreadable, *(why if ok is None else ())),
    )
