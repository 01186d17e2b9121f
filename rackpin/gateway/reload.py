"""Tell the gateway's nginx to read its files, and wait until it really works with them.

Runs on the gateway, from stdin, with the OS's Python. nginx answers the signal by nothing: a
configuration that it can't use (a port that somebody holds) leaves the old one in force.
"""

import http.client
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

UNIT = HOST = DIGEST = PENDING = ""
PORT = LIMIT_S = 0
TLS = False
# values stand here
ASK_S = 5


def out(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=20).stdout.strip()


def workers(master: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it ended while we looked
        if parent == master:
            found.add(int(stat.parent.name))
    return found


def healthz() -> str:
    """What the gateway says of itself; why it says nothing."""
    try:
        if TLS:  # only the digest is asked for, of ourselves
            context = ssl._create_unverified_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                HOST, PORT, timeout=ASK_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(HOST, PORT, timeout=ASK_S)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().read(300).decode("utf-8", "replace").strip()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"


def main() -> int:
    master = int(out("systemctl", "show", "-P", "MainPID", "--", UNIT) or 0)
    said = f"{UNIT} is not running"
    end = time.monotonic() + LIMIT_S
    if master:
        # Before it has workers it hasn't learnt the signal either, and would die of it.
        while not (before := workers(master)) and time.monotonic() < end:
            time.sleep(0.1)
        if before:
            os.kill(master, signal.SIGHUP)
        while time.monotonic() < end:
            said = healthz()
            if said.endswith(f" {DIGEST}") and workers(master) - before:
                Path(PENDING).unlink(missing_ok=True)
                print(said)
                return 0
            time.sleep(0.2)
    print(f"configuration {DIGEST} is not in force: {said}", file=sys.stderr)
    print(
        out("journalctl", "-q", "-u", UNIT, "-n", "15", "--no-pager", "-o", "cat"), file=sys.stderr
    )
    return 1


sys.exit(main())
