"""Prompts near the model's limit, one after another, and what the engine's memory does meanwhile.

Runs as root with the stack's Python on the node of the API server. Sent in one text with
:mod:`rackpin.probes.client` and :mod:`rackpin.probes.prompts`.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # sent in one text with this one
    from rackpin.probes.client import Client, Late, late, read_key, say, without_key
    from rackpin.probes.prompts import Busy, Unknown, alone, prompt, vocabulary, wish

PARAMS = "{}"  # filled in when the script is sent: see rackpin.checks.long_prompts
MARK = "RACKPIN_JSON "
TELLING = re.compile(r"(?i)preempted|out of memory|outofmemory|oom[-_ ]kill|killed process")
PREEMPTIONS = re.compile(r"(?m)^vllm:num_preemptions(?:_total)?(?:\{[^}\n]*\})? (\d+(?:\.\d+)?)")


def said_by(*command: str) -> str | None:
    """What a program prints; None when it isn't there, fails or takes long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def engine_pids(unit: str, workers: str) -> list[int]:
    """Processes of the unit, and Ray's workers on this node whose name matches ``workers``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            group = (entry / "cgroup").read_text(encoding="utf-8", errors="replace")
            comm = (entry / "comm").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it ended
        mine = f"/{unit}" in group
        if mine or (workers and "/ray-" in group and re.match(workers, comm)):
            found.append(int(entry.name))
    return found


def memory(params: dict[str, Any]) -> dict[str, Any]:
    """Bytes: resident memory of the engine's processes here, /dev/shm, each card. None: unseen."""
    rss, pids = 0, engine_pids(params["unit"], params["workers"])
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if match := re.search(r"(?m)^VmRSS:\s+(\d+) kB", status):
            rss += int(match[1]) * 1024
    shm = os.statvfs("/dev/shm")
    found: dict[str, Any] = {
        "processes": len(pids),
        "rss": rss or None,
        "shm": (shm.f_blocks - shm.f_bfree) * shm.f_frsize,
    }
    if params["cards"]:
        query = ("--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits")
        rows = re.findall(r"(?m)^(\S+), (\d+)\s*$", said_by("nvidia-smi", *query) or "")
        found["cards"] = {uuid: int(mib) * 2**20 for uuid, mib in rows} or None
    return found


def preemptions(client: Client) -> float | None:
    """The engine's own count since its start; None when it tells none."""
    status, text = 0, ""
    connection, response = client.open("GET", "/metrics", key=client.key)
    try:
        status, text = response.status, response.read(8 << 20).decode("utf-8", "replace")
    finally:
        connection.close()
    counts = PREEMPTIONS.findall(text) if status == 200 else []
    return sum(map(float, counts)) if counts else None


def unit_state(unit: str) -> str | None:
    """Main process and restarts: another answer later means that it was restarted."""
    return said_by("systemctl", "show", "-p", "MainPID,NRestarts,ActiveState", "--", unit)


def journal(unit: str, since: float) -> list[str] | None:
    """Lines about preemption and lack of memory since then, the engine's and the kernel's."""
    texts = [
        said_by("journalctl", "-q", "--no-pager", "-o", "cat", "--since", f"@{since:.0f}", *which)
        for which in (("-u", unit), ("-k",))
    ]
    if texts[0] is None:
        return None
    told = [line for text in texts for line in (text or "").splitlines() if TELLING.search(line)]
    return [line[-300:] for line in told[:10]]


def limit(client: Client, model: str) -> int | None:
    """The model's limit in tokens, as the engine tells it to clients."""
    status, answer = client.ask("GET", "/v1/models", key=client.key)
    rows = answer.get("data") if isinstance(answer, dict) and status == 200 else None
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and row.get("id") == model:
            length = row.get("max_model_len")
            return length if isinstance(length, int) else None
    return None


def measure(params: dict[str, Any], client: Client, facts: dict[str, Any]) -> None:
    """Fills ``facts`` as it goes, so that what came before a failure is told too."""
    model, output = params["model"], params["output_tokens"]
    facts["step"] = "limit"
    facts["limit"] = limit(client, model)
    length = facts["limit"] or params["max_model_len"]
    if not length:
        raise Unknown("neither the engine nor the inventory (max_model_len) tells the limit")
    size = vocabulary(params["path"])
    short = wish(model, prompt(size, 16, "short"), output)
    facts["step"] = "before"
    facts |= {"state": [unit_state(params["unit"])], "preemptions": [preemptions(client)]}
    facts["before"] = client.complete(short)
    began = time.time()
    for number in range(1, params["prompts"] + 1):
        facts["step"] = f"prompt {number}"
        tokens = prompt(size, length - output, f"{params['seed']} {number}")
        answer = client.complete(wish(model, tokens, output))
        answer["empty"] = not answer.pop("text", "")
        facts["answers"].append(answer | {"asked": len(tokens)})
        facts["memory"].append(memory(params))
    facts["step"] = "after"
    facts["after"] = client.complete(short)
    facts["preemptions"].append(preemptions(client))
    facts["state"].append(unit_state(params["unit"]))
    facts["journal"] = journal(params["unit"], began)


def main() -> None:
    params = json.loads(PARAMS)
    facts: dict[str, Any] = {"step": "lock", "answers": [], "memory": []}
    key = ""
    began = time.time()
    signal.signal(signal.SIGTERM, late)
    signal.signal(signal.SIGALRM, late)
    signal.alarm(int(params["total_s"]))
    try:
        time.sleep(params["after_s"])  # the baseline of the same run goes first
        held = alone(params["env_file"], params["wait_s"])
        key = read_key(held.read())
        client = Client(params["host"], params["port"], key, params["request_s"])
        measure(params, client, facts)
    except Late:
        facts["error"] = f"not finished within {params['total_s']} s"
    except (Busy, Unknown) as error:
        facts["unasked"] = str(error)
    except (OSError, http.client.HTTPException) as error:
        facts["error"] = say(error, params["request_s"])
    finally:
        signal.alarm(0)
    if "error" in facts:  # why it died stands there
        facts["journal"] = journal(params["unit"], began)
    print(MARK + without_key(json.dumps(facts), key))


if __name__ == "__main__":
    main()
