"""``@fleet/NAME``: SSH with deadlines, without Nagle's delay, and with the survey.

pyinfra 3.10 has no fact cache: each operation asks its facts in Prepare and again in
Execute, one channel each. This connector can be told beforehand which facts a run will
ask (:meth:`FleetConnector.survey`), fetches them all in one remote execution, and
answers from that until something on the node is changed. Then the next fact fetches all again
that operations may ask; on a node where more is changed, only the second one after a change.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.state import StateStage
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from rackpin import deadlines, pyinfra_speed, runlog
from rackpin.checks.base import Command
from rackpin.checks.batch import script, split
from rackpin.pulse import Pulse

Fact = tuple[type[FactBase[Any]], dict[str, Any]]
FEW_CHANGES = 3  # a file and its trigger; a node that is being built has a hundred


class Ask(NamedTuple):
    """A fact's command as pyinfra gave it, with its arguments; and which fact it was."""

    command: StringCommand
    arguments: dict[str, Any]
    fact: Any = None
    given: Mapping[str, Any] = {}


Asked = list[Ask]
# The arguments that change what a command means; others (retries, timeout) don't.
IDENTITY = ("_sudo", "_sudo_user", "_su_user", "_doas", "_env", "_chdir", "_shell_executable")
FED = "sh -s"  # one program already: timeout needs no shell around it
# Of Linux's struct tcp_info: tcpi_bytes_acked and tcpi_bytes_received, after 120 bytes of others.
TCP_BYTES = struct.Struct("=120xQQ")


def raw(command: StringCommand | str) -> str:
    """The text that a shell gets; facts give plain strings too."""
    return command if isinstance(command, str) else command.get_raw_value()


def with_deadline(command: StringCommand, seconds: float) -> StringCommand:
    """The same command, ended by the node itself when it takes too long.

    ``timeout`` runs inside sudo, where it may signal what it started.
    """
    limit = f"{seconds:g}"
    shell = (command,) if raw(command) == FED else ("sh", "-c", QuoteString(command))
    return StringCommand("timeout", "-k", str(deadlines.KILL_AFTER_S), limit, *shell)


def tcp_bytes(sock: socket.socket | None) -> tuple[int, int]:
    """What a connection sent and received so far, ssh's own words included; (0, 0) without one."""
    if sock is None or sock.fileno() < 0:
        return 0, 0
    sent, received = TCP_BYTES.unpack(
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_BYTES.size)
    )
    return sent, received


def grouped(asked: Asked) -> Iterable[Asked]:
    """Facts that one command can answer are asked by one; each other by its own."""
    groups: dict[Any, Asked] = {}
    for number, one in enumerate(asked):
        groups.setdefault(one.fact if hasattr(one.fact, "together") else number, []).append(one)
    return groups.values()


def command_of(group: Asked) -> str:
    if len(group) == 1:
        return raw(group[0].command)
    return str(group[0].fact.together([one.given for one in group]))


