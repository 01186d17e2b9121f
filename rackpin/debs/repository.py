"""One repository: Release proved by its pinned key, then every index by Release.

A mirror in the middle of its sync gives files that don't belong together. That looks the same
as tampering, so it is asked again a few times, from Release on, and then refused.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rackpin.debs.cache import Seen, Torn, cached, fits, keep
from rackpin.debs.index import Stanza, parse_packages
from rackpin.debs.model import Refused, Repository, Unreachable
from rackpin.debs.release import Entry, Release, check_suite, check_times, parse_release
from rackpin.debs.signature import verify_detached, verify_inline
from rackpin.debs.transport import NotFound, Transport, not_mounted, short

TORN_TRIES = 4  # with pauses of 2, 4 and 8 s
Clock = Callable[[], datetime]


@dataclass(frozen=True)
class Index:
    """A repository as read: what it offers, and when that was signed (UTC)."""

    repository: Repository
    release: Release
    release_sha256: str
    stanzas: list[Stanza]


def now() -> datetime:
    return datetime.now(UTC)


def fetch_index(
    repository: Repository,
    transport: Transport,
    cache: Path | None = None,
    clock: Clock = now,
) -> Index:
    """Read and prove a repository's index for its architecture.

    ``cache`` keeps indices by their sha256 and the newest Date seen. Raises
    :class:`Unreachable`, :class:`Refused` (key, signature, dates, hashes), :class:`DebError`.
    """
    for attempt in range(1, TORN_TRIES + 1):
        try:
            return _fetch(repository, transport, cache, clock)
        except Torn as error:
            if attempt == TORN_TRIES:
                raise Refused(
                    f"{error}; asked {TORN_TRIES} times: the mirror is in the middle of a sync or "
                    "the file was changed; wait, or use another mirror"
                ) from None
            transport.sleep(2.0**attempt)
    raise AssertionError("unreachable")


def _fetch(repository: Repository, transport: Transport, cache: Path | None, clock: Clock) -> Index:
    text, what = _release_text(repository, transport)
    release = parse_release(text.decode("utf-8", "replace"), what)
    check_times(release, repository, clock(), what)
    check_suite(release, repository, what)
    seen = Seen(cache, repository)
    seen.check(release, what)
    stanzas = []
    for names in _wanted(repository, release, what):
        content = _index(repository, transport, cache, release, names)
        stanzas += parse_packages(content.decode("utf-8", "replace"), repository.name)
    seen.write(release)
    return Index(repository, release, hashlib.sha256(text).hexdigest(), stanzas)


def _release_text(repository: Repository, transport: Transport) -> tuple[bytes, str]:
    """The signed bytes of Release, and where they came from."""
    url = repository.release_url
    if not_mounted(repository.base_url):
        raise Unreachable(f"{repository.base_url}: no such directory; is it mounted?")
    if repository.accept_unsigned:
        return transport.get(f"{url}Release"), f"{url}Release"
    assert repository.key is not None  # the model refuses it
    try:
        content, what = transport.get(f"{url}InRelease"), f"{url}InRelease"
    except NotFound:
        return _detached(repository, transport, repository.key)
    return verify_inline(content, repository.key, repository.fingerprints, what), what


def _detached(repository: Repository, transport: Transport, key: Path) -> tuple[bytes, str]:
    what = f"{repository.release_url}Release"
    try:
        content = transport.get(what)
        signature = transport.get(f"{what}.gpg")
    except NotFound as error:
        raise Refused(
            f"repository {repository.name}: neither InRelease nor a signed Release ({error}); "
            "correct its url and suite, or the mirror"
        ) from None
    try:
        text = verify_detached(content, signature, key, repository.fingerprints, what)
    except Refused as error:
        if "does not fit" in str(error):
            raise Torn(str(error)) from None  # the two files are fetched one after the other
        raise
    return text, what


def _wanted(repository: Repository, release: Release, what: str) -> list[list[str]]:
    """For each index to read, its paths in Release, best packed first."""
    arch = repository.architecture
    if repository.flat:
        places = ["Packages"]
    else:
        places = [f"{part}/binary-{arch}/Packages" for part in repository.components]
        # Some list packages for all architectures only in an index of their own; apt's rule.
        own = "all" in release.fields.get("Architectures", "").split()
        if own and release.fields.get("No-Support-for-Architecture-all") != "Packages":
            extra = [f"{part}/binary-all/Packages" for part in repository.components]
            places += [p for p in extra if any(p + end in release.entries for end in _UNPACK)]
    found = []
    for place in places:
        names = [name for end in _UNPACK for name in (place + end, f"./{place}{end}")]
        if not (names := [name for name in names if name in release.entries]):
            raise Refused(
                f"{what}: vouches for no {place}; correct components and architecture of "
                f"repository {repository.name}"
            )
        found.append(names)
    return found


def _index(
    repository: Repository,
    transport: Transport,
    cache: Path | None,
    release: Release,
    names: list[str],
) -> bytes:
    """One Packages file, unpacked; what is compressed must fit its hash before it is unpacked."""
    missing: list[str] = []
    for name in names:
        entry = release.entries[name]
        try:
            packed = cached(cache, entry) or _download(repository, transport, release, entry)
        except NotFound as error:
            missing.append(str(error))
            continue
        keep(cache, entry, packed)
        ending = Path(name).suffix
        try:
            content = _UNPACK[ending](packed)
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise Refused(f"{repository.release_url}{name}: can't be unpacked: {error}") from None
        plain = release.entries.get(name.removesuffix(ending))
        if ending and plain and not fits(content, plain):
            raise Refused(f"{repository.release_url}{name}: unpacked, not what Release vouches for")
        return content
    # Release was there a moment ago: the mirror is removing or not yet there.
    raise Torn(f"repository {repository.name}: an index of Release is missing: {missing[0]}")


def _download(
    repository: Repository, transport: Transport, release: Release, entry: Entry
) -> bytes:
    plain = repository.release_url + entry.path.removeprefix("./")
    places = [plain]
    if release.by_hash:
        parent = plain.rpartition("/")[0]
        places.insert(0, f"{parent}/by-hash/SHA256/{entry.sha256}")
    for place in places:
        try:
            content = transport.get(place, entry.size)
        except NotFound:
            if place == plain:
                raise
            continue
        if fits(content, entry):
            return content
        found = hashlib.sha256(content).hexdigest()
        raise Torn(
            f"{place}: refused: Release vouches for {entry.size} bytes, sha256 {entry.sha256}; "
            f"found {short(content, entry.size)} bytes, sha256 {found}"
        )
    raise AssertionError("unreachable")


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    "": bytes,
}
