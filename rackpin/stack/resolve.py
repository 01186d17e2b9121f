"""From pins to a lock: uv resolves, we keep the one wheel that fits the platform."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import httpx
from packaging.utils import canonicalize_name, parse_wheel_filename
from uv import find_uv_bin

from rackpin.stack.lock import STACKS, Lock, Wheel, read_lock, stack_pins
from rackpin.stack.pins import Pins, StackError
from rackpin.stack.target import glibc, supported_tags
from rackpin.stack.wheelfile import build_local, sha256_of

UV_DEADLINE_S = 600
# Only addresses that everybody can reach go into a committed lock, never a site's mirror.
PUBLIC_HOSTS = {"files.pythonhosted.org", "download.pytorch.org"}


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


def _uv_environment(settings: dict[str, list[str]]) -> dict[str, str]:
    """Our environment with pip's places for uv; not as arguments, they may hold a password."""
    given = dict(os.environ)
    links = [*given.get("UV_FIND_LINKS", "").split(","), *settings["find-links"]]
    given["UV_FIND_LINKS"] = ",".join(link for link in links if link)
    if settings["index-url"] and not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & set(given):
        given["UV_DEFAULT_INDEX"] = settings["index-url"][-1]
    return given


def _has_wheel(links: list[str], name: str, version: str) -> bool:
    for link in links:
        directory = Path(url2pathname(urlsplit(link).path) if "://" in link else link)
        for file in directory.glob("*.whl") if directory.is_dir() else ():
            found, found_version, _, _ = parse_wheel_filename(file.name)
            if (found, str(found_version)) == (name, version):
                return True
    return False


def project(pins: Pins, links: list[str]) -> str:
    """The throw-away pyproject.toml that uv resolves."""
    quoted = json.dumps  # JSON strings and lists are TOML's too
    never = [f"{e.name} ; python_version < '0'" for e in pins.exclude]
    lines = [
        "[project]",
        'name = "rackpin-stack"\nversion = "0"',
        f"requires-python = {quoted(f'=={pins.python}.*')}",
        f"dependencies = {quoted(pins.requirements)}",
        "[tool.uv]",
        f"override-dependencies = {quoted(never)}",
    ]
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


def _uv_compile(
    pins: Pins, work: Path, source: str, extra: list[str], environment: dict[str, str]
) -> list[dict[str, Any]]:
    """Run ``uv pip compile``; returns the packages of the pylock.toml it wrote."""
    out = work / "pylock.toml"
    command = [
        find_uv_bin(), "pip", "compile", source, "--no-header", "--quiet",
        "--format", "pylock.toml", "--output-file", str(out), "--only-binary", ":all:",
        "--python-version", pins.python,
        "--python-platform", f"{pins.arch}-manylinux_{'_'.join(map(str, glibc(pins)))}", *extra,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
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
            f"{done.stderr.strip()[-4000:]}"
        )
    packages: list[dict[str, Any]] = tomllib.loads(out.read_text(encoding="utf-8"))["packages"]
    return packages


def _filename(entry: dict[str, Any]) -> str:
    place = entry.get("url") or entry.get("path") or ""
    return str(entry.get("name") or unquote(place).rpartition("/")[2])


def choose_wheel(pins: Pins, package: dict[str, Any], old: dict[str, Wheel]) -> Wheel:
    """The best fitting wheel of one package as pylock.toml lists it."""
    rank = {tag: number for number, tag in reversed(list(enumerate(supported_tags(pins))))}
    fitting = []
    for entry in package.get("wheels", []):
        filename = _filename(entry)
        _, _, build, wheel_tags = parse_wheel_filename(filename)
        if best := [rank[tag] for tag in wheel_tags if tag in rank]:
            # Of two builds of one wheel the later counts, as for pip.
            fitting.append((min(best), tuple(-part for part in build[:1]), filename, entry))
    name, version = canonicalize_name(package["name"]), package["version"]
    if not fitting:
        raise StackError(
            f"stack {pins.name}: {name} {version} has no wheel for Python {pins.python} on "
            f"{', '.join(os.key for os in pins.os)}; pin another version in pins.yaml"
        )
    filename, entry = min(fitting, key=lambda item: item[:3])[2:]
    url = str(entry.get("url", ""))
    sha256 = entry.get("hashes", {}).get("sha256")
    if sha256 is None:
        raise StackError(f"stack {pins.name}: {url}: its index gives no sha256; use another index")
    size = entry.get("size") or _size(url)
    public = url if urlsplit(url).hostname in PUBLIC_HOSTS else _public_url(pins, name, filename)
    before = old.get(name)
    if public is None and before and before.sha256 == sha256:
        public = before.url  # who locked last could see where it is published
    return Wheel(
        name=name, version=version, filename=filename, sha256=sha256, size=size, url=public
    )