class FleetConnector(SSHConnector):
    handles_execution = True
    pulse: Pulse | None = None  # of the open connection
    _sock: socket.socket | None = None  # None behind a jump host: its bytes aren't counted
    _before = (0, 0)  # bytes of this run's earlier connections

    def __init__(self, state: Any, host: Any) -> None:
        super().__init__(state, host)
        self._answers: dict[tuple[str, ...], CommandOutput] = {}
        self._recorded: Asked | None = None
        self._again: dict[tuple[str, ...], Asked] = {}  # facts that operations may ask, by key
        self._changes = 0  # of this run
        self._since = 0  # facts that were asked since the last change
        self.executions = 0  # remote executions and file transfers of this run
        self.misses = 0  # facts that had to be asked one by one
        self.stage = ""  # of the operation that is under way
        self.working: dict[str, float] = {}  # seconds of operations' own commands, by stage

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        yield name, {"ssh_hostname": name}, ["@fleet"]

    # -- connection -------------------------------------------------------------
    def connect(self) -> None:
        pyinfra_speed.apply()
        runlog.begin(self.state)  # validates the whole inventory, before any host is touched
        super().connect()

    def _connect(self) -> None:
        super()._connect()
        transport = self.client.get_transport()
        transport.set_keepalive(deadlines.TCP_SILENT_S // 4)
        self.pulse = Pulse(transport, self.host.log)
        sock = transport.sock
        if isinstance(sock, socket.socket):  # a jump host gives a channel instead
            self._sock = sock
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, deadlines.TCP_SILENT_S * 1000
            )

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent to the node and received from it in this run."""
        sent, received = tcp_bytes(self._sock)
        return self._before[0] + sent, self._before[1] + received

    def disconnect(self) -> None:
        self._before, self._sock = self.traffic, None
        super().disconnect()
        if self.pulse is not None:
            self.pulse.stop()
        if self.client is not None:
            self.client.close()  # pyinfra leaves it open, as a node that reboots would

    # -- commands ---------------------------------------------------------------
    def run_shell_command(
        self,
        command: StringCommand,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> tuple[bool, CommandOutput]:
        if self._recorded is not None:
            self._recorded.append(Ask(command, arguments))
            return True, CommandOutput([])
        preparing = self.state.current_stage < StateStage.Execute
        key = self._key(command, arguments)
        fact = not arguments.get("_stdin") and self._is_fact(key, preparing)
        if fact and key in self._answers:
            return True, self._answers[key]
        if preparing:
            self.misses += 1
        elif not fact:
            self._changed()  # whatever it is, the node may differ now
        began = time.monotonic()
        try:
            return self.run_once(command, print_output, print_input, **arguments)
        finally:
            if not preparing and not fact:
                took = time.monotonic() - began
                self.working[self.stage] = self.working.get(self.stage, 0.0) + took

    def run_once(
        self,
        command: StringCommand,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> tuple[bool, CommandOutput]:
        """Send one command with its deadline; the survey's answers stay as they are."""
        preparing = self.state.current_stage < StateStage.Execute
        limit = arguments.pop("_timeout", None) or (
            deadlines.FACT_S if preparing else deadlines.OPERATION_S
        )
        self.executions += 1
        status, output = super().run_shell_command(
            with_deadline(command, limit),
            print_output=print_output,
            print_input=print_input,
            _timeout=limit + deadlines.GRACE_S,
            **arguments,
        )
        return bool(status), output

    def put_file(self, *args: Any, **kwargs: Any) -> bool:
        self._changed()
        self.executions += 1
        return bool(super().put_file(*args, **kwargs))

    def rsync(self, *args: Any, **kwargs: Any) -> bool:
        self._changed()
        self.executions += 1
        return bool(super().rsync(*args, **kwargs))

    def _changed(self) -> None:
        self._answers.clear()
        self._changes, self._since = self._changes + 1, 0

    def _is_fact(self, key: tuple[str, ...], preparing: bool) -> bool:
        """Whether this is a fact of the survey; its answer may be fetched here, with all others."""
        if key in self._answers:
            return True
        if preparing or key not in self._again:
            return False
        self._since += 1
        # All cost more than one: where each operation changes something, only one is asked.
        if self._since == (1 if self._changes <= FEW_CHANGES else 2):
            self._fetch([one for asked in self._again.values() for one in asked])
        return True

    @staticmethod
    def _key(command: StringCommand, arguments: dict[str, Any]) -> tuple[str, ...]:
        return (raw(command), *(repr(arguments.get(name)) for name in IDENTITY))

    # -- survey -----------------------------------------------------------------
    @contextmanager
    def _recording(self) -> Iterator[Asked]:
        self._recorded = []
        try:
            yield self._recorded
        finally:
            self._recorded = None

    def survey(self, facts: Iterable[Fact]) -> None:
        """Ask all these facts in one remote execution and keep their answers.

        pyinfra itself says what it would send for each fact, so that a later
        ``host.get_fact`` finds its own words. An answer that failed is not kept:
        the fact is then asked alone, and its failure is seen where it matters.
        """
        again: Asked = []
        with self._recording() as recorded:
            for cls, kwargs in facts:
                before = len(recorded)
                self.host.get_fact(cls, **kwargs)
                recorded[before:] = [
                    one._replace(fact=cls, given=kwargs) for one in recorded[before:]
                ]
                if not getattr(cls, "of_the_plan", False):
                    again += recorded[before:]
        self._again = {self._key(*one[:2]): [one] for one in again}
        self._fetch(recorded)

    def _fetch(self, asked: Asked) -> None:
        groups = list(grouped(asked))
        commands = [
            Command(
                f"fact.{number}", command_of(group), deadlines.FACT_S, writes=True, together=True
            )
            for number, group in enumerate(groups)
        ]
        nonce = secrets.token_hex(16)
        arguments = {**asked[0].arguments, "_timeout": deadlines.FACT_S} if asked else {}
        answers = split(self.feed(script(commands, nonce, clock=False), **arguments), nonce)
        for number, group in enumerate(groups):
            answer = answers.get(f"fact.{number}")
            if answer is None or not answer.ok:
                continue
            lines = answer.stdout.splitlines()
            for one in group:
                own = lines if len(group) == 1 else one.fact.apart(lines, one.given)
                if own is not None:
                    told = CommandOutput([OutputLine("stdout", line) for line in own])
                    self._answers[self._key(one.command, one.arguments)] = told

    def feed(self, text: str, **arguments: Any) -> str:
        """Run a script that changes nothing through ``sh -s``; its stdout, "" when it failed."""
        arguments["_stdin"] = text
        status, output = self.run_once(StringCommand(FED), **arguments)
        return output.stdout if status else ""
