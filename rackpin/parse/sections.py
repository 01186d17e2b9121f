"""What a fact's script printed, by its sections: ``@@ NAME`` begins one, ``@@ end`` comes last."""

from __future__ import annotations

from collections.abc import Sequence


class CutAnswer(ValueError):
    """The last section is missing, so nothing certain can be said of the others either."""


def sections(lines: Sequence[str]) -> dict[str, list[str]]:
    """Lines by section, stripped, without empty ones. Raises :class:`CutAnswer`."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if line.startswith("@@ "):
            name = line[3:].strip()
            found[name] = []
        elif name and line.strip():
            found[name].append(line.strip())
    if "end" not in found:
        raise CutAnswer("answer is cut: its last section is missing")
    return found
