"""The terminal summary: what is wrong, what to do, and the verdict last, where eyes end up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rackpin.findings import Report
from rackpin.report import summary_parts as parts
from rackpin.report.nodes import NodeView
from rackpin.report.shape import presentable
from rackpin.report.summary_parts import STYLE
from rackpin.report.tasks import Task
from rackpin.report.text import clean, cut, duration, fold, one_line, plural
from rackpin.report.verdict import KINDS, SYMBOL, WORD, Kind
from rackpin.report.view import View, build

STATE_STYLE = {"ready": "green", "skipped": "magenta"}
PIPED_TASKS = 50  # a log has no height: enough to act on, not the whole report
LEAST_TASKS = 2


def terminal(
    report: Report, console: Console, html: Path | None = None, everything: bool = False
) -> None:
    """Print the summary of ``report``; ``html`` is named at the end.

    On a terminal it fits the window's height where that leaves room for two things to do;
    ``everything`` prints all of them. Nothing in the report is taken as markup.
    """
    view = build(presentable(report))
    head = [*_head(view, console), *_nodes(view, console, everything)]
    foot = [
        *parts.instances(view, console, everything),
        *parts.measured(view, console.width),
        *parts.outliers(view, console.width),
        *_verdict(view, html),
    ]
    room = None
    if not everything:
        used = sum(_height(console, item) for item in [*head, *foot])
        room = max(0, console.height - used - 2) if console.is_terminal else 10**6
    for item in [*head, *_tasks(view, console, room), *foot]:
        # The path of the HTML must stay one word to be clicked or copied.
        console.print(_safe(console, item), soft_wrap=bool(item.no_wrap), highlight=False)


def _head(view: View, console: Console) -> list[Text]:
    report = view.report
    first = Text.assemble(
        (report.fleet, "bold"),
        f"  {report.deploy} ({report.level}), stack {report.stack}, ",
        f"lock {report.lock.split(':')[-1][:12]}",
    )
    changes = sum(len(node.changes) for node in report.nodes)
    changed = sum(bool(node.changes) for node in report.nodes)
    executions = sum(node.remote_executions for node in report.nodes)
    what = f"{plural(changes, 'change')} on {plural(changed, 'node')}" if changes else "no changes"
    second = (
        f"{report.started}, {duration(report.seconds)}; {what}, "
        f"{plural(executions, 'remote execution')}"
    )
    made = [first, Text(second, "dim")]
    return [*made, parts.early()] if report.partial and not parts.low(console) else made


def _nodes(view: View, console: Console, everything: bool) -> list[Text]:
    bad = [n for n in view.nodes if not n.good and not n.kept_out and not n.is_fleet]
    good = [node for node in view.nodes if node.good and not node.is_fleet]
    most = len(bad) if everything else 2 if parts.low(console) else max(3, console.height // 8)
    shown = bad if len(bad) <= most else bad[: most - 1]
    made = [Text(), *_table(shown, console.width)] if shown else []
    rest = [node.name for node in bad[len(shown) :]]
    if rest:
        made.append(Text(f"{len(rest)} more not ready: {fold(rest, console.width - 25)}", "red"))
    if good:
        total: Counter[Kind] = sum((node.counts for node in good), Counter())
        names = fold([node.name for node in good], max(16, console.width - 50))
        line = Text(f"{len(good)} ready: {names}  ", "green")
        made.append(line.append_text(parts.counts(total)))
    return [*made, *parts.kept_out(view, console, everything)]


def _table(nodes: list[NodeView], width: int) -> list[Text]:
    """Name, state, counts and reason, one line a node; only the reason is shortened."""
    rows = []
    for node in nodes:
        stage = node.result.stage if node.result else ""
        why = ": ".join(part for part in (stage, one_line(node.reason)) if part)
        state = Text(node.state.replace("_", " "), STATE_STYLE.get(node.state, "red"))
        rows.append((Text(node.name), state, parts.counts(node.counts), Text(why)))
    wide = [max(row[column].cell_len for row in rows) for column in range(3)]
    lines = []
    for *cells, why_text in rows:
        line = Text()
        for cell, size in zip(cells, wide, strict=True):
            line.append_text(cell).append(" " * (size - cell.cell_len + 2))
        why_text.truncate(max(12, width - line.cell_len), overflow="ellipsis")
        line.append_text(why_text).rstrip()
        lines.append(line)
    return lines


def _tasks(view: View, console: Console, room: int | None) -> list[Text]:
    """What to do within ``room`` lines (None: all of it); warnings only as far as they fit."""
    made: list[Text] = []
    left: Counter[Kind] = Counter()
    for title, tasks, least in (
        ("What to do first", view.tasks, LEAST_TASKS),
        ("Worth a look", view.looks, 0),
    ):
        blocks = [_task(task, brief=room is not None) for task in tasks]
        used = sum(_height(console, line) for line in made)
        # Two lines for the title, one for what is left out.
        shown = _fitting(blocks, console, None if room is None else room - used - 3, least)
        if shown:
            made += [Text(), Text(title, "bold")]
            made += [line for block in blocks[:shown] for line in block]
        for task in tasks[shown:]:
            left[task.kind] += len(task.nodes)
    if left:
        kinds = ", ".join(f"{left[kind]} {WORD[kind]}" for kind in KINDS if left[kind])
        made.append(Text(f"… and {kinds}: `rackpin report --all`", "dim"))
    return made


def _fitting(blocks: Sequence[list[Text]], console: Console, room: int | None, least: int) -> int:
    if room is None:
        return len(blocks)
    most = PIPED_TASKS if not console.is_terminal else len(blocks)
    for count, block in enumerate(blocks[:most]):
        room -= sum(_height(console, line) for line in block)
        if room < 0 and count >= least:
            return count
    return min(most, len(blocks))


def _task(task: Task, brief: bool) -> list[Text]:
    """Two paragraphs: node, check and what was found; what to do."""
    limit = (lambda text, size: cut(one_line(text), size)) if brief else (lambda text, _: text)
    where = fold(task.nodes, 40 if brief else 400)
    if len(task.nodes) > 3:
        where += f" ({len(task.nodes)} nodes)"
    first = Text.assemble(
        (f"{SYMBOL[task.kind]} {where} {task.check or task.label}: ", STYLE[task.kind]),
        limit(task.found, 160),
    )
    if task.expected:
        first.append(f"; expected {limit(task.expected, 100)}")
    if task.others:
        first.append(f" (and {plural(len(task.others), 'other reading')})")
    if not task.remedy:
        return [first]
    return [first, Text(f"  → {limit(task.remedy, 190)}")]


def _verdict(view: View, html: Path | None) -> list[Text]:
    verdict = view.verdict
    word = ("READY", "bold green") if verdict.ready else ("NOT READY", "bold red")
    lines = [
        Text(f"the run called itself ready, but {line}") for line in verdict.contradictions[:3]
    ]
    if view.report.partial:
        lines.append(parts.early())
    lines.append(Text.assemble(word, f": {verdict.line}"))
    if html is not None:
        lines.append(Text(clean(str(html)), no_wrap=True))
    return lines


def _height(console: Console, text: Text) -> int:
    return len(text.wrap(console, console.width))


def _safe(console: Console, text: Text) -> Text:
    """The same text in characters that this console's encoding has, one for one."""
    if console.encoding.lower().startswith("utf"):
        return text
    swap = str.maketrans(
        {"✕": "x", "✓": "+", "○": "o", "→": ">", "…": "~", "×": "x", "⊘": "-", "–": "-"}
    )
    plain = text.plain.translate(swap).encode(console.encoding, "replace")
    made = text.copy()
    made.plain = plain.decode(console.encoding)
    return made
