"""Which repositories and pins a node has: the inventory's own, and those that the lock asks for.

What a host asks for by name is pinned at its locked version; so is everything from a vendor's
repository and the whole driver family. Other packages of the OS take its security updates.
"""

from __future__ import annotations

from collections.abc import Iterator

from rackpin.alike import alike
from rackpin.debs.families import load_family
from rackpin.debs.host import Driver
from rackpin.debs.model import Repository
from rackpin.debs.sources import origins
from rackpin.debs.sources import repositories as known_repositories
from rackpin.desired import Target
from rackpin.inventory_parts import AptPin, AptRepository
from rackpin.stack.items import Deb, DebClosure, Package
from rackpin.stack.model import StackError

SYSTEM = "os"  # the origin whose repositories a host has by itself
FOR_ALL = ("base", "environment")  # roles of packages that a node without GPUs has too
APART = ("image", "gateway")  # roles that GPUs alone don't bring


@alike
def packages(target: Target) -> list[Package]:
    """What this node asks for by name."""
    every = target.lock.packages.get(target.os_key, [])
    roles = {*FOR_ALL, "gateway"} if target.node.is_gateway else {*FOR_ALL}
    of_cards = [p for p in every if target.node.gpus and p.role not in APART]
    return [p for p in every if p.role in roles or p in of_cards]


def _closure(target: Target) -> list[Deb]:
    """Every deb that the lock has for this node's OS; none where they are unresolved."""
    closure = target.lock.debs_closure.get(target.os_key)
    return closure.debs if isinstance(closure, DebClosure) else []


@alike
def locked(target: Target) -> list[Deb]:
    """The locked debs of this node that are pinned; none while the lock has no closure for it."""
    debs = _closure(target)
    asked = {package.name for package in packages(target)}
    if not target.node.gpus:
        return [deb for deb in debs if deb.name in asked]
    system = {r.name for r in known_repositories(target.os_key, (SYSTEM,))}
    pin = target.lock.host.driver
    driver = Driver(pin.version, pin.origin) if pin else None
    family = (
        load_family(driver.family_name(target.os_key), driver.version).has
        if driver
        else (lambda name: False)
    )
    return [
        deb for deb in debs if deb.name in asked or deb.repository not in system or family(deb.name)
    ]


def unpinned(target: Target) -> str:
    """Why the lock pins no package of this node; empty when it does."""
    if not packages(target):
        return ""
    try:
        target.lock.require_debs(target.os_key)
    except StackError as error:
        return str(error)
    return ""


def vendors(target: Target) -> Iterator[Repository]:
    """Repositories that the pinned packages come from and that no host has by itself."""
    used = {deb.repository for deb in locked(target)}
    more = tuple(name for name in origins(target.os_key) if name != SYSTEM)
    return (r for r in known_repositories(target.os_key, more) if r.name in used)


@alike
def repositories(target: Target) -> list[AptRepository]:
    """The repositories of this node. One of the inventory stands for the vendor's of its name."""
    config = target.fleet.config
    if config.bundle:
        return [*config.apt_repositories, *_of_bundle(target)]
    own = {repository.name for repository in config.apt_repositories}
    from_lock = [
        AptRepository(
            name=vendor.name,
            uri=vendor.url,
            suite=vendor.suite,
            components=list(vendor.components),
            key_file=str(vendor.key),
            fingerprint=vendor.fingerprints[0],
        )
        for vendor in vendors(target)
        if vendor.name not in own
    ]
    return [*config.apt_repositories, *from_lock]


def _of_bundle(target: Target) -> list[AptRepository]:
    """One flat repository for each that the closure's debs come from, the OS's own too."""
    bundle = target.fleet.config.bundle
    if bundle is None:
        return []
    return [
        AptRepository(
            name=name,
            uri=f"{bundle.url.rstrip('/')}/debs/{target.os_key}/{name}",
            suite="/",
            key_file=bundle.key_file,
            fingerprint=bundle.fingerprint,
            trusted=bundle.trusted,
        )
        for name in sorted({deb.repository for deb in _closure(target)})
    ]


@alike
def pins(target: Target) -> list[AptPin]:
    """The pinned packages of this node, by name; the inventory's pin counts before the lock's."""
    there = {repository.name for repository in repositories(target)}
    found = {
        deb.name: AptPin(
            name=deb.name,
            version=deb.version,
            origin=deb.repository if deb.repository in there else None,
        )
        for deb in locked(target)
    }
    found |= {pin.name: pin for pin in target.fleet.config.apt_pins}
    return [found[name] for name in sorted(found)]


@alike
def hashes(target: Target) -> dict[str, tuple[str, str]]:
    """Version and sha256, as locked, of each deb that apt must offer with just that content.

    From a bundle everything that the closure has, else what is pinned: no signature stands
    between a mirror and the node that the lock can't do without.
    """
    debs = _closure(target)
    if not target.fleet.config.bundle:
        versions = {pin.name: pin.version for pin in pins(target)}
        debs = [deb for deb in debs if versions.get(deb.name) == deb.version]
    return {deb.name: (deb.version, deb.sha256) for deb in debs}


def missing_keys(target: Target) -> list[str]:
    """Vendors' keys that this machine lacks, each with what to do."""
    own = {repository.name for repository in target.fleet.config.apt_repositories}
    if target.fleet.config.bundle:
        return []
    return [
        f"{vendor.name}: its key {vendor.key} is not there; put the vendor's there (its "
        f"fingerprint is checked), or name the repository in apt_repositories"
        for vendor in vendors(target)
        if vendor.name not in own and not (vendor.key and vendor.key.is_file())
    ]
