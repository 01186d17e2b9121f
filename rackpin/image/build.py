"""Build the image: base by its content, wheels from the wheelhouse, proved by the lock."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rackpin.image.context import prepare
from rackpin.image.engine import ImageError, builder, docker
from rackpin.stack import serve, wheelhouse
from rackpin.stack.lock import Lock

BUILD_S = 5400.0
LOOPBACK = "127.0.0.1"
PROXIES = ("http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Base:
    """What the image starts from: ``ref`` for FROM names exactly the content of ``digest``."""

    ref: str
    digest: str
    made_tag: bool = False  # ours only while the image is built


@dataclass(frozen=True)
class Built:
    tag: str
    id: str
    size: int  # bytes, base included
    seconds: float


def image_tag(lock: Lock) -> str:
    """``rackpin/cpu-lab:0123456789ab``: a lock's image has a name of its own."""
    return f"rackpin/{lock.stack}:{lock.short}"


def locked_base(lock: Lock) -> str:
    """``NAME@sha256:…`` of the lock; :class:`StackError` without one."""
    return lock.require_image("base").pull


def resolve_base(ref: str) -> Base:
    """A base that can't move: by registry digest, or by its content if it is only here."""
    if "@sha256:" in ref:
        return Base(ref, ref.rpartition("@")[2])
    try:
        found = json.loads(docker("image", "inspect", ref))[0]
    except ImageError:
        raise ImageError(
            f"--base {ref}: a tag may move, so it must be here already (docker pull {ref}), "
            "or be given as NAME@sha256:DIGEST"
        ) from None
    if found.get("RepoDigests"):
        by_digest = str(found["RepoDigests"][0])
        return Base(by_digest, by_digest.rpartition("@")[2])
    # Imported here, no registry knows it. FROM takes no id, so a name is made of it.
    name = f"rackpin-base:{found['Id'].removeprefix('sha256:')}"
    docker("image", "tag", found["Id"], name)
    return Base(name, found["Id"], made_tag=bool(found.get("RepoTags")))


def build_argv(
    lock: Lock, base: Base, url: Path, context: Path, tag: str, environ: Mapping[str, str]
) -> list[str]:
    """``docker build …`` without the program; ``url`` is a file with the wheels' address."""
    args = {"BASE": base.ref, "BASE_DIGEST": base.digest, "STACK": lock.stack}
    # apt's way out; Docker keeps these out of the image and its history
    args |= {name: environ[name] for name in PROXIES if environ.get(name)}
    options = [word for name, value in args.items() for word in ("--build-arg", f"{name}={value}")]
    # Host's network: the build takes wheels from this machine as a node does, and only those it
    # needs; as part of the context every byte of the wheelhouse would be copied first.
    options += ["--secret", f"id=wheelhouse,src={url}"]
    return ["build", "--network", "host", *options, "--tag", tag, str(context)]


def build(
    lock: Lock, base: str, tag: str, say: Callable[[str], None], house: Path | None = None
) -> Built:
    """Build and tag; the builder's own output goes to stderr as it comes."""
    house = house or wheelhouse.default_dir()
    if problems := wheelhouse.verify(lock, house):
        raise ImageError(
            f"{house}: {len(problems)} file(s) are not as locked, first {problems[0]}; "
            f"run: rackpin wheelhouse build {lock.stack}"
        )
    program, more = builder()
    found = resolve_base(base)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rackpin-image-") as temp:
        work = Path(temp)
        say("preparing the context")
        context = prepare(lock, work / "context")
        with serve.Server(house, LOOPBACK, 0) as free:
            port = int(free.server_address[1])
        serve.serve_background(house, LOOPBACK, port, work / "pid", work / "log")
        try:
            url = work / "url"
            url.write_text(f"http://{LOOPBACK}:{port}", encoding="ascii")
            argv = build_argv(lock, found, url, context, tag, os.environ)
            say(f"building {tag} on {found.ref}")
            _run([program, *argv], {**os.environ, **more})
        finally:
            serve.stop_background(work / "pid")
            if found.made_tag:
                docker("image", "rm", "--no-prune", found.ref)  # only the name: it has another
    image = json.loads(docker("image", "inspect", tag))[0]
    return Built(tag, str(image["Id"]), int(image["Size"]), time.monotonic() - start)


def _run(argv: list[str], env: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, timeout=BUILD_S)
    except subprocess.TimeoutExpired:
        raise ImageError(f"docker build: not done within {BUILD_S:g} s") from None
    if done.returncode != 0:
        raise ImageError(f"docker build ended with {done.returncode}; its last lines say why")
