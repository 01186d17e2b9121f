"""A plan from the fleet as it is found, or every reason why there can't be one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rackpin.fleet.state import now
from rackpin.inventory import Fleet
from rackpin.inventory_problems import Problem
from rackpin.roll import plan as planning
from rackpin.roll.model import Change, Options, Plan
from rackpin.stack.lock import Lock


def roll_id() -> str:
    """Sorts by time; two of one fleet never begin within a millisecond, since there is a lock."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3] + "Z"


def new_plan(
    fleet: Fleet,
    lock: Lock,
    changes: Mapping[str, Change],
    options: Options,
    *,
    inventory: str,
    owner: str,
    data: Sequence[str] = (),
    group_data: Sequence[str] = (),
    back_of: str = "",
    stacks_dir: str = "",
) -> tuple[Plan, list[Problem]]:
    """``changes``: of the nodes that are to be rolled. Quarantined ones are left out, and said."""
    mine = {name: one for name, one in changes.items() if name not in fleet.kept_out}
    units = planning.units(fleet, mine)
    weights = planning.serving(fleet)
    found = Plan(
        roll=roll_id(),
        at=now(),
        owner=owner,
        inventory=inventory,
        data=list(data),
        group_data=list(group_data),
        fleet=fleet.config.fleet,
        stack=lock.stack,
        lock=lock.digest,
        stacks_dir=stacks_dir,
        back_of=back_of,
        options=options,
        changes=list(mine.values()),
        units=[unit for unit in units if unit.kind != "nothing"],
        waves=planning.waves(weights, units, options),
        capacity=planning.capacity(weights, options),
        left_out={n: f"quarantined by {by}" for n, by in fleet.kept_out.items() if n in changes},
    )
    return found, planning.problems(fleet, units, mine, options)
