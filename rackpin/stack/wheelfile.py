"""Single wheel files: their hashes, and building those that come from this repository."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from rackpin.stack.pins import LocalWheel, StackError

BUILD_DEADLINE_S = 300


def sha256_of(file: Path) -> str:
    """sha256 of a file's content, 64 hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def build_local(local: LocalWheel, repository: Path, out: Path, python: str) -> Path:
    """Run a local wheel's builder; returns that wheel, in a new folder of ``out``.

    Raises :class:`StackError` when the builder fails or didn't write the pinned version.
    """
    builder = repository / local.builder
    if not builder.is_file():
        raise StackError(
            f"pins.yaml: local_wheels: {local.name}: builder {local.builder} is not in "
            f"{repository}; correct the path"
        )
    target = out / f"built-{local.name}"
    target.mkdir(parents=True)
    try:
        done = subprocess.run(
            [python, str(builder), str(target)],
            cwd=repository, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise StackError(
            f"{local.builder}: building {local.name} took over {BUILD_DEADLINE_S} s; run it by hand"
        ) from None
    if done.returncode != 0:
        raise StackError(
            f"{local.builder}: building {local.name} {local.version} failed:\n"
            f"{(done.stderr or done.stdout).strip()[-2000:]}"
        )
    files = sorted(target.glob("*.whl"))
    for file in files:
        try:
            name, version, _, _ = parse_wheel_filename(file.name)
        except InvalidWheelFilename as error:
            raise StackError(f"{local.builder}: wrote a wheel with a wrong name: {error}") from None
        if (name, str(version)) == (local.name, local.version):
            return file
    written = ", ".join(file.name for file in files) or "no wheel"
    raise StackError(
        f"pins.yaml: local_wheels: {local.name} {local.version}: {local.builder} wrote {written}; "
        "pin what it writes"
    )