def _size(url: str) -> int:
    """Bytes of a wheel whose index doesn't say, as for local files and PyTorch's index."""
    if url.startswith("file:"):
        return Path(url2pathname(urlsplit(url).path)).stat().st_size
    try:
        answer = httpx.head(url, follow_redirects=True, timeout=30)
        return int(answer.raise_for_status().headers["Content-Length"])
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise StackError(f"{url}: its size can't be had: {error!r}; try again") from None


def _public_url(pins: Pins, name: str, filename: str) -> str | None:
    """Where an extra index has a file that was found locally (PyTorch's flat layout)."""
    for index in pins.extra_index:
        if name in index.packages:
            return f"{index.url.rstrip('/')}/{filename.replace('+', '%2B')}"
    return None


def _preferences(lock: Lock) -> str:
    """The old lock as a pylock.toml, whose versions uv keeps where the pins still allow it."""
    lines = ['lock-version = "1.0"', 'created-by = "rackpin"']
    for wheel in lock.wheels:
        if wheel.builder is None:
            lines += ["[[packages]]", f'name = "{wheel.name}"', f'version = "{wheel.version}"']
    return "\n".join(lines) + "\n"


def resolve(
    name: str, root: Path = STACKS, update: tuple[str, ...] = (), update_all: bool = False
) -> tuple[Lock | None, Lock]:
    """Old lock (None when there is none) and new lock of a stack; writes nothing.

    Versions of the old lock are kept where the pins allow it, except those named in
    ``update``. Raises :class:`StackError`.
    """
    pins = stack_pins(name, root)
    try:
        old = read_lock(name, root)
    except StackError:
        old = None  # missing, or of another schema: everything is resolved anew
    unknown = [n for n in update if old is None or canonicalize_name(n) not in old.dists]
    if unknown:
        raise StackError(f"stack {name}: --update {', '.join(unknown)}: not in the lock")
    settings = pip_settings()
    environment = _uv_environment(settings)
    moves = [part for n in update for part in ("--upgrade-package", n)]
    known = {w.name: w for w in old.files} if old else {}
    with tempfile.TemporaryDirectory(prefix="rackpin-lock-") as temp:
        work = Path(temp)
        (work / "pyproject.toml").write_text(
            project(pins, settings["find-links"]), encoding="utf-8"
        )
        (work / "uv.in").write_text(f"uv=={pins.uv}\n", encoding="utf-8")
        tool = _uv_compile(pins, work, "uv.in", ["--no-deps"], environment)
        (work / "pylock.toml").unlink()
        if old and not update_all:
            (work / "pylock.toml").write_text(_preferences(old), encoding="utf-8")
        packages = _uv_compile(pins, work, "pyproject.toml", moves, environment)
        wheels = [choose_wheel(pins, package, known) for package in packages]
        for local in pins.local_wheels:
            file = build_local(local, root.parent, work, sys.executable)
            wheels = [w for w in wheels if w.name != local.name]
            wheels.append(
                Wheel(
                    name=local.name, version=local.version, filename=file.name,
                    sha256=sha256_of(file), size=file.stat().st_size, builder=local.builder,
                )
            )  # fmt: skip
    return old, Lock(
        stack=name,
        pins_sha256=pins.sha256,
        os=pins.os,
        arch=pins.arch,
        python=pins.python,
        engine=pins.engine,
        debs={key: sorted(names) for key, names in sorted(pins.debs.items())},
        wheels=sorted(wheels, key=lambda wheel: wheel.name),
        uv=choose_wheel(pins, tool[0], known),
    )
