"""The report of ``-J FILE`` (nccl-tests 2.17 and later), whole or cut.

Source: src/util.cu of nccl-tests; booleans are the texts ``"true"`` and ``"false"`` there.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rackpin.parse.nccl_tests_model import Measure, Row, Run, peak, validated, verdict

_BEGIN = re.compile(r"^\s*\{", re.MULTILINE)
_RESULTS = re.compile(r'"results"\s*:\s*\[')
_OBJECT = re.compile(r'"(config|out_of_bounds|average_bus_bandwidth)"\s*:\s*(?=\{)')
_PROGRAM = re.compile(r"(?:^|/)(\w+_perf)\w*$")
_COMMA = re.compile(r"\s*,?\s*")
_DECODER = json.JSONDecoder()


def start(text: str) -> str | None:
    """The text from where a report begins, None when it isn't one."""
    begin = _BEGIN.search(text)
    return (
        text[begin.start() :].lstrip() if begin and _RESULTS.search(text, begin.start()) else None
    )


def report(text: str) -> Run:
    """The run of a report; of one that is cut, what is whole of it."""
    try:
        found = _DECODER.raw_decode(text)[0]
    except (ValueError, RecursionError):
        found = _pieces(text)
    return _run(found)


def _pieces(text: str) -> dict[str, Any]:
    """The parts of a cut report that can be read by themselves."""
    found: dict[str, Any] = {}
    for match in _OBJECT.finditer(text):
        if (part := _decoded(text, match.end())) is not None:
            found.setdefault(match[1], part[0])
    rows = []
    results = _RESULTS.search(text)
    at = results.end() if results else len(text)
    while at < len(text) and (part := _decoded(text, at)) is not None:
        rows.append(part[0])
        at = part[1]
    return found | {"results": rows}


def _decoded(text: str, at: int) -> tuple[Any, int] | None:
    if gap := _COMMA.match(text, at):
        at = gap.end()
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _run(found: dict[str, Any]) -> Run:
    config = _object(found.get("config"))
    devices = [_object(one) for one in _list(config.get("devices") or found.get("devices"))]
    rows = tuple(row for one in _list(found.get("results")) if (row := _row(_object(one))))
    bounds = _object(found.get("out_of_bounds"))
    average = _object(found.get("average_bus_bandwidth"))
    count = _int(bounds.get("count"))
    ranks = _ranks(config, devices)
    args = [text for text in _list(found.get("args")) if isinstance(text, str)]
    program = next((m[1] for text in args if (m := _PROGRAM.search(text))), None)
    ok, why = verdict(
        rows,
        counts=True,
        failed=_flag(bounds.get("okay")) is False or _flag(average.get("okay")) is False,
        out_of_bounds=count,
        complete=bool(bounds or average),
        ranks=ranks,
    )
    return Run(
        op=program,
        op_from="text" if program else None,
        ranks=ranks,
        ranks_listed=len(devices),
        hosts=len({one.get("hostname") for one in devices}),
        devices=tuple(
            dict.fromkeys(str(one["device_info"]) for one in devices if "device_info" in one)
        ),
        nccl_library=_int(found.get("nccl_version")),
        min_bytes=_int(config.get("minimum_bytes")),
        max_bytes=_int(config.get("maximum_bytes")),
        validation=None if _int(config.get("validation")) is None else bool(config["validation"]),
        rows=rows,
        check_column="wrong",
        max_size=max((row.size for row in rows), default=None),
        peak_busbw=peak(rows),
        avg_busbw=_number(average.get("bandwidth")),
        out_of_bounds=count,
        validated=validated(rows),
        complete=bool(bounds or average),
        ok=ok,
        errors=why if ok is False else (),
        warnings=why if ok is None else (),
    )


def _ranks(config: dict[str, Any], devices: list[dict[str, Any]]) -> int | None:
    """A report lists the first rank of each process only."""
    threads, gpus = _int(config.get("nthreads")), _int(config.get("ngpus"))
    each = threads * gpus if threads and gpus else 1
    return len(devices) * each or None


def _row(one: dict[str, Any]) -> Row | None:
    size = _int(one.get("size"))
    if size is None:
        return None
    root = one.get("root")
    redop = one.get("redop")
    return Row(
        size,
        _int(one.get("count")) or 0,
        one.get("type") if isinstance(one.get("type"), str) else None,
        redop if isinstance(redop, str) and redop else None,
        int(root) if isinstance(root, str) and re.fullmatch(r"\s*-?\d{1,6}", root) else _int(root),
        _measure(one.get("out_of_place")),
        _measure(one.get("in_place")),
    )


def _measure(found: Any) -> Measure | None:
    if not isinstance(found, dict):
        return None
    time = _number(found.get("time", found.get("cpu_time")))
    wrong = _number(found.get("nwrong"))
    return Measure(
        time,
        _number(found.get("alg_bw")),
        _number(found.get("bus_bw")),
        int(wrong) if wrong is not None else None,
    )


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _number(found: Any) -> int | float | None:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return found if found - found == 0 else None


def _int(found: Any) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _flag(found: Any) -> bool | None:
    return {"true": True, "false": False}.get(str(found).lower())
