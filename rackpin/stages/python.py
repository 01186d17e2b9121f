"""python: one environment per lock, at a path that carries the lock's digest."""

from __future__ import annotations

from rackpin import layout
from rackpin.desired import Desired, Target
from rackpin.stack.environment import env_path
from rackpin.stack.lock import Lock


def complete_mark(lock: Lock) -> str:
    """Written last: an environment without it is half built."""
    return f"{env_path(lock)}/.complete"


def desired(target: Target) -> Desired:
    return Desired(foreign=(complete_mark(target.lock), layout.CURRENT, layout.PREVIOUS))
