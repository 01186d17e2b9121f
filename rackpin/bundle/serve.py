"""A static HTTP server for a bundle: wheels, debs, files and indices, below one address.

Like the wheelhouse's: GET and HEAD, plain files, no secrets. Only what the manifest names is
given out, so parts, links and strangers never are; nodes prove every byte by lock and signature.
"""

from __future__ import annotations

import contextlib
import html
import os
import signal
import stat
import sys
from http import HTTPStatus
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote, urlsplit

from rackpin.bundle.model import MANIFEST, BundleError, Manifest, read_manifest
from rackpin.stack.serve import AT_ONCE, Handler, Server

PORT = 8901


class BundleHandler(Handler):
    """Serves the files of the manifest, and an index of each directory above them."""

    server_version = "rackpin-bundle"
    server: BundleServer

    def _answer(self, body: bool) -> None:
        # apt asks for URL/./pool/x.deb where the suite is written as ./
        parts = unquote(urlsplit(self.path).path).split("/")
        path = "/".join(part for part in parts if part not in ("", "."))
        manifest = self.server.manifest()
        if manifest is None:  # a build is at work; what lies there may not be whole
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "the bundle is being made")
            return
        if path == MANIFEST or path in manifest.entries:
            self._file(path, body)
            return
        folder = f"{path}/" if path else ""
        below = [name[len(folder) :] for name in manifest.entries if name.startswith(folder)]
        if below:
            self._listing(folder, below, body)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _file(self, path: str, body: bool) -> None:
        try:
            stream = open_below(self.server.directory, path)
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with stream:
            self._give(stream, os.fstat(stream.fileno()).st_size, body)

    def _listing(self, folder: str, below: list[str], body: bool) -> None:
        names = sorted({head + slash for head, slash, _ in (n.partition("/") for n in below)})
        # Absolute links, so that the address works with and without its last slash.
        links = "\n".join(
            f'<a href="/{quote(folder + name)}">{html.escape(name)}</a><br>' for name in names
        )
        text = f"<!DOCTYPE html><title>bundle</title>\n{links}\n".encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if body:
            self.wfile.write(text)


def open_below(directory: Path, path: str) -> IO[bytes]:
    """Open a plain file below a directory; a link anywhere on the way is an OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    *folders, name = path.split("/")
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, flags | os.O_DIRECTORY, dir_fd=place)
            os.close(place)
            place = below
        stream: IO[bytes] = os.fdopen(os.open(name, flags | os.O_NONBLOCK, dir_fd=place), "rb")
    finally:
        os.close(place)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError("no plain file")
    return stream


class BundleServer(Server):
    """Bound at construction; port 0 takes a free one. Raises :class:`BundleError`."""

    def __init__(
        self, directory: Path, bind: str, port: int, at_once: int = AT_ONCE, limit_mbit: int = 0
    ) -> None:
        self._manifest: Manifest | None = read_manifest(directory)
        self._stamp = self._now(directory)
        super().__init__(directory, bind, port, at_once, limit_mbit)
        self.RequestHandlerClass = BundleHandler

    @staticmethod
    def _now(directory: Path) -> tuple[int, int]:
        try:
            found = (directory / MANIFEST).stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)

    def manifest(self) -> Manifest | None:
        """The manifest as it is now; None while there is none or it is damaged."""
        stamp = self._now(self.directory)
        if stamp != self._stamp:
            try:
                self._manifest = read_manifest(self.directory)
            except BundleError:
                self._manifest = None
            self._stamp = stamp
        return self._manifest


def serve(
    directory: Path,
    bind: str,
    port: int = PORT,
    log: Path | None = None,
    at_once: int = AT_ONCE,
    limit_mbit: int = 0,
) -> None:
    """Serve until SIGTERM or SIGINT; requests go to ``log``, or to stderr."""
    with (
        BundleServer(directory, bind, port, at_once, limit_mbit) as server,
        log.open("a") if log else contextlib.nullcontext(sys.stderr) as stream,
        contextlib.redirect_stderr(stream),
        contextlib.suppress(KeyboardInterrupt),
    ):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        bound = server.server_address[1]
        print(f"serving {directory} at {bind}, port {bound}", file=sys.stderr, flush=True)
        server.serve_forever()
