"""A static HTTP server for the wheelhouse: the one place nodes fetch from.

Plain files, GET and HEAD only, nothing below or beside the directory. Every byte a node
takes is checked there against the lock, so the server needs no secrets.
"""

from __future__ import annotations

import contextlib
import html
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from stat import S_ISREG
from typing import IO
from urllib.parse import quote, unquote, urlsplit

from rackpin.stack.node_share_fetch import MAY_WAIT
from rackpin.stack.node_share_serve import Rate
from rackpin.stack.pins import StackError

PORT = 8900
AT_ONCE = 16  # transfers to nodes that also ask their neighbours
START_DEADLINE_S = 20
STOP_DEADLINE_S = 10


class Handler(BaseHTTPRequestHandler):
    """Serves the regular, visible files of ``server.directory`` and an index of them."""

    protocol_version = "HTTP/1.1"
    server_version = "rackpin-wheelhouse"
    sys_version = ""
    timeout = 60  # seconds a client may keep silent
    server: Server

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        name = unquote(urlsplit(self.path).path).removeprefix("/")
        if name == "":
            self._index(body)
            return
        if "/" in name or name.startswith(".") or "\0" in name:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            # O_NOFOLLOW and the check of the open file: a link in there leads nowhere.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            stream: IO[bytes] = os.fdopen(os.open(self.server.directory / name, flags), "rb")
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with stream:
            stat = os.fstat(stream.fileno())
            if not S_ISREG(stat.st_mode):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            self._give(stream, stat.st_size, body)

    def _give(self, stream: IO[bytes], size: int, body: bool) -> None:
        """A file, below the server's limit. Who may wait is sent away while all slots are taken:
        a node that then finds the file at a neighbour. Others (apt, uv) would only fail."""
        may_wait = body and self.headers.get(MAY_WAIT) is not None
        if may_wait and not self.server.slots.acquire(blocking=False):
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "all slots are taken")
            return
        try:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(size))
            self.end_headers()
            if body:
                self.wfile.flush()
                for start, length in self.server.rate.pieces(size):
                    self.connection.sendfile(stream, start, length)
        finally:
            if may_wait:
                self.server.slots.release()

    def _index(self, body: bool) -> None:
        names = sorted(
            entry.name
            for entry in os.scandir(self.server.directory)
            if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False)
        )
        links = "\n".join(f'<a href="{quote(name)}">{html.escape(name)}</a><br>' for name in names)
        text = f"<!DOCTYPE html><title>wheelhouse</title>\n{links}\n".encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if body:
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        line = (format % args).encode("ascii", "backslashreplace").decode()
        print(stamp, self.address_string(), line, file=sys.stderr, flush=True)


class Server(ThreadingHTTPServer):
    """Bound at construction; port 0 takes a free one (see ``server_address``)."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, directory: Path, bind: str, port: int, at_once: int = AT_ONCE, limit_mbit: int = 0
    ) -> None:
        if not directory.is_dir():
            raise StackError(f"{directory}: no wheelhouse; run: rackpin wheelhouse build STACK")
        self.directory = directory
        self.slots, self.rate = threading.BoundedSemaphore(at_once), Rate(limit_mbit)
        if ":" in bind:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((bind, port), Handler)
        except OSError as error:
            raise StackError(
                f"--bind {bind} --port {port}: {error.strerror}; give an address of this machine "
                "and a free port"
            ) from None

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def serve(
    directory: Path,
    bind: str,
    port: int = PORT,
    log: Path | None = None,
    pidfile: Path | None = None,
    at_once: int = AT_ONCE,
    limit_mbit: int = 0,
) -> None:
    """Serve until SIGTERM or SIGINT; requests go to ``log``, or to stderr.

    ``pidfile`` is written once the address is bound: whoever finds it can connect.
    """
    with (
        Server(directory, bind, port, at_once, limit_mbit) as server,
        log.open("a") if log else contextlib.nullcontext(sys.stderr) as stream,
        contextlib.redirect_stderr(stream),
        contextlib.suppress(KeyboardInterrupt),
    ):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print(f"serving {directory} at {bind}, port {port}", file=sys.stderr, flush=True)
        if pidfile:
            pidfile.write_text(f"{os.getpid()}\n", encoding="ascii")
        server.serve_forever()


def _command(directory: Path, bind: str, port: int, pidfile: Path) -> list[str]:
    words = [str(directory.resolve()), bind, str(port), str(pidfile.resolve())]
    return [sys.executable, "-m", "rackpin.stack.serve", *words]


def _running(pidfile: Path) -> tuple[int, list[str]] | None:
    """Pid and command of the server of this pidfile, when it is alive and really ours."""
    try:
        pid = int(pidfile.read_text(encoding="ascii"))
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    return (pid, command) if "rackpin.stack.serve" in command else None


def _reachable(bind: str, port: int) -> bool:
    try:
        socket.create_connection((bind, port), timeout=2).close()
    except OSError:
        return False
    return True


def serve_background(directory: Path, bind: str, port: int, pidfile: Path, log: Path) -> int:
    """Have a server run detached from this process; returns its pid.

    Idempotent: one that serves the same directory at the same place is left alone, another
    one of this pidfile is replaced. Raises :class:`StackError` when it doesn't come up.
    """
    wanted = _command(directory, bind, port, pidfile)
    if (found := _running(pidfile)) and found[1][1:] == wanted[1:] and _reachable(bind, port):
        return found[0]
    stop_background(pidfile)
    for file in (pidfile, log):
        file.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        process = subprocess.Popen(
            wanted, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            start_new_session=True, cwd="/", env={**os.environ, "PYTHONPATH": _import_path()},
        )  # fmt: skip
    end = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < end and process.poll() is None:
        if (found := _running(pidfile)) and found[0] == process.pid:
            return process.pid
        time.sleep(0.05)
    process.kill()
    process.wait(timeout=STOP_DEADLINE_S)
    tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    raise StackError(f"wheelhouse server at {bind}:{port} did not start; {log} says: {tail}")


def _import_path() -> str:
    # The server runs from / and must find this very package, installed or not.
    return str(Path(__file__).resolve().parents[2])


def stop_background(pidfile: Path) -> bool:
    """End the server of this pidfile; returns whether there was one."""
    found = _running(pidfile)
    if found:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[0], number)
            end = time.monotonic() + STOP_DEADLINE_S
            while _running(pidfile) and time.monotonic() < end:
                time.sleep(0.05)
    pidfile.unlink(missing_ok=True)
    return found is not None


if __name__ == "__main__":
    try:
        serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), pidfile=Path(sys.argv[4]))
    except StackError as problem:
        sys.exit(str(problem))
