"""Fetch files from neighbours that have them already, else from the origin; prove each by sha256.

Runs on a bare node, standard library only. argv: PLAN, a JSON file (see rackpin/stack/share.py).
Each file gets its name in ``into`` only after its sha256 was right, then also ``share``/SHA256,
from where this node serves it to others. A right file that lies there already is kept; another one
of that name is kept under a name of its own, unless ``ours`` is "" (a place of the moment) or
exists. What the run should be told is printed as "note: …".
"""

import hashlib
import http.client
import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

BLOCK = 1 << 20
BUSY = 503  # all slots of a server are taken
MAY_WAIT = "X-Rackpin-Fetch"  # asks for an answer at once instead of a slow transfer
MB = 1e6


class Wrong(Exception):
    """What came isn't the file."""


class Source:
    """One place that may have files, and what is known of it."""

    def __init__(self, host: str, port: int, prefix: str = "/", name: str = "") -> None:
        self.host, self.port, self.prefix = host, port, prefix
        self.name = name or host
        self.not_before = 0.0  # asked again only then; inf: never

    def get(
        self,
        path: str,
        size: int,
        target: Path,
        times: dict[str, float],
        moved: Callable[[int], None],
        slowest: float = 0.0,
    ) -> str | int:
        """The sha256 of what came, or the HTTP status when nothing did."""
        link = http.client.HTTPConnection(self.host, self.port, timeout=times["connect"])
        try:
            link.connect()
            assert link.sock is not None
            link.sock.settimeout(times["silent"])
            link.request("GET", self.prefix + quote(path), headers={MAY_WAIT: "1"})
            answer = link.getresponse()
            if answer.status != 200:
                return answer.status
            return take(answer, size, target, slowest, times["silent"], moved)
        finally:
            link.close()


def take(
    answer: http.client.HTTPResponse,
    size: int,
    target: Path,
    slowest: float,
    patience: float,
    moved: Callable[[int], None],
) -> str:
    """Write an answer's body; its sha256. ``slowest``: bytes/s, once ``patience`` s passed."""
    digest, got, begun = hashlib.sha256(), 0, time.monotonic()
    with target.open("wb") as stream:
        while block := answer.read(min(BLOCK, size + 1 - got)):
            stream.write(block)
            digest.update(block)
            got += len(block)
            moved(len(block))
            took = time.monotonic() - begun
            if got > size:
                raise Wrong(f"it is longer than {size} bytes")
            if took > patience and got < took * slowest:
                raise OSError(f"only {got / took / MB:.2f} MB/s")
    if got < size:
        raise OSError(f"ended after {got} of {size} bytes")
    return digest.hexdigest()


