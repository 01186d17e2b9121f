"""A site for bundle tests: wheels, debs and a file over http, with faults on demand."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rackpin.bundle.model import AptPart, Contents, Item
from rackpin.stack.lock import Stack
from tests.fixtures_debs import build_deb
from tests.fixtures_debs_names import package
from tests.unit.test_stack_wheelhouse import locked, make_stack

APT = AptPart("debs/debian-12/nvidia-cuda", "debian-12", "nvidia-cuda")
PACKAGES = [
    package("libnccl2", "2.19.3-1+cuda12.2"),
    package("libnccl-dev", "2.19.3-1+cuda12.2", "libnccl2 (= 2.19.3-1+cuda12.2)"),
    package("datacenter-gpu-manager", "1:3.3.5"),
]
FILE = "files/nccl-tests-0123456789ab.tar.gz"


class Handler(SimpleHTTPRequestHandler):
    """Knows ranges, notes what was asked, and may be slow or answer otherwise."""

    site: Site

    def do_GET(self) -> None:
        site = self.site
        site.asked.append((self.path, self.headers.get("Range", "")))
        if status := site.status.get(self.path):
            self.send_error(status)
            return
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            self.send_error(404)
            return
        content = file.read_bytes()
        begin = 0
        wanted = self.headers.get("Range")
        if wanted and site.ranges:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if begin < len(content) else 416)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(max(0, len(content) - begin)))
        self.end_headers()
        for start in range(begin, len(content), 65536):
            self.wfile.write(content[start : start + 65536])
            time.sleep(site.pause)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that are killed are what these tests are about."""


@dataclass
class Site:
    """What is published, and how to serve it. ``contents`` names all of it at its URLs."""

    root: Path
    stack: Stack
    contents: Contents
    server: Server
    asked: list[tuple[str, str]] = field(default_factory=list)
    status: dict[str, int] = field(default_factory=dict)  # by path, in place of the file
    ranges: bool = True
    pause: float = 0.0  # seconds between 64 kB
    said: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def file(self, path: str) -> Path:
        """The published file that an item is fetched from."""
        item = next(item for item in self.contents.items if item.path == path)
        return self.root / item.urls[0].removeprefix(f"{self.url}/")

    def options(self) -> dict[str, Any]:
        """For build(): no waiting, and what it says kept."""
        return {"sleep": lambda seconds: None, "say": self.said.append, "root": self.root / "st"}

    def down(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def up(self) -> None:
        """Serve (again), at the same port."""
        address = self.server.server_address
        handler = type("Of", (Handler,), {"site": self})
        self.server = Server(
            (str(address[0]), int(address[1])), partial(handler, directory=str(self.root))
        )
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@cache
def _debs() -> Path:
    """The debs, built once for all tests."""
    directory = Path(tempfile.mkdtemp(prefix="rackpin-debs-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    for one in PACKAGES:
        build_deb(one, directory)
    return directory


def make_site(root: Path, big: int = 0) -> Site:
    """Publish three debs, three wheels and an archive; ``big`` bytes more in one wheel."""
    root.mkdir()
    server = Server(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.server_bind()
    url = f"http://127.0.0.1:{server.server_port}"
    server.server_close()
    shutil.copytree(_debs(), root / "debs/pool")
    (root / "wheels").mkdir()
    wheels = []
    for name in ("alpha", "beta", "uv"):
        content = name.encode() * 1000 + bytes(big if name == "beta" else 0)
        wheel = locked(name, content, f"{url}/wheels/{name}-1.0-py3-none-any.whl")
        (root / "wheels" / wheel.filename).write_bytes(content)
        wheels.append(wheel)
    stack = make_stack(root / "st", "site-stack", *wheels)
    (root / "nccl-tests.tar.gz").write_bytes(b"source" * 1000)
    items = [
        Item(f"wheelhouse/{w.filename}", w.sha256, w.size, (str(w.url),), "wheel") for w in wheels
    ]
    items.append(_item(root, url, FILE, root / "nccl-tests.tar.gz", "file"))
    for one in PACKAGES:
        file = root / "debs/pool" / one.filename
        items.append(_item(root, url, f"{APT.path}/pool/{one.filename}", file, "deb"))
    ordered = tuple(sorted(items, key=lambda item: item.path))
    contents = Contents("site-stack", stack.lock.digest, stack.lock, ordered, (APT,))
    site = Site(root, stack, contents, server)
    site.up()
    return site


def _item(root: Path, url: str, path: str, file: Path, kind: Any) -> Item:
    content = file.read_bytes()
    place = f"{url}/{file.relative_to(root).as_posix()}"
    return Item(path, hashlib.sha256(content).hexdigest(), len(content), (place,), kind)
