"""From what uv found for a package to the one wheel that the nodes get."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import httpx
from packaging.utils import canonicalize_name, parse_wheel_filename

from rackpin.stack.items import Wheel
from rackpin.stack.model import StackError
from rackpin.stack.pins import Pins
from rackpin.stack.target import supported_tags

# Only addresses that everybody can reach go into a committed lock, never a site's mirror.
PUBLIC_HOSTS = {"files.pythonhosted.org", "download.pytorch.org"}


def _filename(entry: dict[str, Any]) -> str:
    place = entry.get("url") or entry.get("path") or ""
    return str(entry.get("name") or unquote(place).rpartition("/")[2])


def choose_wheel(
    pins: Pins, package: dict[str, Any], old: dict[str, Wheel], python: str | None = None
) -> Wheel:
    """The best fitting wheel of one package as pylock.toml lists it."""
    python = python or pins.python
    tags = supported_tags(pins, python)
    rank = {tag: number for number, tag in reversed(list(enumerate(tags)))}
    fitting = []
    for entry in package.get("wheels", []):
        filename = _filename(entry)
        _, _, build, wheel_tags = parse_wheel_filename(filename)
        if best := [rank[tag] for tag in wheel_tags if tag in rank]:
            # Of two builds of one wheel the later counts, as for pip.
            fitting.append((min(best), tuple(-part for part in build[:1]), filename, entry))
    name, version = canonicalize_name(package["name"]), package["version"]
    if not fitting:
        raise StackError(
            f"stack {pins.name}: {name} {version} has no wheel for Python {python} on "
            f"{', '.join(os.key for os in pins.os)}; pin another version in pins.yaml"
        )
    filename, entry = min(fitting, key=lambda item: item[:3])[2:]
    url = str(entry.get("url", ""))
    sha256 = entry.get("hashes", {}).get("sha256")
    if sha256 is None:
        raise StackError(f"stack {pins.name}: {url}: its index gives no sha256; use another index")
    size = entry.get("size") or _size(url)
    public = url if urlsplit(url).hostname in PUBLIC_HOSTS else _public_url(pins, name, filename)
    before = old.get(name)
    if public is None and before and before.sha256 == sha256:
        public = before.url  # who locked last could see where it is published
    return Wheel(
        name=name, version=version, filename=filename, sha256=sha256, size=size, url=public
    )


def _size(url: str) -> int:
    """Bytes of a wheel whose index doesn't say, as for local files and PyTorch's index."""
    if url.startswith("file:"):
        return Path(url2pathname(urlsplit(url).path)).stat().st_size
    try:
        answer = httpx.head(url, follow_redirects=True, timeout=30)
        return int(answer.raise_for_status().headers["Content-Length"])
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise StackError(f"{url}: its size can't be had: {error!r}; try again") from None


def _public_url(pins: Pins, name: str, filename: str) -> str | None:
    """Where an extra index has a file that was found locally (PyTorch's flat layout)."""
    for index in pins.extra_index:
        if name in index.packages:
            return f"{index.url.rstrip('/')}/{filename.replace('+', '%2B')}"
    return None
