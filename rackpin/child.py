"""Runs of pyinfra that a command starts, and that must not outlive it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def dying_with_parent() -> Callable[[], None]:
    """For ``preexec_fn``: the child is killed when this process is, however that ends.

    A run that goes on unseen would meet the next one.
    """
    parent = os.getpid()

    def prepare() -> None:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before we asked
            os._exit(1)

    return prepare


def pyinfra_argv(
    inventory: str,
    deploy: str,
    nodes: Sequence[str],
    data: Sequence[str],
    group_data: Sequence[str],
    flags: Sequence[str] = ("-y",),
) -> list[str]:
    """One deploy over some nodes as anybody would call it, by the pyinfra beside this Python."""
    return [
        str(Path(sys.executable).with_name("pyinfra")),
        *flags,
        inventory,
        deploy,
        *(word for name in nodes for word in ("--limit", name)),
        *(word for item in data for word in ("--data", item)),
        *(word for folder in group_data for word in ("--group-data", folder)),
    ]
