"""The program for a node: the modules of :mod:`rackpin.audit.node` joined into one text."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from rackpin.audit.expectation import Expectation

MODULES = (
    "sheet",
    "place",
    "record",
    "environment",
    "files",
    "models",
    "units",
    "packages",
    "boot",
    "processes",
    "metrics",
    "main",
)
_OWN = re.compile(r"^from rackpin\.audit\.node\.\w+ import (?:\([^)]*\)|[^\n(]+)\n", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"
PYTHON = "/usr/bin/python3"  # the OS's: the environment's own is what is looked at


@cache
def source() -> str:
    """All modules in order; their imports of each other are gone."""
    package = resources.files("rackpin.audit.node")
    parts = [package.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in MODULES]
    return _FUTURE + "\n\n".join(_OWN.sub("", part.replace(_FUTURE, "")) for part in parts)


def installed() -> str:
    """The program as it lies on a node: its expectation is a file beside it."""
    return source() + "\n\nif __name__ == '__main__':\n    sys.exit(main())\n"


def carried(expectation: Expectation, deep: bool) -> str:
    """The program with its expectation in it, for ``python3 -I -``; prints one line of JSON."""
    options = ["--json", "--all", *(["--deep"] if deep else [])]
    text = expectation.model_dump_json()
    return source() + f"\n\nsys.exit(main({options!r}, json.loads({text!r})))\n"
