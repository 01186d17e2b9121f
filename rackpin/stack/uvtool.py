"""Asking uv which Python packages belong together. Writes only in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import parse_wheel_filename
from uv import find_uv_bin

from rackpin.stack.model import StackError
from rackpin.stack.pins import Pins
from rackpin.stack.target import glibc

UV_DEADLINE_S = 600


def pip_settings() -> dict[str, list[str]]:
    """Places that this machine's pip is told of, by setting (``find-links``, ``index-url``).

    uv doesn't read pip's settings, and a site's mirror usually stands only there.
    """
    found = {"find-links": os.environ.get("PIP_FIND_LINKS", "").split(), "index-url": []}
    if pip := shutil.which("pip3") or shutil.which("pip"):
        try:
            done = subprocess.run(
                [pip, "config", "list"], capture_output=True, text=True, timeout=60, check=False
            )
        except subprocess.TimeoutExpired:
            raise StackError("pip config list: no answer within 60 s; see what ails pip") from None
        for line in done.stdout.splitlines():
            key, _, value = line.partition("=")
            if (name := key.rpartition(".")[2]) in found:
                found[name] += value.strip("'\"").replace("\\n", " ").split()
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}


def places(pins: Pins, settings: dict[str, list[str]]) -> dict[str, str]:
    """Our environment with pip's places for uv; not as arguments, they may hold a password."""
    given = dict(os.environ)
    links = [*given.get("UV_FIND_LINKS", "").split(","), *settings["find-links"]]
    # Files of a folder have no date, so a stack as of some day must not see them.
    given["UV_FIND_LINKS"] = "" if pins.exclude_newer else ",".join(filter(None, links))
    if settings["index-url"] and not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & set(given):
        given["UV_DEFAULT_INDEX"] = settings["index-url"][-1]
    # uv would fetch an interpreter of the stack's version, to build what we never build.
    given["UV_PYTHON_DOWNLOADS"] = "never"
    return given


def _has_wheel(links: list[str], name: str, version: str) -> bool:
    for link in links:
        directory = Path(url2pathname(urlsplit(link).path) if "://" in link else link)
        for file in directory.glob("*.whl") if directory.is_dir() else ():
            found, found_version, _, _ = parse_wheel_filename(file.name)
            if (found, str(found_version)) == (name, version):
                return True
    return False


def project(pins: Pins, links: list[str], python: str | None = None) -> str:
    """The throw-away pyproject.toml that uv resolves."""
    quoted = json.dumps  # JSON strings and lists are TOML's too
    override = [f"{e.name} ; python_version < '0'" for e in pins.exclude]
    nccl = pins.nccl.engine
    if nccl and nccl.override:
        override.append(f"{nccl.distribution}=={nccl.version}")
    wanted = list(pins.requirements)
    if nccl and not nccl.override:
        wanted.append(f"{nccl.distribution}=={nccl.version}")
    lines = [
        "[project]",
        'name = "rackpin-stack"\nversion = "0"',
        f"requires-python = {quoted(f'=={python or pins.python}.*')}",
        f"dependencies = {quoted(wanted)}",
        "[tool.uv]",
        f"override-dependencies = {quoted(override)}",
    ]
    if pins.exclude_newer:  # a bare date would mean this machine's time zone
        end = pins.exclude_newer + timedelta(days=1)
        lines.append(f"exclude-newer = {quoted(f'{end.isoformat()}T00:00:00Z')}")
    sources = []
    for number, index in enumerate(pins.extra_index):
        # explicit: asked for nothing but the packages that name it.
        lines += ["[[tool.uv.index]]", f'name = "extra-{number}"', f"url = {quoted(index.url)}"]
        lines += ["explicit = true"]
        for name in index.packages:
            pin = pins.dists.get(name)
            if pin is None or not _has_wheel(links, name, pin.version):
                sources.append(f'{name} = {{ index = "extra-{number}" }}')
    return "\n".join([*lines, "[tool.uv.sources]", *sources, ""])


def _run(pins: Pins, work: Path, arguments: list[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            [find_uv_bin(), "pip", "compile", *arguments],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=UV_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StackError(
            f"stack {pins.name}: uv did not answer within {UV_DEADLINE_S} s; see whether the "
            "package index is reachable (UV_DEFAULT_INDEX, proxies), then run again"
        ) from None
    if done.returncode != 0:
        raise StackError(
            f"stacks/{pins.name}/pins.yaml: the pins can't be resolved; correct them. uv says:\n"
            f"{done.stderr.strip()[-4000:]}{_explain_nccl(pins, done.stderr)}"
        )


def _explain_nccl(pins: Pins, said: str) -> str:
    nccl = pins.nccl.engine
    if nccl is None or nccl.override or nccl.distribution not in said:
        return ""
    return (
        f"\nnccl.engine: torch asks for another {nccl.distribution} than {nccl.version}. Pin the "
        "one that torch brings, or set `override: true` to force this one in its place"
    )


def _target(pins: Pins, python: str) -> list[str]:
    platform = f"{pins.arch}-manylinux_{'_'.join(map(str, glibc(pins)))}"
    options = ["--python-version", python, "--python-platform", platform]
    return [*options, "--python", sys.executable, "--only-binary", ":all:"]


def compile(
    pins: Pins,
    python: str,
    work: Path,
    source: str,
    extra: Iterable[str],
    environment: dict[str, str],
) -> list[dict[str, Any]]:
    """Run ``uv pip compile`` on ``work/SOURCE``; returns the packages of its pylock.toml.

    A pylock.toml that lies in ``work`` before gives the versions to keep where possible.
    """
    out = work / "pylock.toml"
    arguments = [source, "--no-header", "--quiet", "--format", "pylock.toml"]
    arguments += ["--output-file", str(out), *_target(pins, python), *extra]
    _run(pins, work, arguments, environment)
    packages: list[dict[str, Any]] = tomllib.loads(out.read_text(encoding="utf-8"))["packages"]
    return packages


def wanted_by(
    pins: Pins, python: str, work: Path, versions: dict[str, str], environment: dict[str, str]
) -> dict[str, list[str]]:
    """Who asks for each distribution, by name, in the resolution that ``versions`` gives."""
    constraints, out = work / "versions.txt", work / "why.txt"
    constraints.write_text("".join(f"{n}=={v}\n" for n, v in versions.items()), encoding="utf-8")
    arguments = ["pyproject.toml", "--no-header", "--quiet", "--annotation-style", "line"]
    arguments += ["--format", "requirements.txt", "--output-file", str(out)]
    arguments += ["--constraint", str(constraints), *_target(pins, python)]
    _run(pins, work, arguments, environment)
    found: dict[str, list[str]] = {}
    for line in out.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([a-z0-9._-]+)==\S+(?: +;[^#]*)?(?: +# via (.*))?$", line):
            names = [n.split(" ")[0] for n in (match[2] or "").split(", ")]
            found[match[1]] = [n for n in names if n and n not in ("-c", "rackpin-stack")]
    return found
