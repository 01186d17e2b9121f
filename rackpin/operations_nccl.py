"""The nccl stage's operation: build once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from rackpin import deadlines
from rackpin.desired import Desired
from rackpin.facts import ABSENT
from rackpin.isolated import operation
from rackpin.nccltests.build import Build, script
from rackpin.operations import states


@operation()
def tests_built(build: Build, stage: Desired) -> Iterator[Any]:
    """
    nccl-tests against one NCCL, at a path that carries the digest of what makes them.

    + build: source, toolkit, NCCL
    + stage: the stage whose paths include the mark of a complete build and the link to it
    """
    now = states(stage)
    complete = now.get(build.mark, ABSENT).kind == "file"
    if complete and now.get(build.link, ABSENT).target == build.place.rpartition("/")[2]:
        host.noop(f"{build.link} is {build.place}")
        return
    yield StringCommand("sh", "-s", _stdin=script(build), _timeout=deadlines.BUILD_S)
