"""A fixed load on one engine: by the engine's own generator, or by this program where it has none.

Runs as root with the stack's Python. The generator runs as the service user, in a directory that
is removed afterwards; it gets the key by its environment, which nobody else can read. Sent in one
text with :mod:`rackpin.probes.client` and :mod:`rackpin.probes.prompts`.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # sent in one text with this one
    from rackpin.probes.client import Client, Late, late, read_key, say, without_key
    from rackpin.probes.prompts import Busy, Unknown, alone, prompt, vocabulary, wish

PARAMS = "{}"  # filled in when the script is sent: see rackpin.checks.baseline
MARK = "RACKPIN_JSON "
# The generator as the command `vllm bench serve` starts it. That command itself needs a
# distribution that is called vllm, which builds for other platforms are not.
DRIVER = """\
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def has_generator() -> bool:
    """Whether this environment's engine brings one, as vLLM's wheels do since spring 2025."""
    spec = PathFinder.find_spec("vllm")
    places = list(spec.submodule_search_locations or []) if spec else []
    return any((Path(place) / "benchmarks" / "serve.py").is_file() for place in places)


def arguments(params: dict[str, Any], directory: str) -> list[str]:
    load = params["load"]
    return [
        f"--host={params['host']}",
        f"--port={params['port']}",
        "--endpoint=/v1/completions",
        f"--model={params['model']}",
        f"--tokenizer={params['path']}",
        "--dataset-name=random",
        f"--random-input-len={load['input_tokens']}",
        f"--random-output-len={load['output_tokens']}",
        f"--num-prompts={load['prompts']}",
        f"--max-concurrency={load['concurrency']}",
        f"--seed={load['seed']}",
        "--ignore-eos",
        "--percentile-metrics=ttft,tpot,itl",
        "--disable-tqdm",
        "--save-result",
        "--save-detailed",
        f"--result-dir={directory}",
        "--result-filename=result.json",
    ]


def by_generator(params: dict[str, Any], key: str) -> dict[str, Any]:
    """Exit status, the end of what it printed, and its result file without the texts."""
    directory = tempfile.mkdtemp(prefix="rackpin-load-", dir=params["temporary"])
    try:
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": directory,
            "TMPDIR": directory,
            "LC_ALL": "C.UTF-8",
            "OPENAI_API_KEY": key,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "CUDA_VISIBLE_DEVICES": "",  # a client needs no card's memory
        }
        who: dict[str, Any] = {}
        if params["user"] and os.geteuid() == 0:
            shutil.chown(directory, params["user"], params["user"])
            who = {"user": params["user"], "group": params["user"], "extra_groups": []}
        done = subprocess.run(
            [sys.executable, "-I", "-c", DRIVER, *arguments(params, directory)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            **who,
        )
        said = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace")
        facts: dict[str, Any] = {"rc": done.returncode, "said": said[-3000:]}
        try:
            text = (Path(directory) / "result.json").read_text(encoding="utf-8")
            facts["result"] = reduced(json.loads(text))
        except (OSError, ValueError) as error:
            facts["no_result"] = f"{type(error).__name__}: {error}"
        return facts
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def reduced(result: Any) -> Any:
    """The result without texts and lists of times: numbers, lengths, how many texts are empty."""
    if not isinstance(result, dict):
        return result
    small = {k: v for k, v in result.items() if isinstance(v, int | float) or k == "output_lens"}
    texts, errors = result.get("generated_texts"), result.get("errors")
    if isinstance(texts, list):
        small["empty_texts"] = sum(not text for text in texts)
    if isinstance(errors, list):
        small["errors"] = [str(error)[-300:] for error in errors if error][:3]
    return small


def by_hand(params: dict[str, Any], client: Client) -> dict[str, Any]:
    """The same load by threads of this program: what each request gave, and the seconds of all."""
    load, size = params["load"], vocabulary(params["path"])
    answers: list[dict[str, Any]] = []
    waiting = list(range(load["prompts"]))
    gate = threading.Lock()

    def work() -> None:
        while True:
            with gate:
                if not waiting:
                    return
                number = waiting.pop(0)
            tokens = prompt(size, load["input_tokens"], f"{load['seed']} {number}")
            try:
                answer = client.stream(wish(params["model"], tokens, load["output_tokens"]))
                answer["empty"] = not answer.pop("text")
            except (OSError, http.client.HTTPException) as error:
                answer = {"status": None, "error": say(error, client.request_s)}
            with gate:
                answers.append(answer)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(load["concurrency"])]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"answers": answers, "seconds": time.monotonic() - started}


def main() -> None:
    params = json.loads(PARAMS)
    facts: dict[str, Any] = {}
    key = ""
    step = "lock"
    signal.signal(signal.SIGTERM, late)
    signal.signal(signal.SIGALRM, late)
    signal.alarm(int(params["total_s"]))
    try:
        held = alone(params["env_file"], params["wait_s"])
        step = "key"
        key = read_key(held.read())
        client = Client(params["host"], params["port"], key, params["request_s"])
        # One request before: whether it serves at all, and what a first request has to warm up.
        step = "first request"
        load = params["load"]
        tokens = prompt(vocabulary(params["path"]), load["input_tokens"], "first")
        facts["first"] = client.complete(wish(params["model"], tokens, load["output_tokens"]))
        facts["first"].pop("text", None)
        step = "load"
        if facts["first"]["status"] == 200:
            facts["generator"] = has_generator()
            facts |= by_generator(params, key) if facts["generator"] else by_hand(params, client)
    except Late:
        facts["error"] = {"step": step, "text": f"not finished within {params['total_s']} s"}
    except (Busy, Unknown) as error:
        facts["unasked"] = str(error)
    except (OSError, http.client.HTTPException) as error:
        facts["error"] = {"step": step, "text": say(error, params["request_s"])}
    finally:
        signal.alarm(0)
    print(MARK + without_key(json.dumps(facts), key), flush=True)
    os._exit(0)  # threads that still wait for a mute engine must not hold this process


if __name__ == "__main__":
    main()
