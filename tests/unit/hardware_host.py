"""The programs of a simulated host, run here out of a directory."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rackpin.lab.hardware.answer import BOOTED
from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.parts import Answer
from rackpin.lab.hardware.tree import tree, write

PID = 4242


def put(node: Node, home: Path) -> None:
    """The node's files below ``home``/current, programs executable."""
    for name, content in tree(node, str(home)).items():
        file = home / "current" / name
        write(file, content)
        if name.startswith("bin/"):
            file.chmod(0o755)


def ask(home: Path, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Answer:
    """What a program of the host prints."""
    extra = {"RACKPIN_LAB_PID": str(PID), "RACKPIN_LAB_BOOTED": str(int(BOOTED.timestamp()))}
    done = subprocess.run(
        [str(home / "current" / "bin" / argv[0]), *argv[1:]],
        capture_output=True,
        text=True,
        timeout=20,
        env={"PATH": os.environ["PATH"], "TZ": "UTC", **extra, **(env or {})},
        check=False,
    )
    return Answer(done.stdout, done.stderr, done.returncode)


def timeless(answer: Answer) -> Answer:
    """The same without the time of the call."""
    text = re.sub(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}", "NOW", answer.stdout)
    text = re.sub(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}", "NOW", text)
    return answer._replace(stdout=text)
