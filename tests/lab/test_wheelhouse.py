"""The real lock: whole wheelhouse, whole environment, in a root of its own (some minutes)."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rackpin.stack import environment as env
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from rackpin.stack.serve import Server, serve_background, stop_background

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

PYTHON = "/usr/bin/python3.11"
NEEDED_GB = 6


def sh(script: str, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-s"], input=script, capture_output=True, text=True, timeout=timeout
    )


def test_real_environment_from_the_real_wheelhouse(tmp_path: Path) -> None:
    if not Path(PYTHON).exists():
        pytest.skip(f"{PYTHON} is not on this machine")
    if (free := shutil.disk_usage(tmp_path).free / 1e9) < NEEDED_GB:
        pytest.skip(f"{free:.0f} GB free in {tmp_path}, {NEEDED_GB} needed")
    stack = load_stack("cpu-lab")
    lock = stack.lock
    house = wheelhouse.build(stack, say=print)
    start = time.monotonic()
    assert wheelhouse.verify(lock, house) == []
    assert time.monotonic() - start < 0.5, "an unchanged wheelhouse is proved from its stamps"

    with Server(house, "127.0.0.1", 0) as probe:
        port = int(probe.server_address[1])
    pidfile, root = tmp_path / "pid", str(tmp_path / "root")
    serve_background(house, "127.0.0.1", port, pidfile, tmp_path / "log")
    try:
        script = env.build_script(lock, f"http://127.0.0.1:{port}", root)
        start = time.monotonic()
        done = sh(script, 1500)
        seconds = time.monotonic() - start
        assert done.stdout == f"built: {env.env_path(lock, root)}\n", done.stderr
        start = time.monotonic()
        assert sh(script, 60).stdout.startswith("complete: ")
        assert time.monotonic() - start < 2
    finally:
        stop_background(pidfile)
    assert sh(env.activate_script(lock, root), 60).returncode == 0
    python = f"{root}/current/bin/python"
    found = json.loads(
        subprocess.check_output(
            [python, "-I", "-"], input=env.probe_text(), text=True, timeout=60, cwd="/"
        )
    )
    assert found["dists"] == lock.dists
    assert found["python"].startswith(f"{lock.python}.")
    code = (
        f"import ray, torch, {lock.engine.module} as e; print(ray.__version__, torch.__version__)"
    )
    said = subprocess.check_output([python, "-c", code], text=True, timeout=300, cwd="/")
    assert said.split()[-2:] == [lock.version_of("ray"), lock.version_of("torch")]
    gigabytes = int(subprocess.check_output(["du", "-sb", root], text=True).split()[0]) / 1e9
    print(f"environment: {seconds:.0f} s, {gigabytes:.1f} GB, {len(lock.wheels)} distributions")
    shutil.rmtree(root)
