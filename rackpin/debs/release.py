"""Release files: dates, and the hash of every index of the repository."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from debian.deb822 import Release as Fields

from rackpin.debs.model import Refused, Repository

SKEW = timedelta(hours=1)  # how far a repository's clock may be ahead of ours


@dataclass(frozen=True)
class Entry:
    """One file that Release vouches for, by its path beside Release."""

    path: str
    sha256: str
    size: int  # bytes


@dataclass(frozen=True)
class Release:
    """The signed text, read. Times are UTC."""

    text: str
    date: datetime
    valid_until: datetime | None
    by_hash: bool
    fields: dict[str, str]  # one-line fields such as Origin, Suite, NotAutomatic
    entries: dict[str, Entry]


def _time(value: str, field: str, what: str) -> datetime:
    try:
        time = parsedate_to_datetime(value.replace("UTC", "+0000"))
    except ValueError:
        raise Refused(f"{what}: {field} {value!r} is no date; refused") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_release(text: str, what: str) -> Release:
    """Read a Release text; :class:`Refused` when it lacks Date or sha256 sums."""
    paragraph = Fields(text.splitlines())
    if "Date" not in paragraph:
        raise Refused(f"{what}: Date: missing; refused, its age can't be told")
    try:
        entries = {
            item["name"]: Entry(item["name"], item["sha256"].lower(), int(item["size"]))
            for item in paragraph.get("SHA256", [])
        }
    except (KeyError, ValueError):
        raise Refused(f"{what}: SHA256: not readable as hash, size and name; refused") from None
    if not entries:
        raise Refused(f"{what}: SHA256: missing; MD5 and SHA1 prove nothing, refused")
    until = paragraph.get("Valid-Until")
    return Release(
        text=text,
        date=_time(paragraph["Date"], "Date", what),
        valid_until=_time(until, "Valid-Until", what) if until else None,
        by_hash=paragraph.get("Acquire-By-Hash", "no") == "yes",
        fields={k: v for k in paragraph if isinstance(v := paragraph[k], str) and "\n" not in v},
        entries=entries,
    )


def check_times(release: Release, repository: Repository, now: datetime, what: str) -> None:
    """Refuse what is expired, or signed in the future."""
    if release.date > now + SKEW:
        raise Refused(
            f"{what}: Date is {release.date:%Y-%m-%d %H:%M} UTC, but here it is "
            f"{now:%Y-%m-%d %H:%M} UTC: not valid yet; set this machine's clock, then run again"
        )
    until = release.valid_until
    if until and until < now and not repository.accept_expired:
        raise Refused(
            f"{what}: Valid-Until {until:%Y-%m-%d %H:%M} UTC has passed: the mirror no longer "
            "follows its origin, or somebody holds back updates; use another mirror, or set "
            f"accept_expired for repository {repository.name} if it is a snapshot"
        )


def check_suite(release: Release, repository: Repository, what: str) -> None:
    """Refuse another suite of the same signer in the place of the one asked for."""
    names = {release.fields.get("Suite"), release.fields.get("Codename")} - {None}
    if not repository.flat and names and repository.suite not in names:
        raise Refused(
            f"{what}: is for suite {' / '.join(sorted(str(n) for n in names))}, asked was "
            f"{repository.suite}; correct suite of repository {repository.name}, or its mirror"
        )
