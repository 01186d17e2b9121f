"""A repository served to lab hosts over http, that can go down and counts what it was asked."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Mirror:
    """Serves ``directory`` at ``http://ADDRESS:PORT/`` until stopped; can be started again."""

    def __init__(self, directory: Path, address: str) -> None:
        self.directory, self.address, self.port = directory, address, 0
        self.requests: list[str] = []
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    def start(self) -> None:
        requests = self.requests

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                requests.append(format % args)

        handler = partial(Handler, directory=str(self.directory))
        self._server = ThreadingHTTPServer((self.address, self.port), handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
