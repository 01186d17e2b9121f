"""Blocks of ``Key: value`` lines, as apt's preferences and ``.sources`` files are made of.

Line numbers are kept, which a library that reads control files does not do.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stanza:
    """One block. Keys are in lower case; ``first`` and ``last`` count lines from 1."""

    first: int
    last: int
    fields: dict[str, str] = field(default_factory=dict)
    twice: tuple[str, ...] = ()  # keys given again: a lost blank line joins two blocks

    def get(self, key: str) -> str:
        return self.fields.get(key.lower(), "")


def stanzas(text: str) -> list[Stanza]:
    """The blocks of a file. Comment lines belong to no field; a continued line to the one above."""
    found: list[Stanza] = []
    fields: dict[str, str] = {}
    twice: list[str] = []
    first, key = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if not line.strip():
            if fields:
                found.append(Stanza(first, number - 1, fields, tuple(twice)))
            fields, twice, first, key = {}, [], 0, ""
        elif line.startswith("#"):
            continue
        elif line[0] in " \t" and key:
            fields[key] = f"{fields[key]} {line.strip()}".strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            key = name.strip().lower()
            if key in fields:
                twice.append(key)
            fields[key] = value.strip()
            first = first or number
    return found
