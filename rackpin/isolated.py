"""pyinfra's ``operation``, except that what goes wrong in one host's stops that host only.

pyinfra 3.10 ends the whole run, on every host and also in the middle of it, when the code of an
operation raises for one of them (``_run_host_op`` in pyinfra/api/operations.py catches only what
commands raise).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

from pyinfra import host, logger
from pyinfra.api import QuoteString, StringCommand
from pyinfra.api import operation as plain

Operation = Callable[..., Iterator[Any]]


def refuse(message: str) -> StringCommand:
    """A command that fails with this message: it stops one host, an exception would stop all."""
    return StringCommand("echo", QuoteString(message), ">&2; exit 1")


def operation() -> Callable[[Operation], Any]:
    """As pyinfra's, for the code of an operation that may raise."""

    def decorate(function: Operation) -> Any:
        @wraps(function)
        def alone(*args: Any, **given: Any) -> Iterator[Any]:
            try:
                yield from function(*args, **given)
            except Exception as error:  # whatever it is: this host, with what it was and where
                frame = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(frame.filename).name}:{frame.lineno}"
                logger.warning(f"[{host.name}] {traceback.format_exc()}")
                yield refuse(f"{function.__name__}: {type(error).__name__}: {error} ({where})")

        return plain()(alone)

    return decorate
