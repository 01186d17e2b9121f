"""Whether one engine answers, and since when its unit runs: asked on its node."""

from __future__ import annotations

import http.client
import json
import subprocess
from typing import Any

PARAMS = "{}"  # filled in when the script is sent: see rackpin.roll.hands
MARK = "RACKPIN_JSON "
SHOW = "ActiveState,NRestarts,ActiveEnterTimestampMonotonic"


def unit_state(unit: str) -> dict[str, str]:
    argv = ["systemctl", "show", "-p", SHOW, "--", unit]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def health(host: str, port: int, limit_s: float) -> int:
    """The status of ``/health``; 0 when nobody listens."""
    connection = http.client.HTTPConnection(host, port, timeout=limit_s)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except ConnectionRefusedError:
        return 0
    finally:
        connection.close()


def main() -> None:
    params = json.loads(PARAMS)
    try:
        facts: dict[str, Any] = {"unit": unit_state(params["unit"])}
        facts["status"] = health(params["host"], params["port"], params["request_s"])
    except (OSError, ValueError, http.client.HTTPException, subprocess.SubprocessError) as error:
        facts = {"error": f"{type(error).__name__}: {error}"}
    print(MARK + json.dumps(facts))


if __name__ == "__main__":
    main()
