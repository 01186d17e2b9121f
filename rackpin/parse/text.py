"""What happens to a tool's output on its way here: colours, CRLF, launchers' and loggers' prefixes.

All functions are linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_=>]")
_STAMP = r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?"
# What is put before every line, by whom. Each takes one blank after it at most: columns count.
# With whether one line alone is enough to know it by.
_PREFIXES = (
    (re.compile(r"\[[^\]\s]{1,200}\]<std(?:out|err|diag)>: ?"), True),  # mpirun --tag-output
    (re.compile(_STAMP + r"(?: std(?:out|err) [FP])?(?: |$)"), True),  # container logs, ts
    (
        re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [^\s:]+: ?"),
        True,
    ),  # syslog, journalctl
    (re.compile(r" *\d+: "), False),  # srun --label
    (re.compile(r"\[\d+(?:,\d+)?\](?: |$)"), False),  # torchrun and the like: [rank]
)
_LABEL = re.compile(r"[\w.-]{1,64}:(?= |$)")  # pdsh, clush: the host
_BAR = re.compile(r"(?!GPU\d|NIC\d)[\w.-]{1,64} +\|(?: |$)")  # docker compose: the service
_COMMENT = re.compile(r"[ \t]*(?:#|>|//|\*)(?: |$)?")
MISSING = re.compile(
    r"(?:^|[\s:'\"`])(?P<tool>[\w./+-]+)['\"`]?: (?:command )?not found\b"
    r"|(?P<other>[\w./+-]+): No such file or directory\s*$"
    r"|'(?P<windows>[\w./+-]+)' is not recognized"
)


def clean(text: str) -> str:
    """The text without colours, NULs and a byte-order mark; every line ends with ``\\n`` alone."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    for odd, plain in (("\ufeff", ""), ("\x00", ""), ("\xa0", " "), ("\x0b", " "), ("\x0c", "\n")):
        if odd in text:
            text = text.replace(odd, plain)
    return text


def lines(text: str) -> list[str]:
    """The lines of :func:`clean`, without prefixes that stand before nearly all of them."""
    found = clean(text).split("\n")
    for _ in range(4):  # a logger's stamp before a launcher's tag before a label, as a comment
        if not (fewer := _without_prefix(found)):
            break
        found = fewer
    return found


def ends_whole(found: Sequence[str]) -> bool:
    """Whether the last of these lines had its end; without it that line may be cut."""
    return not found or not found[-1].strip()


def last_line(found: Sequence[str]) -> int:
    """The place of the last line that isn't blank; -1 without any."""
    return next((i for i in range(len(found) - 1, -1, -1) if found[i].strip()), -1)


def unlabelled(line: str) -> str:
    """A single line without a host's or task's name before it, which only a crowd can prove."""
    label = _LABEL.match(line)
    return line[label.end() :].lstrip() if label else line


def number(text: str) -> int | float | None:
    """``25`` or ``26.562``; None for what is no plain decimal number."""
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"[+-]?(?:\d+\.\d*|\.?\d+)(?:[eE][+-]?\d{1,3})?", text):
        value = float(text)
        return value if value - value == 0 else None  # 1e999 is infinite
    return None


def missing_tool(found: Sequence[str], *tools: str) -> str | None:
    """A shell's line that says that one of these tools isn't there."""
    for line in found[:200]:
        if len(line) < 400 and (match := MISSING.search(line)):
            name = match["tool"] or match["other"] or match["windows"]
            if name.rsplit("/", 1)[-1] in tools:
                return line.strip()
    return None


def _without_prefix(found: Sequence[str]) -> list[str] | None:
    full = [line for line in found if line.strip()]
    for prefix, alone in _PREFIXES:
        enough = sum(bool(prefix.match(line)) for line in full) * 5 > len(full) * 3
        if enough and (alone or len(full) > 1):
            return [prefix.sub("", line, count=1) if prefix.match(line) else line for line in found]
    if len(full) < 2:
        return None
    for mark in (_COMMENT, _BAR):
        if all(mark.match(line) for line in full):
            return [mark.sub("", line, count=1) for line in found]
    label = match[0] if (match := _LABEL.match(full[0])) else ""
    if label and all(f"{line} ".startswith(f"{label} ") for line in full):
        return [line.removeprefix(label).removeprefix(" ") for line in found]
    return None
