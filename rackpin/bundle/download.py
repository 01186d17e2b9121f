"""Items by their URLs: several at once, resumed where a killed run left off, each proved."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

import httpx

from rackpin.bundle.model import BundleError, Item
from rackpin.bundle.store import FULL, Store, full
from rackpin.debs.transport import client
from rackpin.stack.registry import MANIFESTS, token

TRIES = 3
SLOWEST_BYTES_S = 100_000  # slower for a whole file counts as hung
UNKNOWN_SIZE = 2 << 30  # bytes at most, where the lock doesn't know
BLOCK = 1 << 20


@dataclass
class Tally:
    """What a run of downloads has come to; shared by its threads."""

    problems: dict[str, str] = field(default_factory=dict)  # by path
    down: dict[str, str] = field(default_factory=dict)  # by host: why it is not asked any more
    stop: threading.Event = field(default_factory=threading.Event)
    fatal: BundleError | None = None

    def end(self, error: BundleError) -> None:
        self.fatal = self.fatal or error
        self.stop.set()

    def text(self, directory: Path, total: int) -> str:
        """One error for all: hosts that are down first, then each file with its reason."""
        lines = [f"{host}: {why}" for host, why in sorted(self.down.items())]
        left = [t for t in self.problems.values() if not any(t.endswith(w) for w in lines)]
        lines += left[:20]
        if len(left) > 20:
            lines.append(f"… and {len(left) - 20} more")
        return (
            f"{directory}: {len(self.problems)} of {total} file(s) could not be had as locked:\n  "
            + "\n  ".join(lines)
            + "\nsee whether mirror and proxy are up and unchanged, then run again: what was "
            "fetched is kept"
        )


class Fetcher:
    """Fetches items into a store. ``moved`` is told of bytes as they come (or go, if negative)."""

    def __init__(
        self,
        store: Store,
        tally: Tally,
        moved: Callable[[int], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store, self.tally, self.moved, self.sleep = store, tally, moved, sleep
        self._client = client()
        self._tokens: dict[str, str] = {}  # by image
        self._lock = threading.Lock()
        self._counted: dict[str, int] = {}  # bytes told of, by path

    def _count(self, item: Item, size: int) -> None:
        """So many bytes of the item are there now; a retry may go back."""
        self.moved(size - self._counted.get(item.path, 0))
        self._counted[item.path] = size

    def close(self) -> None:
        self._client.close()

    def fetch(self, item: Item) -> None:
        """Have the item in the store, or a problem in the tally. Never raises but on bugs."""
        before = self.tally.problems.get(item.path, "")  # pip's complaint
        problem = f"{item.path}: nowhere else to fetch it from"
        for url in item.urls:
            if self.tally.stop.is_set():
                return
            host = urlsplit(url).netloc or "local files"
            if why := self.tally.down.get(host):
                problem = f"{item.path}: {host}: {why}"
                continue
            problem = self._from(url, host, item)
            if not problem:
                self.tally.problems.pop(item.path, None)
                return
        self.tally.problems[item.path] = f"{before}; {problem}" if before else problem

    def _from(self, url: str, host: str, item: Item) -> str:
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                self.sleep(2.0**attempt)
            if self.tally.stop.is_set():
                return f"{item.path}: interrupted"
            try:
                self._get(url, item)
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                problem = f"{item.path}: {url}: {status} {error.response.reason_phrase}"
                if 400 <= status < 500 and status not in (408, 416, 429):
                    return problem  # asking again won't help
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
                why = f"can't be reached ({error})"
                problem = f"{item.path}: {host}: {why}"
                if attempt == TRIES - 1:
                    self.tally.down[host] = why  # the other files of this host needn't wait
            except httpx.HTTPError as error:
                problem = f"{item.path}: {url}: {type(error).__name__}: {error}"
            except OSError as error:
                if error.errno in FULL:
                    self.tally.end(BundleError(full(self.store.directory, item.size or 0)))
                    return f"{item.path}: no space left"
                return f"{item.path}: {error.strerror}: {error.filename}"
            else:
                problem = self.store.adopt(self.store.part(item), item)
                if not problem:
                    return ""
                self._count(item, 0)
                problem += f" from {url}"
        return problem

    def _get(self, url: str, item: Item) -> None:
        """Complete the part of an item, going on from what is there."""
        part = self.store.part(item)
        parts = urlsplit(url)
        if parts.scheme == "file":
            self._copy(Path(url2pathname(parts.path)), part, item)
            return
        have = part.stat().st_size if part.is_file() else 0
        if item.size is not None and have >= item.size:
            have = 0  # its hash decides when it is whole, and it was not adopted
        headers = {"Range": f"bytes={have}-"} if have else {}
        limit = UNKNOWN_SIZE if item.size is None else item.size
        end = time.monotonic() + 60 + limit / SLOWEST_BYTES_S
        place = quote(url, safe=":/?&=%~+@[]")
        headers |= self._login(item, place)
        with self._client.stream("GET", place, headers=headers) as answer:
            if answer.status_code == 416:
                part.unlink(missing_ok=True)  # another file than when the part was begun
            answer.raise_for_status()
            resumed = answer.status_code == 206
            with part.open("ab" if resumed else "wb") as stream:
                for block in answer.iter_raw(BLOCK):
                    stream.write(block)
                    self._count(item, stream.tell())
                    if self.tally.stop.is_set():
                        raise httpx.ReadError("interrupted")
                    if stream.tell() > limit:
                        return  # the hash will tell, and both sizes are named
                    if time.monotonic() > end:
                        raise httpx.ReadTimeout("slower than 100 kB/s")

    def _login(self, item: Item, url: str) -> dict[str, str]:
        """What a registry wants with a request for an image's part; one token for all parts."""
        if item.kind != "image":
            return {}
        image = url.rpartition("/")[0].rpartition("/")[0]
        headers = {"Accept": ", ".join((*MANIFESTS, "*/*"))}  # else an OCI manifest is "not found"
        with self._lock:
            if image not in self._tokens:
                asked = self._client.head(url, headers=headers)
                challenge = asked.headers.get("WWW-Authenticate", "")
                bearer = ""
                if asked.status_code == 401:
                    try:
                        bearer = token(self._client, challenge, urlsplit(url).netloc)
                    except ValueError as error:
                        raise httpx.RequestError(f"the registry {error}") from None
                self._tokens[image] = bearer
        bearer = self._tokens[image]
        return headers | ({"Authorization": f"Bearer {bearer}"} if bearer else {})

    def _copy(self, source: Path, part: Path, item: Item) -> None:
        with source.open("rb") as found, part.open("wb") as stream:
            while block := found.read(BLOCK):
                stream.write(block)
                self._count(item, stream.tell())
