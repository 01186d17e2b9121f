"""One host's bug is one host's failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyinfra import host
from pyinfra.api import StringCommand
from pyinfra.context import ctx_host

from rackpin.isolated import operation


class Stub:
    name = "gpu1"


@operation()
def odd(broken: bool) -> Iterator[Any]:
    """
    Says something, then may raise.

    + broken: raise
    """
    yield StringCommand(f"true {host.name}")
    if broken:
        raise ValueError("NVSwitch")
    yield StringCommand("false")


def commands(broken: bool) -> list[str]:
    with ctx_host.use(Stub()):
        return [str(command) for command in odd._inner(broken)]


def test_what_is_raised_becomes_a_command_that_fails_with_its_words() -> None:
    first, last = commands(True)
    assert first == "true gpu1"
    assert "odd: ValueError: NVSwitch (test_isolated.py:" in last and last.endswith("exit 1")
    assert commands(False) == ["true gpu1", "false"]


def test_an_interrupt_is_nobodys_bug() -> None:
    def stopped() -> Iterator[Any]:
        yield "true"
        raise KeyboardInterrupt

    with ctx_host.use(Stub()), pytest.raises(KeyboardInterrupt):
        list(operation()(stopped)._inner())


def test_every_operation_of_ours_is_isolated() -> None:
    from pathlib import Path

    import rackpin

    for path in Path(rackpin.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if path.name != "isolated.py" and "@operation" in text:
            assert "from rackpin.isolated import operation" in text, path
