"""Source archives of the lock: nccl-tests, gdrcopy."""

from __future__ import annotations

import hashlib

import httpx

from rackpin.stack.hostpins import SourcePin
from rackpin.stack.items import Reason, Source, Unresolved
from rackpin.stack.pins import Pins

TIMEOUT = httpx.Timeout(30.0, connect=10.0)
LARGEST = 200_000_000  # bytes; such an archive has well under one million
GITHUB = {"nccl-tests": "NVIDIA/nccl-tests", "gdrcopy": "NVIDIA/gdrcopy"}


def source_pins(pins: Pins) -> dict[str, SourcePin]:
    """The sources that a stack pins, by the name they have in the lock."""
    named = {"gdrcopy": pins.gdrcopy, "nccl-tests": pins.nccl_tests}
    return {name: pin for name, pin in named.items() if pin}


def archive_url(name: str, pin: SourcePin) -> str:
    """Where the archive is published; the address carries the commit, so it never moves."""
    return pin.url or f"https://github.com/{GITHUB[name]}/archive/{pin.commit}.tar.gz"


def resolve_source(
    name: str, pin: SourcePin, old: Source | Unresolved | None
) -> Source | Unresolved:
    """The archive with its hash: from the pins, from the old lock, or by fetching it once."""
    url = archive_url(name, pin)
    sha256, size = pin.sha256, pin.size
    if sha256 is None and isinstance(old, Source) and (old.commit, old.url) == (pin.commit, url):
        sha256, size = old.sha256, old.size
    if sha256 is None:
        try:
            sha256, size = _fetch(url)
        except (httpx.HTTPError, ValueError) as error:
            host = httpx.URL(url).host
            unreached = isinstance(error, httpx.TransportError)
            reason = f"{host} could not be reached" if unreached else f"{host}: {error}"
            return Unresolved(
                wanted=url, unresolved=Reason(reason=f"{reason} when this was locked")
            )
    return Source(version=pin.version, commit=pin.commit, url=url, sha256=sha256, size=size)


def _fetch(url: str) -> tuple[str, int]:
    """sha256 and size of what an address gives; ValueError when it is absurdly large."""
    digest, size = hashlib.sha256(), 0
    with httpx.stream("GET", url, follow_redirects=True, timeout=TIMEOUT) as answer:
        answer.raise_for_status()
        for block in answer.iter_bytes():
            digest.update(block)
            size += len(block)
            if size > LARGEST:
                raise ValueError(f"more than {LARGEST} bytes, which is no such archive")
    return digest.hexdigest(), size