def sha256_of(path: Path, moved: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
            moved(len(block))
    return digest.hexdigest()


class Fetch:
    """All files of a plan, several at once."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan, self.times = plan, plan["times"]
        self.end = time.monotonic() + self.times["all"]
        at = urlsplit(plan["origin"])
        port = at.port or 80
        self.origin = Source(at.hostname, port, at.path.rstrip("/") + "/", plan["origin"])
        self.neighbours = [Source(host, plan["port"]) for host in plan["neighbours"]]
        self.into = Path(plan["into"])
        self.share = Path(plan["share"]) if plan["share"] else None
        self.ours = not plan["ours"] or Path(plan["ours"]).exists()
        self.lock = threading.Lock()
        self.from_neighbours = self.from_origin = self.kept = self.moved = 0  # bytes
        self.notes: list[str] = []
        self.lost, self.answered = 0, False  # of the neighbours
        self.failed = ""
        self.numbers = itertools.count()

    def note(self, text: str) -> None:
        with self.lock:
            if text not in self.notes:
                self.notes.append(text)

    def one(self, name: str, sha256: str, size: int) -> None:
        """Have this one file, or set ``failed``."""
        if self.there(name, sha256, size):
            return
        part = self.into / f".part{next(self.numbers)}"
        refusals = 0
        while not self.failed:
            if size >= self.plan["shared_from"] and self.near(name, sha256, size, part):
                return
            found: str | int = 0
            try:
                found = self.origin.get(name, size, part, self.times, self.count)
                said = f"HTTP {found}"
            except (OSError, http.client.HTTPException, Wrong) as error:
                said = f"{type(error).__name__}: {error}"
            if found == sha256:
                self.have(name, sha256, size, part, near=False)
                return
            if isinstance(found, str):
                said = f"expected sha256 {sha256}, found {found}"
            if found != BUSY:
                refusals += 1
                if refusals >= self.plan["tries"]:
                    self.failed = f"{self.origin.name}/{name}: {said}; is it served there?"
                    return
            if time.monotonic() > self.end:
                self.failed = f"{name}: not there after {self.times['all']} s; last: {said}"
                return
            time.sleep(random.uniform(0.2, 1.0))

    def count(self, size: int) -> None:
        with self.lock:
            self.moved += size

    def there(self, name: str, sha256: str, size: int) -> bool:
        """Whether the file lies there already and is right; another one is out of the way then."""
        path = self.into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            return False
        right = path.is_file() and path.stat().st_size == size
        if right and sha256_of(path, self.count) == sha256:
            self.offer(path, sha256)
            with self.lock:
                self.kept += size
            return True
        if not self.ours:
            taken = itertools.count(1)
            aside = path.with_name(f"{path.name}.before-rackpin")
            while os.path.lexists(aside):
                aside = path.with_name(f"{path.name}.before-rackpin.{next(taken)}")
            path.rename(aside)
            self.note(f"{path} was not the stack's: kept as {aside.name}")
        return False

    def near(self, name: str, sha256: str, size: int, part: Path) -> bool:
        """True when a neighbour had it."""
        now = time.monotonic()
        asked = [one for one in self.neighbours if one.not_before <= now]
        for source in random.sample(asked, min(self.plan["ask"], len(asked))):
            found: str | int
            try:
                found = source.get(
                    sha256, size, part, self.times, self.count, self.times["slowest"]
                )
            except ConnectionRefusedError:  # it serves nothing now; it may soon
                source.not_before = time.monotonic() + self.times["refused"]
                continue
            except Wrong as error:
                found = str(error)
            except (OSError, http.client.HTTPException) as error:
                self.left_alone(source, str(error) or type(error).__name__)
                continue
            self.answered = True
            if found == sha256:
                self.have(name, sha256, size, part, near=True)
                return True
            if isinstance(found, str):
                source.not_before = float("inf")
                self.note(
                    f"neighbour {source.name} gave a wrong {name} ({found}) and was not asked "
                    "again; look at its disk and memory"
                )
        return False

    def left_alone(self, source: Source, why: str) -> None:
        source.not_before = time.monotonic() + self.times["lost"]
        with self.lock:
            self.lost += 1
            mute = self.lost >= self.plan["give_up"] and not self.answered
        if mute:  # a firewall: waiting for each of them would take longer than the files
            self.neighbours = []
            why, who = f"last: {why}; is it open between nodes?", "no neighbour answered at port"
            self.note(f"{who} {self.plan['port']}, all came from {self.origin.name} ({why})")
        else:
            self.note(f"neighbour {source.name} was left alone for a while: {why}")

    def have(self, name: str, sha256: str, size: int, part: Path, near: bool) -> None:
        with part.open("rb+") as stream:
            os.fchmod(stream.fileno(), 0o644)
        part.replace(self.into / name)
        self.offer(self.into / name, sha256)
        with self.lock:
            if near:
                self.from_neighbours += size
            else:
                self.from_origin += size

    def offer(self, path: Path, sha256: str) -> None:
        """Let this node's server give it to others."""
        if self.share is None or not self.share.is_dir():
            return
        shared = self.share / sha256
        shared.unlink(missing_ok=True)
        if self.plan["ours"]:
            shared.symlink_to(path)  # a second name would change the file's ctime, now and later
        else:
            shared.hardlink_to(path)

    def order(self) -> list[Sequence[Any]]:
        """The big ones first, so that none is left over at the end; else each node its own way."""
        files = list(self.plan["files"])
        random.shuffle(files)
        return sorted(files, key=lambda file: -int(file[2]).bit_length() // 3)

    def run(self) -> str:
        """ "" when every file is there, else what went wrong."""
        begun = time.monotonic()
        self.into.mkdir(parents=True, exist_ok=True)
        self.clear()  # of a fetch that was killed
        with ThreadPoolExecutor(self.plan["at_once"]) as pool:
            left = {pool.submit(self.one, *file) for file in self.order()}
            while left:
                done, left = wait(left, timeout=self.times["say"])
                for one in done:
                    one.result()
                if left:
                    self.say_how_far(begun)
        for text in sorted(self.notes):
            print(f"note: {text}")
        if self.failed:
            self.clear()
            return self.failed
        kept = f"{self.kept / MB:.1f} MB were there, " if self.kept else ""
        print(
            f"fetched {len(self.plan['files'])} files in {time.monotonic() - begun:.1f} s: {kept}"
            f"{self.from_neighbours / MB:.1f} MB from neighbours, "
            f"{self.from_origin / MB:.1f} MB from {self.origin.name}"
        )
        return ""

    def clear(self) -> None:
        for part in self.into.glob(".part[0-9]*"):
            part.unlink()

    def say_how_far(self, begun: float) -> None:
        whole = sum(size for _, _, size in self.plan["files"]) / MB
        moved, took = self.moved / MB, time.monotonic() - begun
        print(f"{self.into}: {moved:.0f} of {whole:.0f} MB, {moved / took:.0f} MB/s", flush=True)


if __name__ == "__main__":
    sys.exit(Fetch(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))).run() or 0)
