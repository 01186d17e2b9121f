"""A client of one engine, for the probes that ask it. Standard library only.

The key is read from the engine's env file and leaves the process only in a request header.
"""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

BODY_LIMIT = 1 << 20  # bytes of an answer that are read at all


class Late(Exception):
    """The time for all questions is over."""


def late(signum: int, frame: Any) -> None:
    raise Late


def read_key(text: str) -> str:
    """The value of VLLM_API_KEY in the text of an env file; empty when there is none."""
    for line in text.splitlines():
        name, _, value = line.strip().partition("=")
        if name == "VLLM_API_KEY":
            return value.strip().strip("\"'")
    return ""


def say(error: Exception, request_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {request_s} s"
    return f"{type(error).__name__}: {error}"


def without_key(text: str, key: str) -> str:
    """JSON text with the key masked, whoever put it there."""
    return text.replace(json.dumps(key)[1:-1], "***") if key else text


class Client:
    def __init__(self, host: str, port: int, key: str, request_s: float) -> None:
        self.host, self.port, self.key, self.request_s = host, port, key, request_s

    def open(
        self, method: str, path: str, body: dict[str, Any] | None = None, key: str | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.request_s)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        text = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            text = json.dumps(body)
        connection.request(method, path, text, headers)
        return connection, connection.getresponse()

    def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, key: str | None = None
    ) -> tuple[int, Any]:
        """Status and the JSON of the answer, or its first characters when it is no JSON."""
        connection, response = self.open(method, path, body, key)
        try:
            text = response.read(BODY_LIMIT).decode("utf-8", "replace")
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text[:300]

    def complete(self, wish: dict[str, Any]) -> dict[str, Any]:
        """A completion in one piece: status, text, usage, finish reason, seconds; else ``body``."""
        started = time.monotonic()
        status, answer = self.ask("POST", "/v1/completions", wish, self.key)
        facts: dict[str, Any] = {"status": status, "seconds": time.monotonic() - started}
        try:
            choice, usage = answer["choices"][0], answer["usage"]
            facts |= {"text": choice["text"], "tokens": usage["completion_tokens"]}
            facts |= {"prompt_tokens": usage.get("prompt_tokens")}
            facts |= {"total_tokens": usage.get("total_tokens")}
            facts |= {"finish": choice.get("finish_reason"), "model": answer.get("model")}
        except (KeyError, IndexError, TypeError, AttributeError):
            facts["body"] = str(answer)[:300]
        return facts

    def stream(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Server-sent events: their text joined, when each came (seconds), tokens by usage."""
        started = time.monotonic()
        wish = {**wish, "stream": True, "stream_options": {"include_usage": True}}
        connection, response = self.open("POST", "/v1/completions", wish, self.key)
        facts: dict[str, Any] = {"status": response.status, "done": False}
        text: list[str] = []
        times: list[float] = []
        tokens = None
        size = 0
        try:
            while size < BODY_LIMIT and (line := response.readline(65536)):
                size += len(line)
                data = line.decode("utf-8", "replace").strip().removeprefix("data:").strip()
                if data == "[DONE]":
                    facts["done"] = True
                    break
                if not data.startswith("{"):
                    continue
                event = json.loads(data)
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
                for choice in event.get("choices") or []:
                    times.append(time.monotonic() - started)
                    text.append(choice.get("text") or "")
        except ValueError as error:
            facts["error"] = f"an event is no JSON: {error}"
        finally:
            connection.close()
        return facts | {"text": "".join(text), "tokens": tokens, "times": times}
