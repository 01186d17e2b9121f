"""The lock's Debian packages: from the names that a host asks for to every deb they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rackpin.debs import Asked, DebError, Driver, Unreachable, resolve_host
from rackpin.debs.model import Deb as Found
from rackpin.lab.state import cache_root
from rackpin.stack.items import Deb, DebClosure, Package, Reason, Unresolved
from rackpin.stack.model import StackError
from rackpin.stack.pins import Pins

ALL = "debs"  # in place of a package's name: every one may move


@dataclass(frozen=True)
class DebOptions:
    """Packages that may move though they are locked; a site's mirrors by repository, and keys."""

    update: tuple[str, ...] = ()
    mirrors: Mapping[str, str] = field(default_factory=dict)
    keys: Path | None = None


# Their versions follow the driver's: the family's rule finds the revision.
_FOLLOWS = ("driver", "fabric_manager")


def closure(
    pins: Pins,
    os_key: str,
    packages: list[Package],
    old: DebClosure | None,
    options: DebOptions,
) -> DebClosure | Unresolved:
    """Every deb for one OS. Versions of ``old`` stay, but for those that may move.

    A repository that doesn't answer leaves it unresolved; what can't be had at all, or must not
    be trusted, raises :class:`StackError`.
    """
    asked = [
        Asked(p.name, None if p.role in _FOLLOWS else p.version, p.repository) for p in packages
    ]
    driver = Driver(pins.driver.version, pins.driver.origin) if pins.driver else None
    before = [] if ALL in options.update or old is None else old.debs
    try:
        found = resolve_host(
            os_key,
            asked,
            driver,
            keep=[Found(**dict(deb)) for deb in before if deb.name not in options.update],
            mirrors=options.mirrors,
            keys=options.keys,
            cache=cache_root() / "debs",
            label=f"stack {pins.name}, {os_key}",
        )
    except Unreachable as error:
        # what the network said here is of no use to who reads the lock elsewhere
        url = str(error).partition(": ")[0]
        return Unresolved(wanted=os_key, unresolved=Reason(reason=f"no answer from {url}"))
    except DebError as error:
        raise StackError(f"stacks/{pins.name}/pins.yaml: {error}") from None
    return DebClosure(debs=[Deb(**vars(deb)) for deb in found.debs])
