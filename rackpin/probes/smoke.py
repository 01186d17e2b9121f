"""Ask one engine the way a client does, on its own node, and print what came as one line of JSON.

Runs as root with the stack's Python: the key is read from the engine's env file and leaves this
process only in a request header. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import signal
import time
from pathlib import Path
from typing import Any

PARAMS = "{}"  # filled in when the script is sent: see rackpin.checks.smoke
MARK = "RACKPIN_JSON "
BODY_LIMIT = 1 << 20  # bytes of an answer that are read at all


class Late(Exception):
    """The time for all questions is over."""


def read_key(text: str) -> str:
    """The value of VLLM_API_KEY in the text of an env file; empty when there is none."""
    for line in text.splitlines():
        name, _, value = line.strip().partition("=")
        if name == "VLLM_API_KEY":
            return value.strip().strip("\"'")
    return ""


class Engine:
    def __init__(self, params: dict[str, Any], key: str) -> None:
        self.params, self.key = params, key

    def open(
        self, method: str, path: str, body: dict[str, Any] | None = None, key: str | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(
            self.params["host"], self.params["port"], timeout=self.params["request_s"]
        )
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

    def wish(self, stream: bool) -> dict[str, Any]:
        wish: dict[str, Any] = {
            "model": self.params["model"],
            "prompt": self.params["prompt"],
            "max_tokens": self.params["max_tokens"],
            "temperature": 0,
            "seed": 0,
            "ignore_eos": True,  # so that the number of tokens is known beforehand
        }
        if stream:
            wish |= {"stream": True, "stream_options": {"include_usage": True}}
        return wish

    # -- the questions, each giving its facts ---------------------------------------
    def auth(self) -> dict[str, Any]:
        """What it says to nobody and to a wrong key; vLLM guards /v1 only (F117)."""
        others = ("/invocations", "/tokenize")
        return {
            "models": self.ask("GET", "/v1/models")[0],
            "completion": self.ask("POST", "/v1/completions", self.wish(False))[0],
            "wrong_key": self.ask("GET", "/v1/models", key="wrong-" + "0" * 16)[0],
            "open": [p for p in others if self.ask("POST", p, self.wish(False))[0] == 200],
        }

    def models(self) -> dict[str, Any]:
        status, answer = self.ask("GET", "/v1/models", key=self.key)
        data = answer.get("data") if isinstance(answer, dict) else None
        rows = data if isinstance(data, list) else []
        names = [str(row.get("id")) for row in rows if isinstance(row, dict)]
        return {"status": status, "names": names, "body": "" if names else str(answer)[:300]}

    def completion(self) -> dict[str, Any]:
        started = time.monotonic()
        status, answer = self.ask("POST", "/v1/completions", self.wish(False), self.key)
        facts: dict[str, Any] = {"status": status, "seconds": time.monotonic() - started}
        try:
            choice = answer["choices"][0]
            facts |= {"text": choice["text"], "tokens": answer["usage"]["completion_tokens"]}
            facts |= {"finish": choice.get("finish_reason"), "model": answer.get("model")}
        except (KeyError, IndexError, TypeError):
            facts["body"] = str(answer)[:300]
        return facts

    def stream(self) -> dict[str, Any]:
        """Server-sent events: time to the first one, their text joined, tokens per second."""
        started = time.monotonic()
        connection, response = self.open("POST", "/v1/completions", self.wish(True), self.key)
        facts: dict[str, Any] = {"status": response.status, "done": False, "chunks": 0}
        text: list[str] = []
        first = last = 0.0
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
                    last = time.monotonic()
                    first = first or last
                    facts["chunks"] += 1
                    text.append(choice.get("text") or "")
        except ValueError as error:
            facts["error"] = f"an event is no JSON: {error}"
        finally:
            connection.close()
        facts |= {"text": "".join(text), "tokens": tokens}
        if first:
            facts["ttft_s"] = first - started
            count = tokens if isinstance(tokens, int) else facts["chunks"]
            if count > 1 and last > first:
                facts["tokens_per_s"] = (count - 1) / (last - first)
        return facts


def say(error: Exception, request_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {request_s} s"
    return f"{type(error).__name__}: {error}"


def late(signum: int, frame: Any) -> None:
    raise Late


def main() -> None:
    params = json.loads(PARAMS)
    facts: dict[str, Any] = {}
    key = ""
    step = "key"
    signal.signal(signal.SIGALRM, late)
    signal.alarm(int(params["total_s"]))
    try:
        key = read_key(Path(params["env_file"]).read_text(encoding="utf-8"))
        facts["key"] = bool(key)
        engine = Engine(params, key)
        # The second completion comes after the stream: three answers that must be one.
        for step, question in (
            ("models", engine.models),
            ("completion", engine.completion),
            ("stream", engine.stream),
            ("repeat", engine.completion),
            ("auth", engine.auth),
        ):
            facts[step] = question()
        texts = {facts[name].get("text") for name in ("completion", "stream", "repeat")}
        if len(texts) > 1:
            # Once can be rounding in another batch; a fault says something else again.
            for step, question in (("again", engine.stream), ("third", engine.completion)):
                facts[step] = question()
    except Late:
        facts["error"] = {"step": step, "text": f"no whole answer within {params['total_s']} s"}
    except (OSError, http.client.HTTPException) as error:
        facts["error"] = {"step": step, "text": say(error, params["request_s"])}
    finally:
        signal.alarm(0)
    text = json.dumps(facts)
    if key:
        text = text.replace(json.dumps(key)[1:-1], "***")
    print(MARK + text)


if __name__ == "__main__":
    main()
