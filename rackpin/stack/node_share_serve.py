"""Serve what this node fetched to its neighbours for a while: files by their sha256, read only.

Runs on a bare node, standard library only. argv: DIRECTORY ADDRESS PORT SLOTS MBIT LINGER_S.
At most SLOTS transfers at once, MBIT in all (0: no limit); ends after LINGER_S without a request.
"""

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAME = re.compile(r"/([0-9a-f]{64})")
STEP = 1 << 18  # bytes between two looks at the limit


class Rate:
    """All transfers together send at most ``mbit`` a second."""

    def __init__(self, mbit: int) -> None:
        self.bytes_s, self.lock, self.free_at = mbit * 125_000, threading.Lock(), 0.0

    def wait(self, size: int) -> None:
        """Sleep until ``size`` more bytes may go out."""
        if self.bytes_s:
            with self.lock:
                now = time.monotonic()
                start = max(now, self.free_at)
                self.free_at = start + size / self.bytes_s
            time.sleep(start - now)

    def pieces(self, size: int) -> Iterator[tuple[int, int]]:
        """Start and length of each piece of a file, as soon as it may go out."""
        for start in range(0, size, STEP):
            length = min(STEP, size - start)
            self.wait(length)
            yield start, length


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "rackpin-share"
    sys_version = ""
    timeout = 30
    server: "Server"

    def do_GET(self) -> None:
        server = self.server
        server.asked = time.monotonic()
        found = NAME.fullmatch(self.path)
        path = Path(server.directory, found[1] if found else "/")
        # a model's file is a link, and may be one that this unit can't read
        if not os.access(path, os.R_OK) or not path.is_file():
            self.send_error(404)
        elif not server.slots.acquire(blocking=False):
            self.send_error(503)
        else:
            try:
                self.give(path)
            finally:
                server.slots.release()
                server.asked = time.monotonic()

    def give(self, path: Path) -> None:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            self.send_response(200)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            self.wfile.flush()
            for start, length in self.server.rate.pieces(size):
                self.connection.sendfile(stream, start, length)
                self.server.asked = time.monotonic()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the journal of a node is no place for thousands of requests."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, directory: str, address: str, port: int, slots: int, mbit: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.directory = directory
        self.slots, self.rate = threading.BoundedSemaphore(slots), Rate(mbit)
        self.asked = time.monotonic()
        super().__init__((address, port), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        # a client that left; a disk that can't be read is another matter
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def tell_systemd() -> None:
    """That it listens now: whoever started the unit waits for this."""
    if where := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"READY=1", where.replace("@", "\0", 1) if where[0] == "@" else where)


def main(directory: str, address: str, port: str, slots: str, mbit: str, linger_s: str) -> None:
    with Server(directory, address, int(port), int(slots), int(mbit)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tell_systemd()
        while (left := server.asked + float(linger_s) - time.monotonic()) > 0:
            time.sleep(min(left + 0.01, 5))


if __name__ == "__main__":
    main(*sys.argv[1:])
