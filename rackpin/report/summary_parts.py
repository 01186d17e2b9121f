"""Parts of the terminal summary: counts, instances, collectives, outliers, quarantined nodes."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.text import Text

from rackpin.findings import Outcome
from rackpin.report.gauges import GaugeGroup
from rackpin.report.heat import HeatMap
from rackpin.report.slow import Slow
from rackpin.report.text import cut, fold, one_line, plural
from rackpin.report.verdict import EARLY, FLEET, KINDS, NO_REASON, QUARANTINE_SIGN, SYMBOL, Kind
from rackpin.report.view import View

STYLE = {"fail": "bold red", "blocked": "bold magenta", "not_run": "cyan", "warn": "yellow"}
_FEW = 2  # lines of a part that has many
LOW = 30  # lines: a terminal below it gets parts that say nothing new in one line each


def counts(counts: Counter[Kind]) -> Text:
    """``✕ 2  ! 1  ✓ 14``, or that nothing was asked."""
    if not counts:
        return Text("none made", "magenta")
    made = Text()
    for kind in KINDS:
        if counts[kind]:
            made.append("  " if made else "").append(
                f"{SYMBOL[kind]} {counts[kind]}", STYLE.get(kind, "green")
            )
    return made


def low(console: Console) -> bool:
    """A window with so few lines that each has to say something new."""
    return console.is_terminal and console.height < LOW


def early() -> Text:
    """Said first and last: a run that was cut short has not seen everything."""
    return Text(f" ENDED EARLY: {EARLY} ", "bold white on red")


def kept_out(view: View, console: Console, everything: bool) -> list[Text]:
    """Quarantined nodes with owner and reason, one line each; in a low window all in one."""
    nodes, width = view.kept_out, console.width
    most = len(nodes) if everything else 1 if low(console) else _FEW + 1
    shown = nodes if len(nodes) <= most else nodes[: most - 1]
    lines = []
    for node in shown:
        line = Text.assemble(
            (f"{QUARANTINE_SIGN} {node.name} quarantined", "blue"),
            f": {one_line(node.reason) or NO_REASON}",
        )
        if not everything:
            line.truncate(width, overflow="ellipsis")
        lines.append(line)
    rest = [node.name for node in nodes[len(shown) :]]
    if rest:
        names = fold(rest, max(16, width - 45))
        more = " more" if shown else ""
        text = f"{QUARANTINE_SIGN} {len(rest)}{more} quarantined: {names} (--all: by whom, why)"
        lines.append(Text(text, "blue"))
    return lines


def instances(view: View, console: Console, everything: bool) -> list[Text]:
    """Those in trouble first; in a low window those that serve are one line."""
    lines = [] if low(console) and not everything else [Text()]
    serving = all(one.state == "serving" for one, _ in view.instances)
    if serving and len(view.instances) > 1 and not everything and low(console):
        names = cut(", ".join(one.name for one, _ in view.instances), 40)
        total = plural(len(view.instances), "instance")
        return [*lines, Text(f"{SYMBOL['pass']} {total} serving: {names}", "green")]
    order = {"not_serving": 0, "unknown": 1, "serving": 2}
    ranked = sorted(view.instances, key=lambda pair: order[pair[0].state])
    shown = ranked if everything or len(ranked) <= 4 else ranked[:3]
    for one, _ in shown:
        kind = {"serving": "pass", "not_serving": "fail"}.get(one.state, "blocked")
        figures = [f"TP {one.tp} × PP {one.pp} on {fold(one.nodes, 24)}"]
        if one.ttft_s is not None:
            figures.append(f"first token {one.ttft_s:.2f} s")
        if one.tokens_per_s is not None:
            figures.append(f"{one.tokens_per_s:.0f} tokens/s")
        state = f"{SYMBOL[kind]} {one.name} {one.state.replace('_', ' ')}: "
        lines.append(Text.assemble((state, STYLE.get(kind, "green")), ", ".join(figures)))
    if len(shown) < len(ranked):
        states = Counter(one.state.replace("_", " ") for one, _ in ranked[len(shown) :])
        rest = ", ".join(f"{count} {state}" for state, count in states.items())
        lines.append(Text(f"  and {len(ranked) - len(shown)} more instances: {rest}"))
    return lines


def measured(view: View, width: int) -> list[Text]:
    """Collectives over all nodes, then the pairs with their slowest node, a line or two each."""
    lines = [
        _figure(group)
        for group in view.gauges
        # A check that failed is a task above already.
        if group.gauges[0].node == FLEET
        and (group.measured or group.gauges[0].kind in ("pass", "warn"))
    ]
    for heat in view.heat:
        lines += _pairs(heat, width)
    return lines


def outliers(view: View, width: int) -> list[Text]:
    """How many, on which nodes, and what."""
    if not view.outliers:
        return []
    total = len(view.outliers) + view.outliers_left_out
    kind: Kind = "fail" if any(o.outcome is Outcome.FAIL for o in view.outliers) else "warn"
    nodes = fold(list(dict.fromkeys(one.node for one in view.outliers)), 30)
    what = ", ".join(dict.fromkeys(one_line(one.what) for one in view.outliers))
    line = Text(f"{SYMBOL[kind]} {plural(total, 'outlier')} among siblings", STYLE[kind])
    line.append(f" on {nodes}: {what}", "default")
    line.truncate(width, overflow="ellipsis")
    return [line]


def _figure(group: GaugeGroup) -> Text:
    gauge = group.gauges[0]
    text = f"{SYMBOL[gauge.kind]} {group.title}: {gauge.value:.1f} GB/s busbw"
    if gauge.minimum is not None:
        text += f", at least {gauge.minimum:.1f}"
    return Text(text, STYLE.get(gauge.kind, "green"))


def _pairs(heat: HeatMap, width: int) -> list[Text]:
    kind = next(kind for kind in KINDS if heat.counts[kind])
    total = sum(heat.counts.values())
    line = counts(heat.counts).append(f"  of {plural(total, 'pair')}, {heat.library}'s NCCL")
    if heat.median is not None:
        line.append(f": median {heat.median:.1f} GB/s")
        line.append(f" of {heat.expected:g}" if heat.expected else ", no expectation recorded")
    line.truncate(width, overflow="ellipsis")
    if kind == "pass":
        return [line]
    text = f"  {'; '.join(_slow(one) for one in heat.worst[:3])}"
    more = len(heat.worst) + heat.worst_left_out - 3
    second = Text(text + (f" and {more} more" if more > 0 else ""))
    second.truncate(width, overflow="ellipsis")
    return [line, second]


def _slow(one: Slow) -> str:
    value = "no figure" if one.lowest is None else f"{one.lowest:.1f}"
    if len(one.nodes) == 1:
        partners = f"{one.bad} of {one.measured} partners"
        return f"{SYMBOL[one.kind]} {cut(one.nodes[0], 24)} with {partners}: from {value}"
    return f"{SYMBOL[one.kind]} {' – '.join(cut(name, 24) for name in one.nodes)}: {value}"
