"""Fetching locked wheels: through pip, which knows the site's mirrors, else by their URL."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from rackpin.stack.lock import Lock, Wheel
from rackpin.stack.target import platform_tags

Take = Callable[[Path, Wheel, str], None]
Say = Callable[[str], None]

PIP_IDLE_S = 120  # pip prints a line for each file; silence this long plus its size is a hang
SLOWEST_BYTES_S = 500_000  # a slower source counts as hung
TRIES = 3


def deadline_s(size: int) -> float:
    """Seconds that a download of ``size`` bytes may take."""
    return 60 + size / SLOWEST_BYTES_S


def pip_command() -> list[str] | None:
    """A pip that can be run, or None."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    return [found] if found else None


def by_pip(wheels: list[Wheel], lock: Lock, work: Path, take: Take, say: Say) -> str:
    """Fetch in one ``pip download``, each file to ``take``; returns what pip complained of."""
    pip = pip_command()
    if pip is None:
        return "no pip on this machine"
    out = work / "pip"
    out.mkdir(parents=True)
    names = work / "requirements.txt"
    names.write_text(
        "".join(f"{w.name}=={w.version} --hash=sha256:{w.sha256}\n" for w in wheels),
        encoding="utf-8",
    )
    command = [
        *pip, "download", "--no-deps", "--require-hashes", "--no-input", "--progress-bar", "off",
        "--no-cache-dir", "--retries", str(TRIES), "--only-binary", ":all:",
        "--python-version", lock.python, "--implementation", "cp",
        *(part for tag in platform_tags(lock) for part in ("--platform", tag)),
        "--dest", str(out), "--requirement", str(names),
    ]  # fmt: skip
    lines: list[str] = []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    limit = PIP_IDLE_S + sum(deadline_s(w.size) - 60 for w in wheels)
    timer = threading.Timer(limit, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        done = 0
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("Collecting "):
                done += 1
                if done % 25 == 0:
                    say(f"pip: {done} of {len(wheels)}")
        code = process.wait(timeout=60)
    finally:
        timer.cancel()
        if process.poll() is None:
            process.kill()
            process.wait(timeout=60)
    for wheel in wheels:
        if (out / wheel.filename).is_file():
            take(out / wheel.filename, wheel, "pip")
    if code == 0:
        return "the configured index has another file for it"
    told = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
    return " ".join(told)[:600] if code > 0 else f"ended after {limit:.0f} s"


def _fetch(client: httpx.Client, wheel: Wheel, target: Path) -> None:
    """One try at one URL; raises httpx.HTTPError or OSError."""
    end = time.monotonic() + deadline_s(wheel.size)
    with client.stream("GET", str(wheel.url)) as answer, target.open("wb") as stream:
        answer.raise_for_status()
        for block in answer.iter_bytes(1 << 20):
            stream.write(block)
            if stream.tell() > wheel.size:
                raise httpx.DecodingError(f"longer than the locked {wheel.size} bytes")
            if time.monotonic() > end:
                raise httpx.ReadTimeout(f"not done after {deadline_s(wheel.size):.0f} s")


def by_url(wheels: list[Wheel], work: Path, take: Take, errors: dict[str, str], say: Say) -> None:
    """Fetch from the locked URLs, four at a time; adds to ``errors`` what failed, by file name."""
    if not wheels:
        return
    say(f"fetching {len(wheels)} by their URL")
    timeout = httpx.Timeout(30.0, read=60.0)

    def one(wheel: Wheel) -> None:
        target = work / f"url-{wheel.filename}"
        for attempt in range(1, TRIES + 1):
            try:
                _fetch(client, wheel, target)
            except (httpx.HTTPError, OSError) as error:
                target.unlink(missing_ok=True)
                told = f"{wheel.url}: {type(error).__name__}: {error}"
                status = getattr(getattr(error, "response", None), "status_code", 0)
                if attempt == TRIES or 400 <= status < 500:  # asking again won't help
                    before = errors.get(wheel.filename, wheel.filename)
                    errors[wheel.filename] = f"{before}; {told}"
                    return
                say(f"{told}; trying again ({attempt + 1} of {TRIES})")
                time.sleep(2**attempt)
            else:
                take(target, wheel, str(wheel.url))
                return

    with (
        httpx.Client(timeout=timeout, follow_redirects=True) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        list(pool.map(one, wheels))
