"""The RECORDs of the locked wheels, from the wheelhouse: what an installed one must say."""

from __future__ import annotations

import zipfile
from pathlib import Path

from rackpin.audit.node.record import record_digest, record_rows, wheel_rows
from rackpin.stack import wheelhouse
from rackpin.stack.lock import Lock


def wheel_records(lock: Lock, directory: Path | None = None) -> tuple[dict[str, str], list[str]]:
    """Digest of each wheel's RECORD by distribution, and the distributions without one.

    Only wheels that are as locked count. 161 wheels of 0.9 GB take a third of a second.
    """
    directory = directory or wheelhouse.default_dir()
    wrong = {problem.filename for problem in wheelhouse.verify(lock, directory)}
    found, missing = {}, []
    for wheel in lock.wheels:
        try:
            if wheel.filename in wrong:
                raise ValueError("not as locked")
            found[wheel.name] = digest_of(directory / wheel.filename)
        except (OSError, ValueError, zipfile.BadZipFile):
            missing.append(wheel.name)
    return found, missing


def digest_of(file: Path) -> str:
    """The digest of a wheel file's RECORD. ValueError when it has none."""
    with zipfile.ZipFile(file) as archive:
        names = [n for n in archive.namelist() if n.endswith(".dist-info/RECORD")]
        names = [n for n in names if n.count("/") == 1]
        if len(names) != 1:
            raise ValueError(f"{file.name}: has {len(names)} RECORD files")
        text = archive.read(names[0]).decode("utf-8", "surrogateescape")
    return record_digest(wheel_rows(record_rows(text)))
