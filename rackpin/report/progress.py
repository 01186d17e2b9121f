"""What a running verify is at: a few live lines on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rackpin.findings import Finding
from rackpin.report.summary_parts import STYLE, counts
from rackpin.report.text import clean, cut, duration, fold, one_line, plural
from rackpin.report.verdict import SYMBOL, Kind, kind_of

REFRESH = 4  # a second: the clock moves, and a slow terminal keeps up
PLAIN_EVERY_S = 10.0  # between two lines of a log that say how far it is
GROUPS, TROUBLES = 6, 5  # lines of each, so that all fits 80 × 24
BAR = 20  # characters
OTHER = "other"  # nodes of no group


class Progress:
    """Shown while nodes are asked; a context manager, so that the terminal is always given back.

    ``nodes`` maps each node that is asked to its groups; a node counts in its first one. On a
    terminal the lines are gone at the end, but for what was told and a last line. Nothing in
    a text is taken as markup, and no control character reaches the terminal.
    """

    def __init__(
        self,
        nodes: Mapping[str, Sequence[str]],
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._groups = {
            one_line(name): one_line(groups[0]) if groups else OTHER
            for name, groups in nodes.items()
        }
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._started = self._said = clock()
        self._name, self._total = "", 0
        self._open: set[str] | None = set(
            self._groups
        )  # not done yet; None: steps are not of nodes
        self._done = 0
        self._counts: Counter[Kind] = Counter()
        self._troubles: list[Text] = []
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                get_renderable=self._shown,
                console=self._console,
                refresh_per_second=REFRESH,
                transient=True,
            )
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Gives the terminal back and says how far it came; an exception goes on its way."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        how = "asked" if kind is None else "stopped"
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            how = "interrupted"
        line = Text(f"{how} after {self._elapsed()}: {self._step()}; ")
        self._say(line.append_text(counts(self._counts)))

    def phase(self, name: str, total: int) -> None:
        """A new step begins: ``total`` nodes, pairs or rounds will be done in it.

        With as many as there are nodes, the nodes that are still waited for are shown.
        """
        self._name, self._total, self._done = one_line(name), total, 0
        self._open = set(self._groups) if total == len(self._groups) else None
        self._said = self._clock()
        if self._live is None:
            self._say(Text(f"{self._name}: {total} to do" if total else self._name))

    def node_done(self, name: str, findings: Sequence[Finding]) -> None:
        """One of the step's total is done: a node, a pair by its own name, or the fleet."""
        self._done += 1
        if self._open is not None:
            self._open.discard(one_line(name))
        found = Counter(kind_of(finding) for finding in findings)
        self._counts += found
        bad = next((f for f in findings if kind_of(f) in ("fail", "blocked")), None)
        if bad is not None:
            self._trouble(bad, found["fail"] + found["blocked"] - 1)
        elif self._live is None and self._clock() - self._said >= PLAIN_EVERY_S:
            self._tell_how_far()
        if self._done == self._total and self._live is None:
            self._tell_how_far()

    def tell(self, text: str) -> None:
        """A line that stays, above what moves."""
        self._say(Text(clean(text)))

    def _trouble(self, bad: Finding, more: int) -> None:
        kind = kind_of(bad)
        line = Text(f"{SYMBOL[kind]} {one_line(bad.node)} {one_line(bad.check)}: ", STYLE[kind])
        line.append(cut(one_line(bad.summary), 160), "default")
        if more:
            line.append(f" (and {more} more)", "dim")
        if self._live is None:
            self._say(line)
        self._troubles.append(line)

    def _tell_how_far(self) -> None:
        self._said = self._clock()
        self._say(Text(f"{self._step()} after {self._elapsed()}{self._waiting_for()}"))

    def _say(self, text: Text) -> None:
        self._console.print(text, soft_wrap=self._live is None, highlight=False)

    def _elapsed(self) -> str:
        return duration(self._clock() - self._started)

    def _step(self) -> str:
        if self._name and not self._total:  # how many there will be is not known before
            return self._name
        return f"{self._name}: {self._done} of {self._total} done" if self._name else "no step yet"

    def _waiting_for(self) -> str:
        return f"; waiting for {fold(sorted(self._open), 100)}" if self._open else ""

    def _shown(self) -> Group:
        """The live part: never higher than 2 + GROUPS + TROUBLES lines, never wider than it is."""
        width = self._console.width
        part = self._done / self._total if self._total else 0.0
        head = Text(f"{_bar(part)} ", "cyan").append(f"{self._step()}, {self._elapsed()}  ", "bold")
        lines = [head.append_text(counts(self._counts) if self._counts else Text())]
        lines += self._group_lines(width)
        hidden = len(self._troubles) - TROUBLES
        lines += self._troubles[-TROUBLES:] if hidden <= 0 else self._troubles[1 - TROUBLES :]
        if hidden > 0:
            lines.append(Text(f"… and {plural(hidden + 1, 'node')} before with trouble", "dim"))
        for number, line in enumerate(lines):
            lines[number] = short = line.copy()
            short.truncate(width, overflow="ellipsis")
        return Group(*lines)

    def _group_lines(self, width: int) -> list[Text]:
        """``workers  41 of 60  waiting for gpu-[042-060]``, those with most to do first."""
        if self._open is None:
            return []
        total = Counter(self._groups.values())
        left: dict[str, list[str]] = {}
        for name in sorted(self._open):
            left.setdefault(self._groups[name], []).append(name)
        ranked = sorted(left, key=lambda group: -len(left[group]))
        wide = min(24, max((len(group) for group in ranked), default=0))
        lines = []
        for group in ranked[:GROUPS]:
            done = total[group] - len(left[group])
            line = f"  {cut(group, wide):{wide}}  {done:3} of {total[group]:<3}"
            line += "  waiting for "
            lines.append(Text(line + fold(left[group], max(16, width - len(line)))))
        more = ranked[GROUPS:]
        if more:
            lines[-1] = Text(f"  and {len(more) + 1} more groups: {fold(more, width - 20)}", "dim")
        return lines


def _bar(part: float) -> str:
    full = round(BAR * min(1.0, max(0.0, part)))
    return "█" * full + "░" * (BAR - full)
