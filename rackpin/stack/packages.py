"""From the host's pins to the packages that a host asks for by name, with their versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from packaging.specifiers import SpecifierSet

from rackpin.stack.hostpins import DriverPin
from rackpin.stack.items import Host, Package, Role
from rackpin.stack.model import StackError, read_yaml
from rackpin.stack.pins import OsPin, Pins

TABLE = Path(__file__).resolve().parent.parent / "data" / "host-packages.yaml"
Origin = Literal["os", "nvidia", "doca"]


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    table: dict[str, Any] = read_yaml(TABLE, "it belongs to the program; install it again")
    return table


def host_of(pins: Pins) -> Host:
    """The host's part of the pins; fabric manager gets the driver's version."""
    driver = pins.driver
    return Host(
        kernel=pins.kernel,
        driver=driver,
        fabric_manager=driver.version if driver and driver.fabric_manager else None,
        cuda=pins.cuda,
        nccl=pins.nccl,
        dcgm=pins.dcgm,
        container_toolkit=pins.container_toolkit,
        rdma=pins.rdma,
    )


def _fits(row: dict[str, Any], version: str, **also: str) -> bool:
    if any(row.get(key, value) != value for key, value in also.items()):
        return False
    return SpecifierSet(row.get("versions", "")).contains(version, prereleases=True)


def _driver_names(rows: list[dict[str, Any]], driver: DriverPin, what: str) -> list[str]:
    for row in rows:
        if _fits(row, driver.version, source=driver.source) and (
            row.get("flavour", driver.flavour) == driver.flavour
        ):
            return [name.format(branch=driver.branch) for name in row["packages"]]
    raise StackError(
        f"driver: no {what} packages known for {driver.version} {driver.flavour} from "
        f"{driver.source}; take another source, or add a row to rackpin/data/{TABLE.name}"
    )


def _revision(driver: DriverPin, package: str) -> str | None:
    """``535.129.03-0ubuntu1``, or None where the revision isn't known."""
    for own in driver.revisions:
        if fnmatchcase(package, own.packages):
            return driver.version + own.revision
    for row in _table()["revisions"]:
        if _fits(row, driver.version, source=driver.source) and fnmatchcase(
            package, row["packages"]
        ):
            return f"{driver.version}{row['revision']}"
    return None


def _driver(pins: Pins) -> Iterator[Package]:
    driver = pins.driver
    if driver is None:
        return
    parts: list[Role] = ["driver", "fabric_manager"] if driver.fabric_manager else ["driver"]
    for role in parts:
        for name in _driver_names(_table()[role], driver, role.replace("_", " ")):
            version = _revision(driver, name)
            yield Package(name=name, version=version, role=role, repository=driver.origin)


def _kernel(pins: Pins, os: OsPin) -> Iterator[Package]:
    if pins.kernel is None:
        return
    for pattern in [*_table()["kernel"][os.id], pins.kernel.compiler]:
        name = pattern.format(release=pins.kernel.release)
        yield Package(name=name, version=None, role="kernel", repository="os")


def _on(os_key: str, names: Iterable[str]) -> list[str]:
    """Names as this OS has them."""
    renamed = _table()["renamed"].get(os_key, {})
    return [renamed.get(name, name) for name in names]


def image_names(os_key: str) -> list[str]:
    """What every container image has beside the environment's packages, whatever hosts have."""
    return _on(os_key, _table()["image"])


def _rest(pins: Pins, os: OsPin) -> Iterator[Package]:
    table = _table()

    def all_at(names: Iterable[str], version: str | None, role: Role, origin: Origin) -> Any:
        return [
            Package(name=n, version=version, role=role, repository=origin)
            for n in _on(os.key, names)
        ]

    yield from all_at(table["image"], None, "image", "os")
    yield from all_at(table["base"], None, "base", "os")
    yield from all_at(table["gateway"], None, "gateway", "os")
    yield from all_at(pins.debs[os.key], None, "environment", "os")

    if cuda := pins.cuda:
        names = [name.format(minor=cuda.minor.replace(".", "-")) for name in table["cuda"]]
        yield from all_at(names, f"{cuda.version}-1", "cuda", "nvidia")
    if nccl := pins.nccl.host:
        yield from all_at(table["nccl"], f"{nccl.version}-1+cuda{nccl.cuda}", "nccl", "nvidia")
    if pins.dcgm:
        row = next(row for row in table["dcgm"] if _fits(row, pins.dcgm.upstream))
        major = pins.cuda.version.partition(".")[0] if pins.cuda else "12"
        names = [name.format(cuda=major) for name in row["packages"]]
        yield from all_at(names, pins.dcgm.version, "dcgm", "nvidia")
    if toolkit := pins.container_toolkit:
        names = table["container_toolkit"]
        yield from all_at(names, toolkit.version, "container_toolkit", "nvidia")
    if rdma := pins.rdma:
        origin: Origin = "os" if rdma.stack == "inbox" else "doca"
        yield from all_at(table["rdma"][rdma.stack], rdma.version, "rdma", origin)
        yield from all_at(table["mpi"], None, "mpi", "os")


def packages_of(pins: Pins, os: OsPin) -> list[Package]:
    """Everything that a host of this OS asks for by name, each once, sorted by name."""
    every = [*_rest(pins, os), *_kernel(pins, os), *_driver(pins)]
    # A host's package counts before the same of an image.
    return sorted({package.name: package for package in every}.values(), key=lambda p: p.name)
