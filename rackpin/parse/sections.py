"""What a script of ours printed, by its sections: ``@@ NAME`` or ``## NAME`` begins one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# For such a script: a small file, whole lines only, without a program.
SHOW = r"""show() {
  while IFS= read -r line || [ -n "$line" ]; do printf '%s\n' "$line"; done <"$1"
}"""


class CutAnswer(ValueError):
    """The last section is missing, so nothing certain can be said of the others either."""


def split(lines: Iterable[str], mark: str = "## ") -> dict[str, list[str]]:
    """Lines by section, just as they are; what stands before the first is left out."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if line.startswith(mark):
            name = line[len(mark) :].strip()
            found[name] = []
        elif name:
            found[name].append(line)
    return found


def sections(lines: Sequence[str], mark: str = "@@ ") -> dict[str, list[str]]:
    """Lines by section, stripped, without empty ones; a section ``end`` must come last.

    Raises :class:`CutAnswer`.
    """
    found = split(lines, mark)
    if "end" not in found:
        raise CutAnswer("answer is cut: its last section is missing")
    return {name: [line.strip() for line in some if line.strip()] for name, some in found.items()}
