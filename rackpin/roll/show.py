"""A plan and a roll for a person: what changes where, what it interrupts, who goes with whom."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackpin.fleet.state import FleetState
from rackpin.report.text import clean, cut, fold, plural
from rackpin.roll.model import Change, Kind, Plan
from rackpin.roll.run import how_to_go_on, standing
from rackpin.roll.store import Roll

WORDS: dict[Kind, tuple[str, str]] = {
    "nothing": ("nothing", "dim"),
    "apply": ("no interruption", "green"),
    "service": ("service", "yellow"),
    "reboot": ("reboot", "red"),
    "refused": ("refused", "bold red"),
    "unseen": ("not seen", "bold red"),
}
WHY = 100  # characters of one reason; the plan's file has all
SHOWN = 40  # lines of the table: nodes that are alike share one


def plan(one: Plan, console: Console) -> None:
    keep = one.options.keep_percent
    console.print(
        Text(f"roll {one.roll}: {one.fleet} to {one.stack}, lock {one.lock[:12]}", style="bold")
    )
    console.print(changes(one.changes))
    for number, wave in enumerate(one.waves, 1):
        names = fold(wave.units) if len(wave.units) > 1 else wave.units[0]
        console.print(Text(f"wave {number}, {wave.role}: {names}"))
    for name, each in one.capacity.items():
        console.print(
            Text(f"{name}: {each.total} by weight, never below {each.least} (--keep {keep:g})")
        )
    for name, why in one.left_out.items():
        console.print(Text(f"{name} is left out: {clean(why)}", style="yellow"))
    if not one.waves:
        console.print(Text("nothing to do: every node has it already", style="green"))


def changes(some: Sequence[Change]) -> Table:
    """Nodes with the same change on one line, the worst first."""
    alike: dict[tuple[str, ...], list[Change]] = {}
    for one in some:
        alike.setdefault((one.kind, *one.what, *one.why, one.remedy), []).append(one)
    made = Table(box=None, pad_edge=False)
    for title in ("nodes", "interrupts", "what changes, and why it interrupts"):
        made.add_column(title, overflow="fold")
    order = list(WORDS)
    groups = sorted(alike.values(), key=lambda g: -order.index(g[0].kind))
    for group in groups[:SHOWN]:
        one = group[0]
        word, style = WORDS[one.kind]
        lines = [clean(cut(text, WHY)) for text in (*one.what, *one.why)]
        lines += [f"→ {clean(one.remedy)}"] if one.remedy else []
        names = fold([c.node for c in group]) if len(group) > 1 else one.node
        made.add_row(Text(names), Text(word, style=style), Text("\n".join(lines)))
    if (more := len(groups) - SHOWN) > 0:
        made.add_row("…", "", f"{plural(more, 'more line')}: see the plan's file")
    return made


def status(roll: Roll, state: FleetState, writer: str, console: Console) -> None:
    one = roll.plan
    how = roll.ended or (f"run by {writer}" if writer else "stopped")
    title = f"roll {one.roll} of {one.owner}: {one.fleet} to {one.stack}, lock {one.lock[:12]}"
    console.print(Text(f"{title}: {how}", style="bold"))
    for line in standing(roll, state):
        console.print(Text(clean(line)))
    for name, found in roll.progress().items():
        if found.state == "begun":
            console.print(Text(f"  {name}: at {found.step or 'its beginning'} since {found.since}"))
    last = next((e for e in reversed(roll.events) if e.get("why")), None)
    if last and not roll.ended:
        console.print(Text(f"last said, {last['at']}: {clean(last['why'])}"))
    console.print(Text(f"files: {roll.directory}", style="dim"))
    if not roll.ended and not writer:
        console.print(Text(how_to_go_on(roll)))
