"""A client of a lab's gateway, and the data of engines of one name behind it."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.lab.fleet import FleetLab

PORT = 8080
REQUEST_S = 90  # engines and everything else on two cores


class Site:
    """The lab with its data, and a client of its gateway."""

    def __init__(self, fleet: FleetLab, engines: Mapping[str, str], gateway: str) -> None:
        self.fleet, self.engines = fleet, engines
        self.key_file = fleet.lab.directory / "api-key"
        self.key = self.key_file.read_text().strip()
        self.address = fleet.lab.host(gateway).address

    def data(self, **more: Any) -> list[str]:
        engine = {
            "model": "/srv/models/tiny",
            "served_name": "tiny",
            "max_model_len": 256,
            "args": ["--enforce-eager", "--dtype=float32", "--max-num-seqs=8",
                     "--kv-cache-memory-bytes=67108864"],
            "env": {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
            "api_key_file": str(self.key_file),
        }  # fmt: skip
        instances = [{**engine, "name": n, "nodes": [host]} for n, host in self.engines.items()]
        given = {"instances": instances, **more}
        return [w for k, v in given.items() for w in ("--data", f"{k}={json.dumps(v)}")]

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        """Status and text of one request, by a connection of its own."""
        connection = http.client.HTTPConnection(self.address, PORT, timeout=REQUEST_S)
        key = self.key if key is None else key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def complete(self, tokens: int = 8) -> Any:
        wish = {"model": "tiny", "prompt": "a", "max_tokens": tokens, "ignore_eos": True}
        return self.ask("POST", "/v1/completions", wish)

    def stream(self, tokens: int, times: list[float] | None = None) -> None:
        """A stream to its end; when each event came goes into ``times`` at once."""
        times = [] if times is None else times
        connection = http.client.HTTPConnection(self.address, PORT, timeout=REQUEST_S)
        wish = {"model": "tiny", "prompt": "a", "max_tokens": tokens, "ignore_eos": True,
                "stream": True}  # fmt: skip
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/tiny/v1/completions", json.dumps(wish), headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            last = b""
            while line := answer.readline():
                if line.startswith(b"data:"):
                    times.append(time.monotonic())
                    last = line.strip()
            assert last == b"data: [DONE]", last
        finally:
            connection.close()

    @contextmanager
    def asked_without_pause(self, breath_s: float = 0) -> Iterator[list[str]]:
        """Two clients ask on and on; what failed is in the list, and at least one good answer.

        ``breath_s``: between two requests of one client, where the hosts have to work as well.
        """
        failed: list[str] = []
        good = [0, 0]
        over = threading.Event()

        def client(number: int) -> None:
            while not over.wait(breath_s):
                try:
                    if number:
                        self.stream(40)
                    else:
                        status, text = self.complete()
                        assert status == 200, f"{status} {text[:200]}"
                    good[number] += 1
                except Exception as error:
                    failed.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=client, args=(n,)) for n in (0, 1)]
        for thread in threads:
            thread.start()
        try:
            yield failed
        finally:
            over.set()
            for thread in threads:
                thread.join(REQUEST_S + 10)
        print(f"answered: {good[0]} completions, {good[1]} streams; failed: {len(failed)}")
        assert min(good) > 0

    def served(self, engine: str) -> int:
        """How many requests the engine itself has finished."""
        host = self.engines[engine]
        address = self.fleet.lab.host(host).address
        text = self.fleet.ask(
            host,
            "python3 -c 'import urllib.request as u; "
            f'print(u.urlopen("http://{address}:8000/metrics", timeout=20).read().decode())\'',
        )
        return int(
            sum(map(float, re.findall(r"^vllm:request_success_total{.*} (\S+)$", text, re.M)))
        )

    def drain(self, *words: str) -> Any:
        return self.fleet.rackpin("drain", *self.data(), *words)

    def healthz(self) -> str:
        return str(self.ask("GET", "/healthz", key="")[1]).strip()
