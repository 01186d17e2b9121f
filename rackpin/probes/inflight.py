"""How many requests one engine has in hand, by its own metrics and by its connections.

Runs on the engine's node with the OS's Python. Metrics need no key.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from typing import Any

PARAMS = "{}"  # filled in when the script is sent: see rackpin.gateway.drain
MARK = "RACKPIN_JSON "
COUNTED = ("running", "waiting")


def metrics(host: str, port: int, limit_s: float) -> dict[str, Any]:
    """Sums of vLLM's two gauges; ``down`` when nobody listens."""
    connection = http.client.HTTPConnection(host, port, timeout=limit_s)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read(1 << 24).decode("utf-8", "replace")
    except ConnectionRefusedError:
        return {"down": True}
    finally:
        connection.close()
    facts: dict[str, Any] = {"status": answer.status}
    for name in COUNTED:
        values = re.findall(rf"^vllm:num_requests_{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        if values:
            facts[name] = int(sum(float(value) for value in values))
    return facts


def connections(port: int, peers: list[str]) -> int:
    """Established connections to the port from these addresses."""
    argv = ["ss", "-Htn", "state", "established", f"( sport = :{port} )"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True)
    found = [line.split()[-1].rpartition(":")[0].strip("[]") for line in done.stdout.splitlines()]
    return sum(address.removeprefix("::ffff:") in peers for address in found)


def main() -> None:
    params = json.loads(PARAMS)
    try:
        facts = metrics(params["host"], params["port"], params["request_s"])
        facts["connections"] = connections(params["port"], params["peers"])
    except (OSError, http.client.HTTPException, subprocess.SubprocessError) as error:
        facts = {"error": f"{type(error).__name__}: {error}"}
    print(MARK + json.dumps(facts))


if __name__ == "__main__":
    main()
