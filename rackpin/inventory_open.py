"""An inventory opened for a command: pyinfra's hosts to connect to, the fleet, its lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackpin.inventory import Fleet
from rackpin.stack.lock import Lock


class OpenError(Exception):
    """The inventory, its stack or a name given with it can't be used; the text says what to do."""


@dataclass(frozen=True)
class Opened:
    made: Any  # pyinfra.api.Inventory
    fleet: Fleet
    lock: Lock
    file: str

    def nodes(self, wanted: Sequence[str]) -> list[str]:
        """Names of the nodes meant by names and groups; all of them when none is given.

        Raises :class:`OpenError` for a word that is neither.
        """
        nodes = self.fleet.nodes
        groups = {group for node in nodes.values() for group in node.groups}
        if unknown := [word for word in wanted if word not in nodes and word not in groups]:
            raise OpenError(
                f"{self.file}: has no host or group {', '.join(unknown)}; it has {', '.join(nodes)}"
            )
        return [
            name
            for name, node in nodes.items()
            if not wanted or name in wanted or set(node.groups) & set(wanted)
        ]


def opened(
    file: str | None,
    data: Sequence[str] = (),
    group_data: Sequence[str] = (),
    *,
    raw: bool = False,
    stacks: Path | None = None,
) -> Opened:
    """Read it whole; connects to nothing. ``raw``: quarantine isn't applied.

    ``stacks``: the directory that holds the stacks, where it isn't the project's own.

    Raises :class:`OpenError` with everything that is wrong.
    """
    from rackpin import inventory_models
    from rackpin.fleet import quarantine
    from rackpin.inventory_check import InventoryError, fleet_from_pyinfra
    from rackpin.inventory_source import made_inventory, parse_data, why_unreadable
    from rackpin.stack.lock import STACKS, load_stack
    from rackpin.stack.pins import StackError

    if not file:
        raise OpenError("which hosts? give -i INVENTORY.py or set RACKPIN_INVENTORY")
    try:
        made = made_inventory(file, parse_data(data), list(group_data))
        fleet = fleet_from_pyinfra(made, file)
        fleet = fleet if raw else quarantine.applied(fleet)
        lock = load_stack(fleet.config.stack, stacks or STACKS).lock
        inventory_models.of_the_stack(fleet, lock)
        return Opened(made, fleet, lock, file)
    except (InventoryError, StackError) as error:
        raise OpenError(str(error)) from error
    except Exception as error:  # whatever the inventory's own code raises
        where, what = why_unreadable(error, file)
        raise OpenError(f"{where}: {what}") from error
