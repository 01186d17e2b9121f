"""Ask one engine the way a client does, on its own node, and print what came as one line of JSON.

Runs as root with the stack's Python: the engine's env file is readable by nobody else. Sent in
one text with :mod:`rackpin.probes.client`.
"""

from __future__ import annotations

import http.client
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # sent in one text with this one
    from rackpin.probes.client import Client, Late, late, read_key, say, without_key

PARAMS = "{}"  # filled in when the script is sent: see rackpin.checks.smoke
MARK = "RACKPIN_JSON "


class Engine:
    def __init__(self, params: dict[str, Any], key: str) -> None:
        self.params = params
        self.client = Client(params["host"], params["port"], key, params["request_s"])

    def wish(self) -> dict[str, Any]:
        return {
            "model": self.params["model"],
            "prompt": self.params["prompt"],
            "max_tokens": self.params["max_tokens"],
            "temperature": 0,
            "seed": 0,
            "ignore_eos": True,  # so that the number of tokens is known beforehand
        }

    # -- the questions, each giving its facts ---------------------------------------
    def auth(self) -> dict[str, Any]:
        """What it says to nobody and to a wrong key; vLLM guards /v1 only (F117)."""
        others = ("/invocations", "/tokenize")
        ask = self.client.ask
        return {
            "models": ask("GET", "/v1/models")[0],
            "completion": ask("POST", "/v1/completions", self.wish())[0],
            "wrong_key": ask("GET", "/v1/models", key="wrong-" + "0" * 16)[0],
            "open": [path for path in others if ask("POST", path, self.wish())[0] == 200],
        }

    def models(self) -> dict[str, Any]:
        status, answer = self.client.ask("GET", "/v1/models", key=self.client.key)
        data = answer.get("data") if isinstance(answer, dict) else None
        rows = data if isinstance(data, list) else []
        names = [str(row.get("id")) for row in rows if isinstance(row, dict)]
        return {"status": status, "names": names, "body": "" if names else str(answer)[:300]}

    def completion(self) -> dict[str, Any]:
        return self.client.complete(self.wish())

    def stream(self) -> dict[str, Any]:
        """The stream's facts, with time to the first event and tokens per second after it."""
        facts = self.client.stream(self.wish())
        times, tokens = facts.pop("times"), facts["tokens"]
        facts["chunks"] = len(times)
        if times:
            facts["ttft_s"] = times[0]
            count = tokens if isinstance(tokens, int) else len(times)
            if count > 1 and times[-1] > times[0]:
                facts["tokens_per_s"] = (count - 1) / (times[-1] - times[0])
        return facts


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
    print(MARK + without_key(json.dumps(facts), key))


if __name__ == "__main__":
    main()
