"""Ask a gateway what it is and what it lets through, on its own node; one line of JSON.

Runs as root with the OS's Python: the file with the keys is readable by nobody else. Sent in one
text with :mod:`rackpin.probes.client`.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import pwd
import re
import ssl
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # sent in one text with this one
    from rackpin.probes.client import say, without_key

PARAMS = "{}"  # filled in when the script is sent: see rackpin.checks.gateway
MARK = "RACKPIN_JSON "


class Gate:
    """Over TLS too: of ourselves, so the certificate isn't looked at."""

    def __init__(self, host: str, port: int, tls: bool, request_s: float) -> None:
        self.host, self.port, self.tls, self.request_s = host, port, tls, request_s

    def connect(self) -> http.client.HTTPConnection:
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=self.request_s)
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=self.request_s, context=context
        )

    def status(self, method: str, path: str, key: str = "", body: Any = None) -> list[Any]:
        """Status and the answer's beginning; 0 and why when there is none."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        text = json.dumps(body) if body is not None else None
        if text:
            headers["Content-Type"] = "application/json"
        try:
            connection = self.connect()
            try:
                connection.request(method, path, text, headers)
                answer = connection.getresponse()
                return [answer.status, answer.read(20000).decode("utf-8", "replace")]
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            return [0, say(error, self.request_s)]


def unit(name: str) -> dict[str, str]:
    wanted = "LoadState,ActiveState,UnitFileState,NeedDaemonReload,FragmentPath"
    argv = ["systemctl", "show", "-p", wanted, "--", name]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def file(path: str) -> str:
    """Digest, mode and owner."""
    try:
        stat = Path(path).stat()
        owner = pwd.getpwuid(stat.st_uid).pw_name
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, KeyError) as error:
        return f"{type(error).__name__}"
    return f"{digest} {stat.st_mode & 0o7777:o} {owner}"


def keys(path: str) -> list[str]:
    """The keys of the names, in their order, out of nginx's regular expressions."""
    found = []
    for text in re.findall(r'"~\^Bearer (.*)\\z" 1;', Path(path).read_text(encoding="utf-8")):
        raw = re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), text.encode())
        found.append(raw.decode())
    return found


def health(gate: Gate, address: str) -> list[Any]:
    """One engine, asked from here as nginx would."""
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    try:
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=gate.request_s)
        try:
            connection.request("GET", "/health")
            status = connection.getresponse().status
        finally:
            connection.close()
        return [status, f"{time.monotonic() - began:.3f} s"]
    except (OSError, http.client.HTTPException) as error:
        return [0, say(error, gate.request_s)]


def answer(gate: Gate, path: str, key: str, wish: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    status, text = gate.status("POST", f"{path}v1/completions", key, wish)
    facts: dict[str, Any] = {"status": status, "seconds": time.monotonic() - began}
    try:
        data = json.loads(text)
        facts |= {"model": data["model"], "tokens": data["usage"]["completion_tokens"]}
        facts["text"] = data["choices"][0]["text"]
    except (ValueError, KeyError, IndexError, TypeError):
        facts["body"] = text[:300]
    return facts


def main() -> None:
    params = json.loads(PARAMS)
    gate = Gate(params["host"], params["port"], params["tls"], params["request_s"])
    secret = keys(params["keys"])
    facts: dict[str, Any] = {}
    if params["ask"] == "gate":
        facts["unit"] = unit(params["unit"])
        facts["files"] = {path: file(path) for path in params["files"]}
        facts["healthz"] = gate.status("GET", "/healthz")
        facts["doors"] = {}
        for path in params["paths"]:
            models = f"{path}v1/models"
            none, wrong = gate.status("GET", models)[0], gate.status("GET", models, "wrong-key")[0]
            facts["doors"][path] = {"none": none, "wrong": wrong}
        some = secret[0] if secret else ""
        facts["closed"] = {
            path: gate.status("POST", path, some, {})[0] for path in params["closed"]
        }
    elif params["ask"] == "upstreams":
        facts["upstreams"] = {
            name: health(gate, address) for name, address in params["upstreams"].items()
        }
    else:
        for number, (name, path) in params["answers"]:
            wish = {**params["wish"], "model": name}
            facts[name] = answer(gate, path, secret[number], wish)
    text = json.dumps(facts)
    for key in secret:
        text = without_key(text, key)
    print(MARK + text)


if __name__ == "__main__":
    main()
