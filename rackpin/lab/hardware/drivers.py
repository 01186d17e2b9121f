"""Branches of the NVIDIA driver whose output is known well enough to be printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from rackpin.lab.errors import LabError

# branch → the CUDA version in nvidia-smi's head (NVIDIA, CUDA release notes, table 3)
CUDA = {535: "12.2", 580: "13.0", 590: "13.1", 595: "13.2"}
WIDE_FROM = 550  # nvidia-smi's table is two characters wider from this branch on
NEW_FROM = 580  # -q, -x and the query fields have their newer form


def cuda(version: str) -> str:
    """CUDA version of a driver; LabError for one that isn't of a branch in ``CUDA``."""
    found = re.fullmatch(r"(\d{3})\.\d{2,3}(\.\d{2})?", version)
    if found is None or int(found[1]) not in CUDA:
        branches = ", ".join(map(str, CUDA))
        raise LabError(f"driver {version!r}: not a version such as 535.129.03 of {branches}")
    return CUDA[int(found[1])]


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """One line for people: what isn't known, what was probably meant, what there is."""
    close = get_close_matches(name, known, 1, 0.4)
    meant = f", did you mean {close[0]!r}?" if close else ";"
    return f"there is no {kind} {name!r}{meant} known: {', '.join(known)}"
