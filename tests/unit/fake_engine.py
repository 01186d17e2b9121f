"""An engine's HTTP server for tests: right by itself, wrong in the way that is asked of it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

KEY = "unit-test-key-0123456789"


class Engine(BaseHTTPRequestHandler):
    """Answers like vLLM's server; ``fault`` names the way in which it doesn't."""

    fault = ""
    asked = 0

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def reply(self, status: int, body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def allowed(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {KEY}" or self.fault == "open":
            return True
        self.reply(401, {"error": "Unauthorized"})
        return False

    def do_GET(self) -> None:
        if self.fault == "static":
            self.reply(200, b"<html>Directory listing</html>")
        elif self.allowed():
            name = "other" if self.fault == "other-model" else "two"
            self.reply(200, {"data": [{"id": name}]})

    def do_POST(self) -> None:
        wish = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.fault == "static":
            self.reply(501, b"Unsupported method")
        elif self.path == "/invocations" and self.fault == "side-door":
            self.complete(wish)
        elif self.path not in ("/v1/completions",):
            self.reply(404, b"Not Found")
        elif self.allowed():
            type(self).asked += 1
            self.stream(wish) if wish.get("stream") else self.complete(wish)

    def complete(self, wish: dict[str, Any]) -> None:
        if self.fault == "hangs":
            threading.Event().wait(20)
        if self.fault == "dead":
            self.reply(500, {"error": "EngineDeadError"})
            return
        if self.fault == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            return
        text = {"empty": "", "wanders": f"answer {self.asked}"}.get(self.fault, "w " * 16)
        if self.fault == "rounds" and self.asked == 3:
            text = "w " * 15 + "v "
        tokens = 3 if self.fault == "short" else wish["max_tokens"]
        choice = {"text": text, "finish_reason": "length"}
        self.reply(200, {"choices": [choice], "usage": {"completion_tokens": tokens}})

    def stream(self, wish: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        word = "x " if self.fault == "other-stream" else "w "
        for _ in range(16):
            event = {"choices": [{"text": word}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
            threading.Event().wait(0.002)
            if self.fault == "stream-breaks":
                return
        usage = {"choices": [], "usage": {"completion_tokens": 16}}
        self.wfile.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())
