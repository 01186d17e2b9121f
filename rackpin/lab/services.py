"""What a lab gives its hosts beside power: wheels on its bridge, an API key, a model.

A site has its own of each; the lab stands in for the site.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rackpin.inventory import ROOT
from rackpin.lab import ssh
from rackpin.lab.errors import LabError
from rackpin.lab.state import HostState, LabState
from rackpin.stack import serve, wheelhouse
from rackpin.stack.pins import StackError

MODEL = "/srv/models/tiny"  # on the hosts, as a site's model store would be
MAKE_MODEL = ROOT / "lab" / "model" / "make_model.py"
DEADLINE_S = 120.0
Say = Callable[[str], None]


def start(lab: LabState, say: Say) -> None:
    """Key, model and wheel server; what is there already stays as it is."""
    api_key(lab)
    model = make_model(lab, say)
    for host in lab.hosts:
        put_model(lab, host, model)
    directory = wheelhouse.default_dir()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        serve.serve_background(
            directory,
            lab.control_address,
            serve.PORT,
            pidfile(lab.directory),
            lab.directory / "wheels.log",
        )
    except StackError as error:
        raise LabError(f"no wheel server for lab {lab.name}: {error}") from error
    say(f"wheels at http://{lab.control_address}:{serve.PORT}, model at {MODEL}")


def stop(directory: Path) -> None:
    """End the wheel server of the lab in this directory, if it runs."""
    serve.stop_background(pidfile(directory))


def pidfile(directory: Path) -> Path:
    return directory / "wheels.pid"


def api_key(lab: LabState) -> Path:
    """The lab's own key, 0600 from its first moment."""
    path = lab.directory / "api-key"
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"sk-lab-{secrets.token_urlsafe(32)}\n")
    return path


def make_model(lab: LabState, say: Say) -> Path:
    """The small model, made once per lab; its bytes are the same everywhere."""
    path = lab.directory / "model"
    if not (path / "config.json").exists():
        say("making the model")
        run([sys.executable, str(MAKE_MODEL), str(path)])
    return path


def put_model(lab: LabState, host: HostState, model: Path) -> None:
    """Copy the model to a host that doesn't have it; appears whole or not at all."""
    script = (
        f"[ -e {MODEL}/config.json ] || {{ rm -rf {MODEL}.new && mkdir -p {MODEL}.new && "
        f"tar -C {MODEL}.new -x --no-same-owner && mv -T {MODEL}.new {MODEL}; }}"
    )
    packed = run(["tar", "-C", str(model), "-c", "."]).stdout
    run([*ssh.argv(lab, host, "-o", "BatchMode=yes"), script], packed)


def run(argv: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            argv, input=stdin, capture_output=True, check=True, timeout=DEADLINE_S
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise LabError(f"{argv[0]} failed: {said}") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{argv[0]} did not end within {DEADLINE_S:g} s") from error
