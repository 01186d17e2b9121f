"""How a roll reaches nodes, gateways and pyinfra; given to it, so that tests go every way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rackpin import deadlines, layout
from rackpin.adopt.look import look
from rackpin.checks import probe, procinfo
from rackpin.checks.base import NO_ANSWER, Command, Output, one_line, unseen
from rackpin.child import dying_with_parent, pyinfra_argv
from rackpin.desired import Target
from rackpin.findings import Report
from rackpin.fleet import quarantine
from rackpin.gateway import drain
from rackpin.gateway.drain import Told
from rackpin.inventory import Fleet, Instance
from rackpin.inventory_open import Opened
from rackpin.rebuild.look import STOP_S
from rackpin.roll.change import change
from rackpin.roll.model import Change
from rackpin.roll.store import FileStore
from rackpin.verify.connect import Connections
from rackpin.verify.idle import HOLDERS, busy

Say = Callable[[str], None]
REPORT = re.compile(r"Report: (\S.*)\.html\s*$", re.MULTILINE)
LAST = 12  # lines of a failed run that are shown; its log has all
# Engines first on every node of a wave, then Ray's workers, the head at last.
STOPPED = ("vllm@*.service", layout.RAY_WORKER_UNIT, layout.RAY_HEAD_UNIT)
# Disabled, so that a reboot on the way starts nothing before the stages were there.
STOP = """\
found=$( (systemctl list-unit-files --plain --no-legend --state=enabled '{0}'
  systemctl list-units --all --plain --no-legend --state=active,activating,reloading '{0}'
  ) | cut -d ' ' -f 1 | sort -u)
