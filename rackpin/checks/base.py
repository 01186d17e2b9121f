"""What a check is: commands to ask on a node, and a pure judgement of their output."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from rackpin.findings import Evidence, Finding, Level, Outcome
from rackpin.inventory import Fleet, Node
from rackpin.parse.sections import split
from rackpin.stack.lock import Lock

EVIDENCE_CHARS = 4000  # what a person still reads of one output
NOT_FOUND = 127  # the shell's status for a program that isn't there
LISTED = 6  # faults named in a summary; the evidence has all
AGAIN = "run the verification again; when it stays so, try the command on the node"
INACTIVE = 75  # our own scripts' status: the unit to be asked isn't running

# Values that follow a secret's name in logs, arguments and unit files; keys known by their shape.
_SECRET = re.compile(
    r"(?i)((?:api[_-]?key|token|secret|passw(?:or)?d|authorization)[\"']?"
    r"\s*[=:]\s*[\"'\[]*(?:bearer\s+)?|--[a-z-]*(?:key|token|secret|password)\s+|bearer\s+)"
    r"[^\s\"',\]]{4,}"
)
_KEY = re.compile(r"\b(?:sk|hf)[-_][A-Za-z0-9_-]{16,}")


@dataclass(frozen=True)
class Command:
    """One command, run as root: shell text, deadline in seconds, stdin (a script).

    ``name`` is unique on a node; two checks that need the same answer share the command.
    ``slow`` ones run beside the others. ``writes``: it keeps files of its own, as apt its cache
    (40 MB and more), so the bound on the size of files is not for it. ``together``: all such ones
    run in one shell with one deadline; when it passes, the rest of them has no answer.
    """

    name: str
    shell: str
    deadline_s: float = 10.0
    stdin: str = ""
    slow: bool = False
    writes: bool = False
    together: bool = False


@dataclass(frozen=True)
class Output:
    """What a command gave. ``rc`` is None when no whole answer came; 124 or 137: its deadline."""

    rc: int | None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    truncated: bool = False  # printed more than the batch keeps

    @property
    def timed_out(self) -> bool:
        return self.rc in (124, 137)

    @property
    def ok(self) -> bool:
        return self.rc == 0 and not self.truncated


# What must be so for a check to be asked: Ray and engines run there; nothing uses the cards.
Need = Literal["serving", "idle"]
Needs = frozenset[Need]
NOTHING: Needs = frozenset()
SERVING: Needs = frozenset({"serving"})
IDLE: Needs = frozenset({"idle"})

Outputs = Mapping[str, Output]
NO_ANSWER = Output(rc=None)


@dataclass(frozen=True)
class Context:
    """All that a judgement may know: no connection, no clock of its own."""

    fleet: Fleet
    node: Node
    lock: Lock
    extra: dict[str, str] = field(default_factory=dict)
    # "CHECK METRIC" → this node's values in earlier runs with the same lock, the newest last
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Check(Protocol):
    """One module of :mod:`rackpin.checks` holds one of these as ``CHECK``."""

    @property
    def id(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def level(self) -> Level:
        """The lowest level of verify that asks it."""

    @property
    def needs(self) -> Needs: ...

    def commands(self, ctx: Context) -> Sequence[Command]:
        """What to ask of this node; empty when the check doesn't concern it."""

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        """Findings from the outputs, by command name. Must not raise on any text."""


# Runs the commands of one node, returns the outputs by command name.
Runner = Callable[[Sequence[Command]], dict[str, Output]]


@dataclass(frozen=True)
class Question:
    """The fixed part of a finding: who was asked what, what came, and what should have come."""

    ctx: Context
    check: str
    asked: Command | None = None
    output: Output | None = None
    expected: str = ""
    source: str = ""

    def answer(
        self,
        outcome: Outcome,
        summary: str,
        *,
        shown: str | None = None,
        remedy: str = "",
        metrics: Mapping[str, float] | None = None,
        required: bool = True,
    ) -> Finding:
        """Evidence is ``shown``, or what the command printed; both are cut and masked."""
        text = shown if shown is not None else _said(self.output)
        asked, output = self.asked, self.output
        return Finding(
            node=self.ctx.node.name,
            check=self.check,
            outcome=outcome,
            summary=mask(one_line(summary, 800)),
            expected=self.expected,
            evidence=Evidence(
                command=mask(one_line(asked.shell, 300)) if asked else "",
                output=mask(cut(text)),
                seconds=output.seconds if output and output.rc is not None else None,
            ),
            remedy="" if outcome is Outcome.PASS else remedy,
            source=self.source,
            required=required,
            metrics=dict(metrics or {}),
        )

    def verdict(
        self,
        good: str,
        faults: Sequence[str],
        worries: Sequence[str] = (),
        *,
        shown: str | None = None,
        remedy: str = "",
        metrics: Mapping[str, float] | None = None,
    ) -> Finding:
        """``fail`` with faults, ``warn`` with worries only, else ``pass`` with ``good``."""
        listed = [*faults, *worries]
        summary = "; ".join(listed[:LISTED])
        if len(listed) > LISTED:
            summary += f"; {len(listed) - LISTED} more"
        outcome = Outcome.FAIL if faults else Outcome.WARN if worries else Outcome.PASS
        return self.answer(outcome, summary or good, shown=shown, remedy=remedy, metrics=metrics)

    def not_run(self, why: str, *, remedy: str = AGAIN, required: bool = True) -> Finding:
        """The question couldn't be asked or its answer couldn't be read. Never a pass."""
        summary = f"not checked: {why}"
        return self.answer(Outcome.NOT_RUN, summary, remedy=remedy, required=required)


def unseen(asked: Command, output: Output) -> str | None:
    """Why this output can't be judged at all; None when the command ran to its own end."""
    if output.rc is None:
        why = one_line(output.stderr) or "the answer was cut, or the node's time was used up"
        return f"no answer from the node: {why}"
    if output.timed_out:
        return f"no answer within {output.seconds or asked.deadline_s:.0f} s"
    if output.rc == NOT_FOUND:
        return f"a program is missing: {one_line(output.stderr) or one_line(output.stdout)}"
    if output.truncated:
        return "it printed more than is kept, so what was seen may not be all"
    return None


def mask(text: str) -> str:
    """The text without the values of keys, tokens and passwords."""
    return _KEY.sub("***", _SECRET.sub(r"\1***", text))


def cut(text: str, limit: int = EVIDENCE_CHARS) -> str:
    """Head and tail of a long text: errors stand at either end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def one_line(text: str, limit: int = 400) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"


def sections(text: str) -> dict[str, str]:
    """Text by its ``## title`` line: how our own scripts part several answers."""
    return {
        title: "".join(f"{line}\n" for line in lines)
        for title, lines in split(text.splitlines()).items()
    }


def _said(output: Output | None) -> str:
    if output is None:
        return ""
    parts = [output.stdout.rstrip(), output.stderr.rstrip()]
    if output.rc not in (0, None):
        parts.append(f"(exit status {output.rc})")
    return "\n".join(part for part in parts if part)
