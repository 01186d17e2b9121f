"""Heat maps of the pairs: node × node, each cell relative to what is expected of it."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import combinations

from rackpin.findings import Measurement, Outcome, Report
from rackpin.report.slow import KIND, Slow, slow_of
from rackpin.report.text import cut, natural
from rackpin.report.verdict import SYMBOL, Kind

# Lower ends of the colours, in parts of what is expected; the last one has no lower end. Finer
# near 1, where a slow link begins to show; below 0.6 it doesn't matter any more how slow it is.
BANDS = (1.02, 0.98, 0.95, 0.90, 0.80, 0.60, 0.0)
HOVER_UP_TO = 96  # nodes: above it a text for every cell would outgrow the page
VALUES_UP_TO = 100  # nodes whose every value is listed
MOST_WORST = 60
_NAME = 40  # characters of a node's name in a cell's text


@dataclass(frozen=True)
class Cell:
    x: int
    y: int
    band: int
    title: str


@dataclass(frozen=True)
class PairsOfNode:
    """What one node's pairs gave, in GB/s; ``partner`` is who the slowest one was with."""

    node: str
    measured: int
    lowest: float
    partner: str
    median: float
    highest: float
    share: float | None  # of the median, in parts of what is expected


@dataclass(frozen=True)
class HeatMap:
    """All pairs with one NCCL. ``cells`` is empty for a large fleet: ``bands`` draws it then."""

    library: str
    nodes: list[str]
    expected: float | None  # GB/s: the commonest of the pairs, or None: then the median is 100 %
    median: float | None
    counts: Counter[Kind]
    missing: int
    cells: list[Cell] = field(default_factory=list)
    bands: dict[int, str] = field(default_factory=dict)  # band → SVG path
    signs: dict[str, str] = field(default_factory=dict)  # kind or "missing" → SVG path
    rows: list[PairsOfNode] = field(default_factory=list)
    worst: list[Slow] = field(default_factory=list)
    worst_left_out: int = 0
    values: list[tuple[str, list[str]]] = field(default_factory=list)


def maps_of(report: Report) -> list[HeatMap]:
    """One map for each NCCL that pairs were measured with."""
    by_library: dict[str, dict[frozenset[str], Measurement]] = defaultdict(dict)
    for one in report.measurements:
        if one.kind == "pair" and len(set(one.nodes)) == 2:
            by_library[one.library][frozenset(one.nodes)] = one
    return [_map(library, pairs) for library, pairs in by_library.items()]


def _map(library: str, pairs: dict[frozenset[str], Measurement]) -> HeatMap:
    nodes = sorted({name for pair in pairs for name in pair}, key=natural)
    figures = [one.expected_gb_s for one in pairs.values() if one.expected_gb_s]
    known = [one.busbw_gb_s for one in pairs.values() if one.busbw_gb_s is not None]
    expected = Counter(figures).most_common(1)[0][0] if figures else None
    median = statistics.median(known) if known else None
    bad = slow_of(pairs)
    made = HeatMap(
        library=library,
        nodes=nodes,
        expected=expected,
        median=median,
        counts=Counter(KIND[one.outcome] for one in pairs.values()),
        missing=len(nodes) * (len(nodes) - 1) // 2 - len(pairs),
        rows=_by_node(nodes, pairs, expected),
        worst=bad[:MOST_WORST],
        worst_left_out=max(0, len(bad) - MOST_WORST),
        values=_values(nodes, pairs) if len(nodes) <= VALUES_UP_TO else [],
    )
    _draw(made, pairs)
    return made


def share_of(one: Measurement, base: float | None) -> float | None:
    """A measurement in parts of what is expected of it, else of ``base``."""
    wish = one.expected_gb_s or base
    return None if one.busbw_gb_s is None or not wish else one.busbw_gb_s / wish


def band_of(share: float) -> int:
    return next((n for n, low in enumerate(BANDS) if share >= low), len(BANDS) - 1)


def _draw(made: HeatMap, pairs: dict[frozenset[str], Measurement]) -> None:
    """Both halves, so that a bad node is a whole row and column."""
    bands: dict[int, list[str]] = defaultdict(list)
    signs: dict[str, list[str]] = defaultdict(list)
    hover = len(made.nodes) <= HOVER_UP_TO
    for (x, one), (y, other) in combinations(enumerate(made.nodes), 2):
        pair = pairs.get(frozenset((one, other)))
        places = ((x, y), (y, x))
        if pair is None:
            signs["missing"] += [f"M{a}.3 {b}.7l.4-.4" for a, b in places]
            continue
        kind, share = KIND[pair.outcome], share_of(pair, made.median)
        if kind != "pass":
            signs[kind] += [_sign(kind, a, b) for a, b in places]
        if share is None:
            continue
        band = band_of(share)
        if hover:
            title = title_of(pair, share, one, other)
            made.cells.extend(Cell(a, b, band, title) for a, b in places)
        else:
            bands[band] += [f"M{a} {b}h1v1h-1z" for a, b in places]
    made.bands.update({band: "".join(parts) for band, parts in sorted(bands.items())})
    made.signs.update({name: "".join(parts) for name, parts in signs.items()})


def _sign(kind: str, x: int, y: int) -> str:
    """A cross, a stroke with a dot, or a ring: told apart without any colour."""
    if kind == "fail":
        return f"M{x}.25 {y}.25l.5.5m0-.5l-.5.5"
    if kind == "warn":
        return f"M{x}.5 {y}.2v.35m0 .2v.05"
    return f"M{x}.2 {y}.5a.3.3 0 1 0 .6 0a.3.3 0 1 0-.6 0"


def title_of(one: Measurement, share: float, first: str, second: str) -> str:
    text = f"{cut(first, _NAME)} – {cut(second, _NAME)}: {one.busbw_gb_s:.1f}, {share:.0%}"
    return text if one.outcome is Outcome.PASS else f"{text} {SYMBOL[KIND[one.outcome]]}"


def _by_node(
    nodes: list[str], pairs: dict[frozenset[str], Measurement], expected: float | None
) -> list[PairsOfNode]:
    """The slowest node first."""
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for one in pairs.values():
        if one.busbw_gb_s is not None:
            first, second = one.nodes
            found[first].append((one.busbw_gb_s, second))
            found[second].append((one.busbw_gb_s, first))
    rows = []
    for name in nodes:
        if not found[name]:
            continue
        values = [value for value, _ in found[name]]
        median = statistics.median(values)
        lowest, partner = min(found[name])
        share = median / expected if expected else None
        rows.append(PairsOfNode(name, len(values), lowest, partner, median, max(values), share))
    return sorted(rows, key=lambda row: (row.median, row.lowest))


def _values(
    nodes: list[str], pairs: dict[frozenset[str], Measurement]
) -> list[tuple[str, list[str]]]:
    """Each value once: a node, and its pairs with the nodes after it."""
    rows = []
    for place, name in enumerate(nodes[:-1]):
        made = []
        for other in nodes[place + 1 :]:
            pair = pairs.get(frozenset((name, other)))
            if pair is not None:
                value = "no figure" if pair.busbw_gb_s is None else f"{pair.busbw_gb_s:.1f}"
                mark = "" if pair.outcome is Outcome.PASS else f" {SYMBOL[KIND[pair.outcome]]}"
                made.append(f"{cut(other, _NAME)} {value}{mark}")
        if made:
            rows.append((name, made))
    return rows
