"""Programs of our own that must not outlive the command that started them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

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
