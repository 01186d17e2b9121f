"""What a bundle holds: items to fetch, the manifest that proves them, and what can go wrong."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rackpin.stack.lock import Lock

MANIFEST = "manifest.json"
SCHEMA = 1
_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~=@,%:-]*(/[A-Za-z0-9][A-Za-z0-9._+~=@,%:-]*)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
Kind = Literal["wheel", "deb", "file", "index", "key", "image", "model"]


class BundleError(Exception):
    """The bundle can't be made, read or served; what is there already is kept."""


@dataclass(frozen=True)
class Item:
    """One file to fetch: its path in the bundle, what it must be, and where it is published."""

    path: str
    sha256: str
    size: int | None  # bytes; None when the lock doesn't know
    urls: tuple[str, ...]
    kind: Kind

    def __post_init__(self) -> None:
        check_path(self.path)


def check_path(path: str) -> str:
    """The path itself if it is a plain one below the bundle; :class:`BundleError` otherwise."""
    if not _PATH.fullmatch(path) or path == MANIFEST:
        raise BundleError(f"{path!r} is no path for a file of a bundle; lock the stack again")
    return path


@dataclass(frozen=True)
class AptPart:
    """One apt repository to be made: where, for which OS, of which vendor's debs."""

    path: str  # debs/debian-12/nvidia-cuda
    os: str
    repository: str


@dataclass(frozen=True)
class Contents:
    """All that a lock needs. ``unresolved`` says what the lock lacks, by its key."""

    stack: str
    lock_digest: str
    lock: Lock
    items: tuple[Item, ...]
    apt: tuple[AptPart, ...] = ()
    unresolved: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, order=True)
class Entry:
    """One file of a finished bundle."""

    path: str
    sha256: str
    size: int  # bytes
    kind: Kind


@dataclass(frozen=True)
class Manifest:
    """``manifest.json``: written last, so a bundle that has it was whole."""

    stack: str
    lock_digest: str
    files: tuple[Entry, ...]  # sorted by path
    apt: tuple[AptPart, ...] = ()
    signed_by: str | None = None  # fingerprint of the site's key
    unresolved: dict[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> dict[str, Entry]:
        return {entry.path: entry for entry in self.files}

    def render(self) -> str:
        """The file's text. Its last key is a digest of the rest, so no byte of it can change."""
        data: dict[str, Any] = {"schema_version": SCHEMA, **asdict(self)}
        data["digest"] = _digest(data)
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _digest(data: dict[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a finished bundle. Raises :class:`BundleError` when it is none or changed."""
    file = directory / MANIFEST
    try:
        text = file.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(
            f"{file}: missing: no bundle, or one that isn't finished; run: "
            f"rackpin bundle STACK -o {directory}"
        ) from None
    except UnicodeDecodeError:
        raise BundleError(_damaged(file, "not UTF-8")) from None
    return parse_manifest(text, file)


def parse_manifest(text: str, file: Path | str) -> Manifest:
    """A manifest's text; ``file`` is where it is from. Raises :class:`BundleError`."""
    try:
        manifest = _parse(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(_damaged(file, str(error) or type(error).__name__)) from None
    if manifest.render() != text:
        raise BundleError(_damaged(file, "its own digest does not fit"))
    return manifest


def _damaged(file: Path | str, why: str) -> str:
    return f"{file}: damaged or changed ({why}); run rackpin bundle again, or take a good copy"


def _parse(data: dict[str, Any]) -> Manifest:
    if data["schema_version"] != SCHEMA:
        raise ValueError(f"schema_version {data['schema_version']}, this rackpin reads {SCHEMA}")
    files = tuple(Entry(**entry) for entry in data["files"])
    for entry in files:
        try:
            check_path(entry.path)
        except BundleError as error:
            raise ValueError(str(error)) from None
        if not _SHA256.fullmatch(entry.sha256):
            raise ValueError(f"{entry.path}: sha256 {entry.sha256!r}")
    return Manifest(
        stack=data["stack"],
        lock_digest=data["lock_digest"],
        files=files,
        apt=tuple(AptPart(**part) for part in data["apt"]),
        signed_by=data["signed_by"],
        unresolved=data["unresolved"],
    )
