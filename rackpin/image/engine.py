"""The Docker command of this machine: found once, run with a deadline."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ASK_S = 30.0
INSTALL = "install Docker, or run this where it is"


class ImageError(Exception):
    """An image can't be built or asked; the text says what to do."""


def docker(*argv: str, deadline_s: float = ASK_S, stdin: str = "", program: str = "docker") -> str:
    """stdout of a docker command; :class:`ImageError` with its own words when it fails."""
    try:
        done = subprocess.run(
            [program, *argv], input=stdin, capture_output=True, text=True, timeout=deadline_s
        )
    except FileNotFoundError:
        raise ImageError(
            f"{program}: not installed; install Docker, or run this elsewhere"
        ) from None
    except subprocess.TimeoutExpired:
        raise ImageError(f"docker {argv[0]}: no answer within {deadline_s:g} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise ImageError(f"docker {' '.join(argv[:2])}: {said}")
    return done.stdout.strip()


@cache
def builder() -> tuple[str, Mapping[str, str]]:
    """The first docker on PATH that can BuildKit, and the environment it needs for it.

    Clients before 23 have it built in and ask for a variable, later ones need their plugin.
    """
    seen = []
    for folder in os.get_exec_path():
        program = Path(folder) / "docker"
        if not os.access(program, os.X_OK) or program.resolve() in seen:
            continue
        seen.append(program.resolve())
        if _works(str(program), "buildx", "version"):
            return str(program), {}
        version = _said(str(program), "--version").removeprefix("Docker version ").split(".")[0]
        if version.isdigit() and int(version) < 23:
            return str(program), {"DOCKER_BUILDKIT": "1"}
    if not seen:
        raise ImageError(f"docker: not installed; {INSTALL}")
    raise ImageError(
        f"{', '.join(map(str, seen))}: has no BuildKit; install the plugin (docker-buildx-plugin)"
    )


def _said(program: str, *argv: str) -> str:
    try:
        return docker(*argv, program=program)
    except ImageError:
        return ""


def _works(program: str, *argv: str) -> bool:
    return bool(_said(program, *argv))
