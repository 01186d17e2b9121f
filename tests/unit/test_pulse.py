"""A connection whose other end is frozen is closed; one that answers is left alone."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from paramiko import SSHException

from rackpin.pulse import Pulse


class Transport:
    """paramiko's, as far as anybody asks it here."""

    def __init__(self, answers: bool = True, broken: bool = False) -> None:
        self.answers, self.broken = answers, broken
        self.asked = 0
        self.closed = threading.Event()

    def is_active(self) -> bool:
        return not self.closed.is_set()

    def close(self) -> None:
        self.closed.set()

    def global_request(self, kind: str, wait: bool) -> None:
        assert wait and kind == "keepalive@openssh.com"
        self.asked += 1
        if self.broken:
            raise SSHException("gone")
        if not self.answers:
            self.closed.wait(10)  # paramiko waits until it is answered or closed


def start(transport: Transport) -> tuple[Pulse, list[str]]:
    said: list[str] = []
    return Pulse(transport, said.append, every_s=0.01, silent_s=0.2), said


def test_a_frozen_node_is_given_up_with_a_word() -> None:
    transport = Transport(answers=False)
    pulse, said = start(transport)
    assert transport.closed.wait(5)
    assert said == [pulse.lost] == ["sshd did not answer for 0.2 s; the connection was closed"]


def test_a_node_that_answers_is_kept() -> None:
    transport = Transport()
    pulse, said = start(transport)
    time.sleep(0.6)
    assert transport.asked > 3 and not transport.closed.is_set() and said == []
    pulse.stop()
    time.sleep(0.05)
    asked = transport.asked
    time.sleep(0.1)
    assert transport.asked == asked


def test_after_the_end_nothing_is_closed() -> None:
    transport = Transport(answers=False)
    pulse, said = start(transport)
    time.sleep(0.05)
    pulse.stop()
    assert not transport.closed.wait(0.5) and said == []
    transport.close()


def test_a_connection_that_is_gone_ends_it() -> None:
    transport = Transport(broken=True)
    pulse, said = start(transport)
    time.sleep(0.1)
    assert transport.asked == 1 and pulse.lost == "" and said == []


@pytest.mark.parametrize("lost", ["", "sshd did not answer for 90 s; the connection was closed"])
def test_the_run_log_says_why_an_operation_had_no_answer(lost: str) -> None:
    from rackpin.runlog import NodeLog, RunLog

    log = NodeLog(operation="python: environment")
    run = SimpleNamespace(nodes={"a": log})
    host = SimpleNamespace(name="a", connector=SimpleNamespace(pulse=SimpleNamespace(lost=lost)))
    RunLog.operation_host_error(run, None, host, "h")  # type: ignore[arg-type]
    assert log.failed and (lost in log.error) and "python: environment" in log.error