[ -z "$found" ] || systemctl disable --quiet --now -- $found
"""


@dataclass(frozen=True)
class Applied:
    """What a run of site.py came to, by node; ``why`` is empty for a node that is ready."""

    why: Mapping[str, str]
    report: str = ""


@dataclass(frozen=True)
class Up:
    """Whether an engine answers, and which start of its unit this is."""

    why: str  # "" when it does
    start: str = ""


class Hands(Protocol):
    def fleet(self) -> Fleet:
        """With quarantine, drains and the open roll as they stand now."""

    def look(self, names: Sequence[str], restart: bool) -> dict[str, Change]: ...

    def tell(self) -> Told:
        """Every gateway learns who is drained."""

    def wait_quiet(self, engine: Instance, limit_s: float, say: Say) -> tuple[bool, str]: ...

    def up(self, engines: Sequence[Instance]) -> dict[str, Up]: ...

    def stop(self, nodes: Sequence[str]) -> dict[str, str]:
        """Stop and disable Ray and engines; by node what went wrong, or still holds a card."""

    def apply(self, nodes: Sequence[str], log: Path, level: str) -> Applied: ...

    def pause(self, seconds: float) -> None: ...


@dataclass
class SshHands:
    """The real ones. ``raw``: the inventory without its state."""

    raw: Opened
    data: Sequence[str]
    group_data: Sequence[str]
    roll: str  # its id: its own runs of site.py are let through
    stacks_dir: str = ""
    child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def fleet(self) -> Fleet:
        return quarantine.applied(self.raw.fleet)

    def reach(self) -> Connections:
        return Connections(self.raw.made)  # new ones each time: nodes reboot

    def look(self, names: Sequence[str], restart: bool) -> dict[str, Change]:
        fleet, lock = self.fleet(), self.raw.lock
        with self.reach() as ways:

            def one(name: str) -> Change:
                target = Target(fleet, fleet.nodes[name], lock)
                try:
                    found, target, outputs = look(target, ways, [procinfo.COMMAND])
                    return change(target, found, outputs, restart)
                except Exception as error:  # an odd answer of one node is its own trouble
                    why = [f"{type(error).__name__}: {error}"]
                    return Change(node=name, kind="unseen", why=why, remedy="see the node's log")

            found: dict[str, Change] = ways.each(list(names), one)
        return found

    def tell(self) -> Told:
        gateways = [node.name for node in self.fleet().gateways]
        if not gateways:
            return Told(True, "there is no gateway")
        turn = quarantine.state_of(self.raw.fleet).turn
        env = self._environment()
        return drain.tell(self.raw.file, self.data, self.group_data, gateways, turn, env)

    def wait_quiet(self, engine: Instance, limit_s: float, say: Say) -> tuple[bool, str]:
        with self.reach() as ways:
            return drain.wait_quiet(ways.ask, self.fleet(), engine, limit_s, say)

    def up(self, engines: Sequence[Instance]) -> dict[str, Up]:
        asked: dict[str, list[Command]] = {}
        for one in engines:
            asked.setdefault(one.nodes[0], []).append(health(self.raw.fleet, one))
        with self.reach() as ways:
            answers = ways.ask(asked)
        return {
            one.name: is_up(
                health(self.raw.fleet, one),
                answers.get(one.nodes[0], {}).get(f"health.{one.name}", NO_ANSWER),
            )
            for one in engines
        }

    def stop(self, nodes: Sequence[str]) -> dict[str, str]:
        wrong: dict[str, str] = {}
        with self.reach() as ways:
            for pattern in STOPPED:
                command = Command("stop", STOP.format(pattern), STOP_S, slow=True)
                answers = ways.ask({name: [command] for name in nodes if name not in wrong})
                for name, told in answers.items():
                    output = told.get("stop", NO_ANSWER)
                    if not output.ok:
                        why = unseen(command, output) or one_line(output.stderr, 200)
                        wrong[name] = f"{pattern} did not stop: {why or f'status {output.rc}'}"
            answers = ways.ask({name: [HOLDERS] for name in nodes if name not in wrong})
        for name, told in answers.items():
            if left := busy(told.get(HOLDERS.name, NO_ANSWER)):
                wrong[name] = f"its cards are still held by {', '.join(left[:4])}"
        return wrong

    def apply(self, nodes: Sequence[str], log: Path, level: str) -> Applied:
        data = [*self.data, *([f"verify_level={level}"] if level else [])]
        argv = pyinfra_argv(self.raw.file, "deploys/site.py", nodes, data, self.group_data)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            began = file.tell()
            self.child = subprocess.Popen(
                argv, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=self._environment(), start_new_session=True, preexec_fn=dying_with_parent(),
            )  # fmt: skip
            try:
                code = self.child.wait(deadlines.ROLL_APPLY_S)
            except subprocess.TimeoutExpired:
                self.end_child()
                code = None
            except KeyboardInterrupt:
                self.end_child()
                raise
        text = log.read_bytes()[began:].decode("utf-8", "replace")
        return judged(nodes, code, text, log)

    def end_child(self) -> None:
        """As ^C would: it says what it did, and ends what it started."""
        if self.child is None:
            return
        self.child.send_signal(signal.SIGINT)
        try:
            self.child.wait(deadlines.INTERRUPT_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def _environment(self) -> dict[str, str]:
        more = {FileStore.OWN: self.roll}
        if self.stacks_dir:
            more["RACKPIN_STACKS"] = self.stacks_dir
        return os.environ | more


def judged(nodes: Sequence[str], code: int | None, text: str, log: Path) -> Applied:
    """By node, from the report that the run says it wrote."""
    found = REPORT.findall(text)
    last = "\n".join(text.strip().splitlines()[-LAST:])
    if code is None:
        return Applied(dict.fromkeys(nodes, f"not done in {deadlines.ROLL_APPLY_S} s; see {log}"))
    if not found:
        why = f"the run ended with {code} and without a report; see {log}"
        words = {name: _last_word(name, text) for name in nodes}
        return Applied({n: f"{w}; {why}" if w else f"{why}:\n{last}" for n, w in words.items()})
    path = Path(f"{found[-1]}.json")
    try:
        report = Report.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return Applied(dict.fromkeys(nodes, f"{path}: can't be read ({error})"))
    said = {
        one.name: "" if one.state == "ready" else f"{one.state}: {one.reason or one.stage}"
        for one in report.nodes
    }
    # what is said of all of them holds for each; a node alone may be ready beside it
    return Applied(
        {name: said.get(name, "the report doesn't name it") for name in nodes}, str(path)
    )


def _last_word(name: str, text: str) -> str:
    """What pyinfra said of this host at last: ``[w1]    Could not connect (timed out)``."""
    lines = [line.partition(f"[{name}]")[2] for line in text.splitlines() if f"[{name}]" in line]
    return one_line(lines[-1], 200) if lines else ""


def health(fleet: Fleet, engine: Instance) -> Command:
    params: dict[str, Any] = {
        "unit": layout.vllm_unit(engine.name),
        "host": fleet.nodes[engine.nodes[0]].address,
        "port": engine.port,
        "request_s": drain.REQUEST_S,
    }
    script = probe.text("health", params=params)
    return Command(f"health.{engine.name}", "exec /usr/bin/python3 -I -", drain.ASK_S, stdin=script)


def is_up(asked: Command, output: Output) -> Up:
    if why := unseen(asked, output):
        return Up(why)
    try:
        facts = probe.answer(output.stdout)
    except ValueError as error:
        return Up(f"{error}: {one_line(output.stderr, 200)}")
    if "error" in facts:
        return Up(one_line(str(facts["error"]), 200))
    unit = facts.get("unit", {})
    state = unit.get("ActiveState", "unknown")
    start = unit.get("ActiveEnterTimestampMonotonic", "")
    if state != "active":
        return Up(f"its unit is {state}", start)
    if facts.get("status") != 200:
        return Up(f"/health says {facts.get('status') or 'nothing'}", start)
    return Up("", start)
