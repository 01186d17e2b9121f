"""The square tables of ``nvidia-smi topo``: devices by devices, a word in each cell.

Rows are found by their label wherever it stands in a line, so indentation, ``# `` and log prefixes
do no harm; tabs and spaces are both column ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin.parse.text import last_line

GPU = re.compile(r"GPU\d{1,4}")
SELF = "X"
_CELL = re.compile(r"X|NV\d{1,3}|[A-Z][A-Z0-9]{0,4}|N/A|-")
_PIECE = re.compile(rf"{_CELL.pattern}|[\d,-]+")
_GLUED = re.compile(r"(?:NODE|SYS|SOC|PIX|PXB|PHB|NV\d{1,3})(?=NODE|SYS|SOC|PIX|PXB|PHB|NV\d)")
_TOKEN = re.compile(r"\S+")
_AFFINITY = re.compile(r"(CPU|NUMA|Memory)\s+Affinity|GPU\s+NUMA\s+ID", re.IGNORECASE)
_EXTRA = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_TITLES = {"CPU", "NUMA", "GPU", "ID", "Affinity"}
_DEVICE = re.compile(r"[A-Za-z][\w.:-]{0,63}")
_WIDEST = 2000  # characters of a line that was broken
_DEEPEST = 8  # words of a prefix before the first column's name or a row's label


@dataclass(frozen=True)
class Matrix:
    """``rows`` has a device's cells in column order, and the fields after them by column name."""

    columns: tuple[str, ...]
    extra: tuple[str, ...]  # names of the affinity columns, as ``CPU Affinity``
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    after: dict[str, dict[str, str]] = field(default_factory=dict)
    headed: bool = True  # False: the header line is missing and the columns are the rows' labels

    def cell(self, row: str, column: int) -> str | None:
        cells = self.rows.get(row, ())
        return cells[column] if column < len(cells) else None


def matrices(found: Sequence[str], whole_end: bool = True) -> list[Matrix]:
    """All tables in these lines, in order; ``whole_end`` False: the last line may be cut.

    A row or a header that a narrow terminal has broken goes on in the lines below it.
    """
    tables: list[Matrix] = []
    columns: dict[str, int] = {}
    before = ""  # the line that this one may go on
    last = last_line(found)
    for place, line in enumerate(found):
        if not tables and "GPU" not in line:
            continue
        if "|" in line:
            line = line.replace("|", " ")
        if "GPU" in line and (header := _header(line)):
            columns = {name: index for index, name in enumerate(header.columns)}
            tables.append(header)
            before = line
            continue
        if not tables:
            continue
        cut = not whole_end and place == last
        label = _read_row(line, tables[-1], columns, cut)
        if label is None and before and len(before) < _WIDEST and _goes_on(line, tables[-1]):
            line = f"{before} {line.strip()}"
            label = _go_on(line, tables, columns, cut)
            if not tables[-1].rows:
                columns = {name: index for index, name in enumerate(tables[-1].columns)}
        before = "" if _is_done(label, tables[-1]) else line
    if not tables and (guess := _unheaded(found)):
        tables.append(guess)
    return tables


def _goes_on(line: str, table: Matrix) -> bool:
    """Whether a line can be the rest of a row; above the first row, of the header."""
    words = line.split()
    return bool(words) and (not table.rows or all(_PIECE.fullmatch(word) for word in words))


def _is_done(label: str | None, table: Matrix) -> bool:
    if label is None:
        return bool(table.rows)
    lacks = table.extra and GPU.fullmatch(label) and not table.after.get(label)
    return len(table.rows[label]) == len(table.columns) and not lacks


def _go_on(line: str, tables: list[Matrix], columns: dict[str, int], cut: bool) -> str | None:
    """The label of the row that has grown; a header's line gives a wider table."""
    if tables[-1].rows:
        label = next(reversed(tables[-1].rows))
        kept = tables[-1].rows.pop(label)
        if grown := _read_row(line, tables[-1], columns, cut):
            return grown
        tables[-1].rows[label] = kept
    elif header := _header(line):
        tables[-1] = header
    return None


