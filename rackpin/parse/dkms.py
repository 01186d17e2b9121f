"""``dkms status`` of every version: 2.x has a comma behind the name, 3.x a slash."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(
    r"^(?P<module>\w[\w.+-]*)(?:/|, )(?P<version>[\w.+~:-]+)"
    r"(?:, (?P<kernel>\S+), (?P<arch>\w+))?"
    r": (?P<state>added|built|installed|broken)(?P<rest>\b.*)$"
)
_DIFFERS = re.compile(r"\((?:WARNING! )?Diff")  # the rest of it may be on the next line


@dataclass(frozen=True)
class DkmsModule:
    """One line. ``kernel`` and ``arch`` are null for a module that is only added; ``differs``
    counts the module files that aren't what DKMS built; ``original`` a file set aside for it."""

    module: str
    version: str
    kernel: str | None
    arch: str | None
    state: str
    differs: int
    original: bool


def dkms_line(text: str) -> DkmsModule | None:
    """A line of ``dkms status``, or None."""
    match = _LINE.match(text)
    if not match:
        return None
    return DkmsModule(
        match["module"],
        match["version"],
        match["kernel"],
        match["arch"],
        match["state"],
        len(_DIFFERS.findall(match["rest"])),
        "riginal module" in match["rest"],
    )
