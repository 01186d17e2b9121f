"""Hold the rules against logs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rackpin.diagnose.findings import Finding, filled, ranked
from rackpin.diagnose.readings import Reading, read_all
from rackpin.diagnose.rules import Pattern, Ready, rules
from rackpin.parse.loglines import Line, lines

_CODE = ("raise ", 'f"', "f'", '"', "'", "assert ", "#", "return ")  # a traceback's source lines
_QUIET = ("DEBUG", "INFO", "WARN")
_LOOKED_AT = 200  # matches of one pattern; a message that repeats more often says nothing new
_SAME_MESSAGE = 12  # lines that belong to one message: a version mismatch has six, Ray's more
_EVIDENCE_LINES, _EVIDENCE_SIZE = 6, 1000


@dataclass(frozen=True)
class Log:
    """A log cleaned and joined; ``starts`` are the offsets of its lines in ``text``."""

    name: str
    lines: tuple[Line, ...]
    text: str
    starts: tuple[int, ...]

    @classmethod
    def of(cls, name: str, text: str) -> Log:
        cleaned = tuple(lines(text))
        starts, at = [], 0
        for line in cleaned:
            starts.append(at)
            at += len(line.text) + 1
        return cls(name, cleaned, "\n".join(line.text for line in cleaned), tuple(starts))

    def line_at(self, offset: int) -> int:
        """The index of the line that holds this offset."""
        return max(bisect_right(self.starts, offset) - 1, 0)


@dataclass(frozen=True)
class Hit:
    """A match: first and last line (indices), offset, and what its groups hold."""

    first: int
    last: int
    offset: int
    details: dict[str, str]


def diagnose(logs: Iterable[tuple[str, str]]) -> list[Finding]:
    """(name, text) of logs of one failure → findings, the cause first; empty when nothing is
    known or wrong."""
    found: list[Finding] = []
    for name, text in logs:
        log = Log.of(name, text)
        for ready in rules():
            if ready.match and (hit := _hit(ready, log)):
                found.append(_finding(ready, log, hit))
        found += _of_readings(name, text)
    return ranked(found)


def _hit(ready: Ready, log: Log) -> Hit | None:
    """The match to show, or None where the rule's conditions don't hold."""
    hits = [hit for pattern in ready.match for hit in _hits(pattern, log)]
    if ready.rule.level == "error":
        hits = [hit for hit in hits if log.lines[hit.first].level not in _QUIET]
    if len({hit.first for hit in hits}) < ready.rule.least:
        return None
    if not all(_somewhere(pattern, log) for pattern in ready.needs):
        return None
    if any(_somewhere(pattern, log) for pattern in ready.unless):
        return None
    end = max(hit.offset for hit in hits)
    if any(p.maybe(log.text) and p.regex.search(log.text, end) for p in ready.settled_by):
        return None
    hits.sort(key=lambda hit: (hit.offset, -len(hit.details)))
    said = [hit for hit in hits if not log.lines[hit.first].text.startswith(_CODE)] or hits
    details: dict[str, str] = {}
    for hit in said:
        if hit.first - said[0].first <= _SAME_MESSAGE:
            details = {**hit.details, **details}
    return replace(said[0], details=details)


def _somewhere(pattern: Pattern, log: Log) -> bool:
    return pattern.maybe(log.text) and bool(pattern.regex.search(log.text))


def _hits(pattern: Pattern, log: Log) -> Iterator[Hit]:
    if not pattern.maybe(log.text):
        return
    for match in islice(pattern.regex.finditer(log.text), _LOOKED_AT):
        whole = match[0]
        start = match.start() + len(whole) - len(whole.lstrip())
        end = max(start, match.start() + len(whole.rstrip()) - 1)
        details = {name: value for name, value in match.groupdict().items() if value}
        yield Hit(log.line_at(start), log.line_at(end), start, details)


def _finding(ready: Ready, log: Log, hit: Hit) -> Finding:
    rule = ready.rule
    shown = [line.shown for line in log.lines[hit.first : hit.last + 1] if line.shown]
    return Finding(
        rule=rule.id,
        cause=filled(rule.cause, hit.details),
        evidence="\n".join(shown[:_EVIDENCE_LINES])[:_EVIDENCE_SIZE],
        remedy=filled(rule.fix, hit.details),
        confidence=rule.confidence,
        kind=rule.kind,
        file=log.name,
        line=log.lines[hit.first].number,
        details=hit.details,
        source=rule.source,
        echoes=tuple(rule.echoes),
    )


def _of_readings(name: str, text: str) -> list[Finding]:
    """Findings of what the readers of ``rackpin parse`` see in the whole text."""
    by_name = {ready.rule.reading: ready.rule for ready in rules() if ready.rule.reading}
    found = []
    for reading in read_all(text):
        rule = by_name.get(reading.name)
        found.append(
            Finding(
                rule=rule.id if rule else reading.name,
                cause=filled(rule.cause, reading.details) if rule else reading.cause,
                evidence=reading.evidence[:_EVIDENCE_SIZE],
                remedy=filled(rule.fix, reading.details) if rule else reading.remedy,
                confidence=rule.confidence if rule else reading.confidence,
                kind=rule.kind if rule else reading.kind,
                file=name,
                line=reading.line,
                details=reading.details,
                source=rule.source if rule else reading.source,
                echoes=tuple(rule.echoes) if rule else reading.echoes,
            )
        )
    return found


def unknown_errors(texts: Sequence[str]) -> list[Line]:
    """Lines that look like errors, for a log that no rule knows: the last ones are the best."""
    return [
        line
        for text in texts
        for line in lines(text)
        if line.level in ("ERROR", "FATAL", "CRITICAL")
        or line.text.startswith(("E: ", "ERROR", "FATAL", "Traceback"))
        or _looks_raised(line.text)
    ]


def _looks_raised(text: str) -> bool:
    """``SomeError: text``, as Python ends a traceback."""
    name = text.split(":", 1)[0]
    return name.endswith(("Error", "Exception")) and name.replace(".", "").isidentifier()


__all__ = ["Finding", "Reading", "diagnose", "unknown_errors"]