def _header(line: str) -> Matrix | None:
    words = line.split()
    start = next((i for i, word in enumerate(words[:_DEEPEST]) if GPU.fullmatch(word)), None)
    if start is None:
        return None
    named = _AFFINITY.search(line)
    if named:
        words = line[: named.start()].split()
    broken = 0 if named else sum(word in _TITLES for word in words[-5:])
    columns = tuple(words[start : len(words) - broken])
    if not columns or len(set(columns)) < len(columns):
        return None
    if SELF in columns or not all(_DEVICE.fullmatch(word) for word in columns):
        return None
    if not named and not broken and not all(any(c.isdigit() for c in word) for word in columns):
        return None  # a sentence that begins with a GPU
    if any(re.fullmatch(r"NV\d+", word) for word in columns):
        return None  # a row whose own cell is cut off
    extra = tuple(" ".join(m[0].split()) for m in _AFFINITY.finditer(line))
    if broken and not extra:
        extra = _EXTRA  # the titles go on in the next line, the rows' fields are in this order
    return Matrix(columns, extra)


def _read_row(line: str, table: Matrix, columns: dict[str, int], cut: bool) -> str | None:
    """Put the row into the table; its label, None when the line is no row of it."""
    if _GLUED.search(line):  # where a terminal's line ended, a copy may have lost the blank
        line = _GLUED.sub(r"\g<0> ", line)
    tokens = list(_TOKEN.finditer(line))
    for place, token in enumerate(tokens[:_DEEPEST]):
        following = tokens[place + 1][0] if place + 1 < len(tokens) else ""
        if token[0] in columns and _CELL.fullmatch(following):
            break
    else:
        return None
    label = token[0]
    if label in table.rows:
        return None
    cells = []
    for token in tokens[place + 1 : place + 1 + len(columns)]:
        if not _CELL.fullmatch(token[0]):
            break
        cells.append(token[0])
    rest = line[tokens[place + len(cells)].end() :]
    if cut and not rest.strip() and cells and cells[-1] != SELF:
        cells = cells[:-1]  # NV1 may be the beginning of NV18
    own = columns[label]
    if own < len(cells) and cells[own] != SELF:
        return None  # not this table's row: a device is itself in its own column
    table.rows[label] = tuple(cells)
    if table.extra and len(cells) == len(columns):
        fields = _fields(rest, table.extra)
        if cut and fields:
            last = list(fields)[-1]
            alike = {other.get(last) for other in table.after.values()}
            if len(fields) < len(table.extra) or fields[last] not in alike:
                del fields[last]  # 0-1 may be the beginning of 0-11
        table.after[label] = fields
    return label


def _fields(rest: str, names: tuple[str, ...]) -> dict[str, str]:
    """The texts after the cells, by column; a blank one is left out."""
    words = rest.split()
    while len(words) > 1 and words[0].endswith(","):
        words[:2] = [words[0] + words[1]]  # a list of CPUs with blanks
    if len(words) >= len(names):
        return dict(zip(names, words, strict=False))
    if "\t" not in rest:  # which one is blank, only a list of CPUs in its place tells
        in_order = words and re.search(r"\d[,-]\d", words[0])
        return dict(zip(names, words, strict=False)) if in_order else {}
    # Only tabs tell which one is blank; a heading wider than a tab stop is followed by two.
    parts = [part.strip() for part in rest.split("\t")[1:]]
    placed = dict(zip(names[:2], parts, strict=False))
    if len(names) > 2 and (later := [part for part in parts[2:] if part]):
        placed[names[2]] = later[-1]
    return {name: text for name, text in placed.items() if text}


def _unheaded(found: Sequence[str]) -> Matrix | None:
    """A table without its header: then each row has its X where it stands among the rows."""
    rows: list[list[str]] = []
    for line in found:
        words = line.split()
        start = next((i for i, word in enumerate(words[:_DEEPEST]) if _DEVICE.fullmatch(word)), 0)
        if words[start + 1 :].count(SELF) == 1 and len(words) > start + 1:
            if words.index(SELF, start + 1) != start + 1 + len(rows):
                return None
            rows.append(words[start:])
    labels = tuple(row[0] for row in rows)
    if not any(GPU.fullmatch(label) for label in labels) or len(set(labels)) < len(labels):
        return None
    width = {len([word for word in row[1:] if _CELL.fullmatch(word)]) for row in rows}
    if min(width) < len(labels):
        return None
    table = Matrix(labels, _EXTRA, headed=False)
    for row in rows:
        table.rows[row[0]] = tuple(row[1 : 1 + len(labels)])
        table.after[row[0]] = _fields(" ".join(row[1 + len(labels) :]), table.extra)
    return table
