"""Notices a node that keeps its TCP connections and says nothing: a frozen sshd or userland.

TCP itself is answered by the kernel, and a command may be silent for as long as its deadline. So
sshd is asked for an answer of its own, as OpenSSH's ServerAliveInterval does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from paramiko import SSHException

from rackpin import deadlines

QUESTION = "keepalive@openssh.com"  # no server knows it, so each must say that it doesn't


class Pulse:
    """Closes ``transport`` when sshd was silent too long; ``lost`` says so then."""

    def __init__(
        self,
        transport: Any,
        say: Callable[[str], None],
        every_s: float = deadlines.SSH_ASK_S,
        silent_s: float = deadlines.SSH_SILENT_S,
    ) -> None:
        self.transport, self.say = transport, say
        self.every_s, self.silent_s = every_s, silent_s
        self.lost = ""
        self.over = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="pulse").start()

    def stop(self) -> None:
        self.over.set()

    def _run(self) -> None:
        while not self.over.wait(self.every_s) and self.transport.is_active():
            timer = threading.Timer(self.silent_s, self._give_up)
            timer.daemon = True
            timer.start()
            try:
                self.transport.global_request(QUESTION, wait=True)
            except (SSHException, OSError, EOFError):
                return  # the connection is gone; whoever waits on it hears that itself
            finally:
                timer.cancel()

    def _give_up(self) -> None:
        if self.over.is_set():
            return
        self.lost = f"sshd did not answer for {self.silent_s:g} s; the connection was closed"
        self.say(self.lost)
        self.transport.close()
