"""The nodes of an inventory, each asked once, all at the same time, none waited for for ever."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from rackpin import deadlines
from rackpin.audit import script
from rackpin.audit.document import Document, Target, unreachable
from rackpin.audit.expectation import Expectation
from rackpin.checks import batch
from rackpin.checks.base import NO_ANSWER, Command, one_line, unseen

QUICK_S = 50.0  # on the node; an audit of 2.2 GB takes about a second of it
DEEP_S = 900.0  # reads every file: gigabytes from a cold disk
CONNECT_S = 3 * (deadlines.CONNECT_S + 3) + deadlines.GRACE_S  # with the inventory's retries
AT_ONCE = 64  # connections; each is a thread that mostly waits

# Runs a script through ``sh -s`` on a node as root, returns its stdout; raises when it can't.
Execute = Callable[[str, str, float], str]


def audit_nodes(wishes: Iterable[Expectation], deep: bool, execute: Execute) -> list[Target]:
    """All nodes, in the order given. A node that doesn't answer in time could not be looked at."""
    wishes = list(wishes)
    limit = DEEP_S if deep else QUICK_S
    found: dict[str, Target] = {}
    turn = threading.BoundedSemaphore(AT_ONCE)

    def one(wish: Expectation) -> None:
        with turn:
            found[wish.name] = audit_node(wish, deep, execute, limit)

    threads = [threading.Thread(target=one, args=(w,), daemon=True) for w in wishes]
    for thread in threads:
        thread.start()
    rounds = -(-len(wishes) // AT_ONCE)
    end = time.monotonic() + rounds * (limit + CONNECT_S + deadlines.GRACE_S)
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = "no answer before the deadline; see whether the node hangs"
    return [found.get(wish.name) or unreachable(wish.name, late) for wish in wishes]


def audit_node(wish: Expectation, deep: bool, execute: Execute, limit_s: float) -> Target:
    """One remote execution and its answer. Never raises an Exception."""
    command = Command(
        "audit",
        f"{script.PYTHON} -I -",
        deadline_s=limit_s,
        stdin=script.carried(wish, deep),
        writes=True,  # apt-cache does, when packages moved since it last ran
    )
    nonce = secrets.token_hex(16)
    try:
        text = batch.script([command], nonce, int(limit_s))
        said = execute(wish.name, text, limit_s + 2 * batch.KILL_AFTER_S)
        output = batch.split(said, nonce).get(command.name, NO_ANSWER)
    except Exception as error:  # whatever the connection raises
        why = one_line(str(error)) or "without a word"
        return unreachable(wish.name, f"{type(error).__name__}: {why}")
    unanswered = unseen(command, output)
    if unanswered is not None:
        return unreachable(wish.name, unanswered)
    return answer(wish.name, output.stdout, output.stderr)


def answer(name: str, stdout: str, stderr: str) -> Target:
    """The target in the program's line of JSON; anything else could not be looked at."""
    line = stdout.strip().rpartition("\n")[2]
    try:
        targets = Document.model_validate(json.loads(line)).targets
    except (ValueError, ValidationError):
        said = one_line(stderr) or one_line(stdout, 200) or "nothing"
        return unreachable(name, f"the audit's answer can't be read; it said: {said}")
    return targets[0].model_copy(update={"name": name})
