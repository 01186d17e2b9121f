"""Lines of a log without what programs put around them: colours, stamps, prefixes of launchers.

What is taken off: ANSI colours, ``(EngineCore_DP0 pid=7)`` of vLLM, ``(Actor pid=7, ip=10.0.0.2)``
of Ray, ``[1,0]<stdout>:`` of mpirun, ``[rank0]:`` of torch, ``name-1  | `` of compose, stamps of
journal, syslog, dmesg, kubectl and loggers, and a logger's level with its ``file.py:12``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Colours, titles, and colour codes that lost their escape character on the way.
_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,200}\x07?"
    r"|\[(?:\d{1,2};){0,3}\d{1,2}m(?!(?:s|in|b)\b)"
)
_BREAK = re.compile(r"\r*\n|\r")
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_ISO = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?"
_PROGRAM = r"[\w./@()-]{1,80}(?:\[\d+\])?:"
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_PREFIX = re.compile(
    "|".join(
        (
            r"\[\d+,\d+\]<std(?:out|err|diag)>: ?",
            r"\((?:autoscaler|raylet|gcs_server)[^)\n]{0,60}\) ?",
            r"\((?:[\w.:<>+*-]{1,80} )?(?:rank=\d+,? )?pid=[^)\n]{1,60}\) ?",
            r"\((?:EngineCore|Worker|APIServer|VllmWorker|ApiServer)[\w.]{0,40}\) ?",
            r"\[?[\w./-]{1,60}\]? {0,40}\| ",
            r"\[(?:rank|default)\d+\]: ?",
            rf"{_ISO}[ \t]+std(?:out|err) [FP] ",
            rf"{_ISO}[ \t]+[\w.-]{{1,80}} {_PROGRAM} ",
            rf"{_MONTH} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? [\w.-]{{1,80}} {_PROGRAM} ",
            rf"\[?{_ISO}\]?[ \t]*",
            r"\[ {0,12}\d+\.\d{3,9}\] ?",
            rf"\[(?:\w{{3}} )?{_MONTH} [ \d]?\d (?:\d{{4}} )?\d\d:\d\d:\d\d(?: \d{{4}})?\] ?",
            r"(?:kern|user|daemon|auth|syslog|local\d) {0,4}:[a-z]{3,6} {0,4}: ",
            r"\d{1,3},\d{1,12},\d{1,18},[-c+,\w=]{1,20};",
        )
    )
)
_LOGGER = re.compile(
    rf"\[?({_LEVELS})\]?[ \t]+(?:\d\d-\d\d \d\d:\d\d:\d\d )?"
    r"(?:\[?[\w/.<>]{1,80}:\d+\]|[\w/.]{1,80}:\d+\]?)"
    r"(?: --)? ?"
)
_GLOG = re.compile(r"\[?([DIWEFC])\d{3,4} \d\d:\d\d:\d\d\.\d+[^\]\n]{0,80}\] ?")
_GLOG_LEVEL = {"D": "DEBUG", "I": "INFO", "W": "WARN", "E": "ERROR", "F": "FATAL", "C": "FATAL"}
_MOST_PREFIXES = 8  # journal, compose, Ray, vLLM and stamps together are never more


@dataclass(frozen=True)
class Line:
    """One line: ``text`` without prefixes, ``shown`` as printed without colours, ``level`` a
    logger's level or "" where none is printed, ``number`` from 1."""

    number: int
    text: str
    shown: str
    level: str = ""


def plain(text: str) -> str:
    """The text without colours, with ``\\n`` as its only line break."""
    return _BREAK.sub("\n", _ANSI.sub("", text) if "\x1b" in text or "m" in text else text)


def lines(text: str) -> list[Line]:
    """All lines of a log, cleaned; empty ones too, so that numbers are those of the text."""
    return [line(number, shown) for number, shown in enumerate(plain(text).split("\n"), start=1)]


def line(number: int, shown: str) -> Line:
    """One line without its prefixes."""
    rest, level = shown.strip(), ""
    for _ in range(_MOST_PREFIXES):
        if match := _LOGGER.match(rest) or _GLOG.match(rest):
            level = _GLOG_LEVEL.get(match[1], "WARN" if match[1] == "WARNING" else match[1])
        elif not (match := _PREFIX.match(rest)):
            break
        rest = rest[match.end() :].lstrip() if match.end() < len(rest) else ""
    return Line(number, rest, shown.strip(), level)


def ends_whole(text: str) -> bool:
    """Whether the text ends with a line break: else its last line may be cut anywhere."""
    return text.endswith(("\n", "\r"))
