"""Text for people: hostile bytes made visible, long text cut, names folded, times in words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

_SGR = re.compile("\x1b\\[[0-9;:]*m")  # colours only; every other escape stays visible
_NUMBERED = re.compile(r"^([^.]*?)(\d+)([^.\d]*(?:\..*)?)$")
_BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]

# Control characters, 0x80-0x9f too: 0x9b alone starts an escape on some terminals.
_CONTROL = (*range(0x20), *range(0x7F, 0xA0))
_VISIBLE: dict[int, str] = {code: f"\\x{code:02x}" for code in _CONTROL}
_VISIBLE.update({code: f"<U+{code:04X}>" for code in _BIDI})  # they reorder what is read
_VISIBLE.update({code: "\ufffd" for code in (*range(0xD800, 0xE000), 0xFFFE, 0xFFFF)})
_VISIBLE.update({0x2028: "\n", 0x2029: "\n"})
for _kept in (0x09, 0x0A):
    del _VISIBLE[_kept]
_ACTS = re.compile("[" + "".join(re.escape(chr(code)) for code in _VISIBLE) + "]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Text that a browser, a terminal or an XML parser can show and none will act on."""
    if not _ACTS.search(text):  # nearly all text, and much faster than translating it
        return text
    text = _SGR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(_VISIBLE)


def one_line(text: str) -> str:
    """Cleaned text with every run of white space as one blank."""
    return " ".join(clean(text).split())


def encodable(text: str) -> str:
    """The same text where a lone surrogate, which UTF-8 can't carry, is U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters: the beginning, a note of what is missing, the end."""
    if len(text) <= limit:
        return text
    if limit < 200:  # too short for a note that says how much
        return text[: max(0, limit - 1)] + "…"[:limit]
    room = limit - 50  # the note is shorter than that
    tail = room * 2 // 5
    return f"{text[: room - tail]}\n[… {len(text) - room} characters cut …]\n{text[-tail:]}"


def fair_cap(sizes: Iterable[int], budget: int) -> int:
    """The largest size so that all items, cut to it, fit in ``budget``; short ones stay whole."""
    left, ordered = budget, sorted(sizes)
    for position, size in enumerate(ordered):
        share = left // (len(ordered) - position)
        if size > share:
            return share
        left -= size
    return ordered[-1] if ordered else budget


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key under which ``gpu-2`` comes before ``gpu-10``."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((int(p), "") if p.isdecimal() else (-1, p) for p in parts)


def fold(names: Sequence[str], limit: int = 60) -> str:
    """``gpu[001-004,007], head``: node names as operators write them, about ``limit`` long."""
    numbered: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    order: list[tuple[str, str, int] | str] = []
    for name in sorted(set(names), key=natural):
        match = _NUMBERED.match(name)
        if match is None or len(match[2]) > 9 or not match[2].isascii():
            order.append(name)
            continue
        key = (match[1], match[3], len(match[2]))
        if key not in numbered:
            order.append(key)
        numbered[key].append(int(match[2]))
    parts: list[tuple[str, int]] = []
    for item in order:
        if isinstance(item, str):
            parts.append((item, 1))
            continue
        prefix, suffix, width = item
        spans = _spans(numbered[item], width)
        body = spans[0] if len(numbered[item]) == 1 else f"[{','.join(spans)}]"
        parts.append((prefix + body + suffix, len(numbered[item])))
    return _within(parts, limit)


def _spans(numbers: list[int], width: int) -> list[str]:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
        for first, last in spans
    ]


def _within(parts: list[tuple[str, int]], limit: int) -> str:
    shown, left = "", sum(count for _, count in parts)
    for text, count in parts:
        joined = f"{shown}, {text}" if shown else text
        if len(joined) > limit and shown:
            return f"{shown} and {left} more"
        shown, left = joined, left - count
    if len(shown) > limit and shown.find(",", limit // 2) > 0 and "[" in shown:
        return shown[: shown.rfind(",", 0, max(limit, shown.find(",") + 1)) + 1] + "…]"
    return cut(shown, max(limit, 16))


def duration(seconds: float) -> str:
    """``21 ms``, ``1.4 s``, ``42 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if seconds < 0.95:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def plural(count: int, one: str, many: str = "") -> str:
    """``1 node``, ``3 nodes``."""
    return f"{count} {one if count == 1 else many or one + 's'}"
