"""Which labs run on this machine now, over all state directories; gone after its reboot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rackpin.lab import network
from rackpin.lab.errors import LabError
from rackpin.lab.state import RUN
from rackpin.lab.supervisor import write_atomically

FORWARD_WAS = "ip_forward.was"  # the control machine's own value, before the first lab


@contextmanager
def exclusive(lab: str, wait_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """Held against any other operation on the lab, whatever its state directory."""
    RUN.mkdir(parents=True, exist_ok=True)
    lock = FileLock(RUN / f".{lab}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"waiting for another operation on lab {lab}")
        try:
            lock.acquire(timeout=wait_s)
        except Timeout as error:
            raise LabError(
                f"another operation on lab {lab} has not ended in {wait_s:g} s"
            ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def locked() -> Iterator[None]:
    RUN.mkdir(parents=True, exist_ok=True)
    with FileLock(RUN / ".lock", timeout=60):
        yield


def _entries() -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text()) for file in RUN.glob("*.json")}


def running(match: str) -> list[tuple[str, Path]]:
    """Names and directories of the running labs whose name matches a glob."""
    with locked():
        entries = _entries()
    names = sorted(name for name in entries if fnmatch(name, match))
    return [(name, Path(entries[name]["directory"])) for name in names]


def claim(
    lab: str, directory: Path, preferred: list[str], with_fabric: bool, outbound: bool = True
) -> tuple[network.Addresses, bool]:
    """Reserve addresses for a lab and bring its network up.

    True as second when this call began it. LabError when a lab of this name runs elsewhere.
    """
    with locked():
        entries = _entries()
        own = entries.pop(lab, None)
        if own is not None and own["directory"] != str(directory):
            raise LabError(
                f"lab {lab} already runs with its state in {own['directory']}: "
                "take it down first, or give this one another --name"
            )
        own_links = [network.bridge_name(lab), network.fabric_bridge_name(lab)]
        taken = network.routed_networks(without=own_links)
        for entry in entries.values():
            taken += [IPv4Network(entry["subnet"]), IPv4Network(entry["fabric_subnet"])]
        if own is not None:
            preferred = [own["subnet"], *preferred]
        addresses = network.choose_addresses(lab, taken, preferred)
        if not (RUN / FORWARD_WAS).exists():
            write_atomically(RUN / FORWARD_WAS, network.forwarding_before() + "\n")
        entry = {
            "directory": str(directory),
            "subnet": str(addresses.subnet),
            "fabric_subnet": str(addresses.fabric_subnet),
        }
        write_atomically(RUN / f"{lab}.json", json.dumps(entry) + "\n")
        try:
            network.bring_up(lab, addresses, with_fabric, outbound)
        except BaseException:
            if own is None:
                _forget(lab)
            raise
        return addresses, own is None


def release(lab: str) -> None:
    """Take a lab's network down and forget it; the last lab puts ip_forward back."""
    with locked():
        _forget(lab)


def _forget(lab: str) -> None:
    network.take_down(lab)
    (RUN / f"{lab}.json").unlink(missing_ok=True)
    before = RUN / FORWARD_WAS
    if not _entries() and before.exists():
        network.restore_forwarding(before.read_text().strip())
        before.unlink()
