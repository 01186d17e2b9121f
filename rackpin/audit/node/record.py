"""RECORD files of wheels: read, reduced to what the wheel itself brought, compared with disk."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable
from pathlib import Path

# Installers write or rewrite these in NAME.dist-info; all else is as it lay in the wheel.
_INSTALLERS = re.compile(
    r"INSTALLER|REQUESTED|RECORD(\.jws|\.p7s)?|direct_url\.json|uv_(cache|build)\.json"
)
CHUNK = 1 << 20

Row = tuple[str, str, str]  # path, "sha256=…" or "", size or ""


def record_rows(text: str) -> list[Row]:
    """The lines of a RECORD. ValueError for text that isn't one."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if not rows or not all(len(row) == 3 and re.fullmatch(r"\d*", row[2]) for row in rows):
        raise ValueError("not a list of path, hash, size")
    return [(path, digest, size) for path, digest, size in rows]


def wheel_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows of a RECORD inside a wheel as they will be named once it is installed."""
    named = []
    for path, digest, size in rows:
        match = re.match(r"[^/]+\.data/(\w+)/(.*)", path)
        if match and match[1] not in ("purelib", "platlib"):
            continue  # scripts, headers, data: the installer may rewrite them
        named.append((match[2] if match else path, digest, size))
    return named


def record_digest(rows: Iterable[Row]) -> str:
    """sha256 over paths and hashes of what came out of the wheel unchanged.

    The same for the RECORD in a wheel (through :func:`wheel_rows`) and the installed one.
    """
    lines = []
    for path, digest, _ in rows:
        folder, _, name = path.rpartition("/")
        generated = folder.endswith(".dist-info") and bool(_INSTALLERS.fullmatch(name))
        outside = path.startswith(("../", "/"))
        if not (generated or outside or path.endswith(".pyc")):
            lines.append(f"{path},{digest}\n")
    return hashlib.sha256("".join(sorted(lines)).encode("utf-8", "replace")).hexdigest()


def file_digest(path: str, algorithm: str) -> bytes:
    """Of a file of any size, read piece by piece. OSError, or ValueError for the algorithm."""
    digest = hashlib.new(algorithm)
    with Path(path).open("rb", buffering=0) as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.digest()


def content_digest(path: str, algorithm: str) -> str:
    """``sha256=…`` of a file as a RECORD writes it. OSError, or ValueError for the algorithm."""
    text = base64.urlsafe_b64encode(file_digest(path, algorithm)).rstrip(b"=").decode()
    return f"{algorithm}={text}"
