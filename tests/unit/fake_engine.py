"""An engine's HTTP server for tests: right by itself, wrong in the way that is asked of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.unit.serving import serving

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
        elif self.path == "/metrics":
            count = self.asked if self.fault == "preempts" else 0
            labels = '{engine="0",model_name="two"}'
            self.reply(200, f"# TYPE\nvllm:num_preemptions_total{labels} {count}.0\n".encode())
        elif self.allowed():
            name = "other" if self.fault == "other-model" else "two"
            limit = 128 if self.fault == "small" else 256
            self.reply(200, {"data": [{"id": name, "max_model_len": limit}]})

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
            if self.fault == "fails-some" and self.asked % 5 == 0:
                self.reply(500, {"error": "EngineDeadError"})
                return
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
        if self.fault == "dies" and self.asked == 5:
            self.close_connection = True
            return
        text = {"empty": "", "wanders": f"answer {self.asked}"}.get(self.fault, "w " * 16)
        if self.fault == "rounds" and self.asked == 3:
            text = "w " * 15 + "v "
        tokens = 3 if self.fault == "short" else wish["max_tokens"]
        choice = {"text": text, "finish_reason": "length"}
        prompt = len(wish["prompt"]) - (7 if self.fault == "cuts-prompts" else 0)
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
        usage["total_tokens"] = prompt + tokens
        self.reply(200, {"choices": [choice], "usage": usage})

    def stream(self, wish: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        word = "x " if self.fault == "other-stream" else "w "
        count = wish["max_tokens"] - (1 if self.fault == "short-streams" else 0)
        for _ in range(count):
            event = {"choices": [{"text": word}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
            threading.Event().wait(0.002)
            if self.fault == "stream-breaks":
                return
        usage = {"choices": [], "usage": {"completion_tokens": count}}
        self.wfile.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())


@contextmanager
def running(fault: str) -> Iterator[int]:
    """An engine on a port of this machine, wrong in this way; "" is a sound one."""
    handler = type("Faulty", (Engine,), {"fault": fault, "asked": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    with serving(server) as port:
        yield port
