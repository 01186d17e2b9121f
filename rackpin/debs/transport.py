"""Fetching by http, https or file, through this machine's own proxies, with a deadline."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

import httpx

from rackpin.debs.model import DebError, Unreachable

TRIES = 3
TIMEOUT = httpx.Timeout(30.0, read=60.0)
SLOWEST_BYTES_S = 100_000  # slower than this for a whole file counts as hung
LIMIT = 1 << 30  # bytes of one index


class NotFound(DebError):
    """The repository answers, but has no such file."""


def apt_proxies() -> dict[str, str]:
    """Proxies that this machine's apt is told of, by scheme, where the environment has none.

    A site's proxy for debs usually stands only there. Never shown: it may hold a password.
    """
    found: dict[str, str] = {}
    apt_config = shutil.which("apt-config")
    if apt_config is None:
        return found
    try:
        done = subprocess.run(
            [apt_config, "dump"], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        raise DebError("apt-config dump: no answer within 30 s; see what ails apt") from None
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        for scheme in ("http", "https"):
            given = f"{scheme}_proxy" in os.environ or f"{scheme.upper()}_PROXY" in os.environ
            if key.lower() == f"acquire::{scheme}::proxy" and not given:
                found[scheme] = value.strip('";')
    return {scheme: url for scheme, url in found.items() if url not in ("", "DIRECT", "false")}


def client() -> httpx.Client:
    """A client that knows the proxies of the environment and of apt."""
    mounts = {f"{scheme}://": httpx.HTTPTransport(proxy=url) for scheme, url in
              apt_proxies().items()}  # fmt: skip
    plain = {"Accept-Encoding": "identity"}  # hashes are those of the file itself
    return httpx.Client(timeout=TIMEOUT, follow_redirects=True, mounts=mounts, headers=plain)


class Transport:
    """Fetches whole small files into memory; one for all repositories of a run."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client()
        self.sleep = sleep

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, url: str, size: int | None = None) -> bytes:
        """The content at ``url``; with ``size``, never more than one byte beyond it.

        Raises :class:`NotFound`, or :class:`Unreachable` after several tries.
        """
        limit = LIMIT if size is None else size
        if urlsplit(url).scheme in ("file", "copy", ""):
            return self._local(url, limit)
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                self.sleep(2.0**attempt)
            try:
                return self._fetch(quote(url, safe=":/?&=%~+@[]"), limit)
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status in (403, 404, 410):
                    raise NotFound(f"{url}: {status} {error.response.reason_phrase}") from None
                problem = f"{status} {error.response.reason_phrase}"
                if 400 <= status < 500 and status not in (408, 429):
                    break  # asking again won't help
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
        raise Unreachable(
            f"{url}: no answer ({problem}); see whether the repository or its mirror is up and "
            "the proxy right, then run again"
        )

    def _fetch(self, url: str, limit: int) -> bytes:
        end = time.monotonic() + 60 + min(limit, 1 << 28) / SLOWEST_BYTES_S
        parts, total = [], 0
        with self._client.stream("GET", url) as answer:
            answer.raise_for_status()
            # raw: an index is compressed by itself, and its hash is that of the bytes sent.
            for block in answer.iter_raw(1 << 20):
                parts.append(block)
                total += len(block)
                if total > limit:
                    break  # the caller sees the wrong size
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("too slow")
        return b"".join(parts)

    def _local(self, url: str, limit: int) -> bytes:
        path = Path(url2pathname(urlsplit(url).path))
        try:
            with path.open("rb") as stream:
                return stream.read(limit + 1)
        except FileNotFoundError:
            raise NotFound(f"{url}: no such file") from None
        except OSError as error:
            raise Unreachable(f"{url}: {error.strerror}") from None


def not_mounted(url: str) -> bool:
    """Whether ``url`` is a local directory that isn't there: no answer, rather than a wrong one."""
    parts = urlsplit(url)
    return parts.scheme in ("file", "copy", "") and not Path(url2pathname(parts.path)).is_dir()


def short(content: bytes, size: int) -> str:
    """How to say that a content has another size than it should."""
    return f"more than {size}" if len(content) > size else str(len(content))
