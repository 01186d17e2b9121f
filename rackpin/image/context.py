"""The build context: what `docker build` gets to see, and nothing else of the checkout.

The tool's own dependencies are put there by uv, from uv.lock with hashes, for the Python that
the image has: so the build asks no index, and a private index needs no secret inside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from rackpin.image.engine import ImageError
from rackpin.inventory import ROOT
from rackpin.stack.lock import Lock
from rackpin.stages import image

MARK = "# rackpin: ENV and LABEL of the stack"
PARTS = ("deploys", "inventories/image.py", "templates", "skus", "rackpin")
UV_S = 600.0
OLDEST_PYTHON = (3, 11)  # for the tool itself, as in pyproject.toml
OTHER_PYTHON = "3.12"


def labels(lock: Lock) -> dict[str, str]:
    """What the image says of itself; ``rackpin.lock`` is the lock's whole digest."""
    return {
        "rackpin.lock": lock.digest,
        "rackpin.stack": lock.stack,
        "rackpin.engine": f"{lock.engine.distribution} {lock.engine.version}",
        "org.opencontainers.image.title": f"rackpin {lock.stack}",
        "org.opencontainers.image.version": lock.short,
    }


def dockerfile(lock: Lock, source: Path = ROOT / "Dockerfile") -> str:
    """The Dockerfile with the stack's ENV and LABEL lines at its mark."""
    text = source.read_text(encoding="utf-8")
    if text.count(f"{MARK}\n") != 1:
        raise ImageError(f"{source}: the line {MARK!r} must be there exactly once")
    lines = [f"ENV {key}={_word(v)}" for key, v in sorted(image.environment(lock).items())]
    lines += [f"LABEL {key}={_word(value)}" for key, value in labels(lock).items()]
    return text.replace(f"{MARK}\n", "\n".join([MARK, *lines, ""]))


def _word(value: str) -> str:
    """A value as a Dockerfile takes it literally."""
    if "\n" in value:
        raise ImageError(f"{value!r}: a line break can't be in an image's variable")
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'


def os_python(lock: Lock) -> bool:
    """Whether the OS's own Python can run the tool inside the build."""
    return tuple(map(int, lock.python.split("."))) >= OLDEST_PYTHON


def prepare(lock: Lock, directory: Path, root: Path = ROOT) -> Path:
    """Fill ``directory`` (new or empty) with the context; returns it."""
    if directory.exists() and any(directory.iterdir()):
        raise ImageError(f"{directory}: is not empty; name a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for part in (*PARTS, f"stacks/{lock.stack}"):
        target = directory / part
        if (root / part).is_dir():
            shutil.copytree(root / part, target, ignore=ignore)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / part, target)
    (directory / "Dockerfile").write_text(dockerfile(lock, root / "Dockerfile"), encoding="utf-8")
    _tool(lock, directory / "tool", root)
    return directory


def _tool(lock: Lock, directory: Path, root: Path) -> None:
    """pyinfra and the other dependencies for the image's Python, and a command to run them."""
    directory.mkdir()
    python, command = lock.python, f"/usr/bin/python{lock.python}"
    if not os_python(lock):
        python, command = OTHER_PYTHON, "/rackpin/tool/python/bin/python3"
        where = directory / "interpreters"
        uv("python", "install", python, "--install-dir", str(where), "--no-bin", cwd=root)
        found = next(path for path in sorted(where.iterdir()) if not path.is_symlink())
        found.rename(directory / "python")
        shutil.rmtree(where)
    wanted = directory / "requirements.txt"
    # uv itself comes from the wheelhouse, as on a host
    uv("export", "--frozen", "--no-dev", "--no-emit-project", "--no-emit-package", "uv",
       "--no-header", "--quiet", "--output-file", str(wanted), cwd=root)  # fmt: skip
    uv("pip", "install", "--quiet", "--target", str(directory / "site"), "--requirement",
       str(wanted), "--require-hashes", "--no-deps", "--only-binary", ":all:",
       "--python-version", python, "--python-platform", "x86_64-unknown-linux-gnu",
       "--link-mode", "copy", cwd=root)  # fmt: skip
    run = directory / "pyinfra"
    path = "/rackpin:/rackpin/tool/site"
    run.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={path} PYTHONDONTWRITEBYTECODE=1\n"
        f'exec {quote(command)} -m pyinfra "$@"\n',
        encoding="utf-8",
    )
    run.chmod(0o755)


def uv(*argv: str, cwd: Path, more: Mapping[str, str] | None = None) -> None:
    from uv import find_uv_bin

    env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"} | dict(more or {})
    try:
        done = subprocess.run(
            [find_uv_bin(), *argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=UV_S
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"uv {argv[0]}: not done within {UV_S:g} s; is the index slow?") from None
    if done.returncode != 0:
        raise ImageError(f"uv {argv[0]}: {done.stderr.strip()}")
