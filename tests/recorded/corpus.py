"""The shared samples of real tools' output, read where they lie: ``../shared/corpus``.

``RACKPIN_CORPUS`` names another folder. Where there is none, tests on it are skipped and say so.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

CORPUS = Path(
    os.environ.get("RACKPIN_CORPUS", Path(__file__).parents[2].parent / "shared" / "corpus")
)
needs_corpus = pytest.mark.skipif(
    not (CORPUS / "README.md").is_file(), reason=f"no shared samples at {CORPUS} (RACKPIN_CORPUS)"
)


@dataclass(frozen=True)
class Sample:
    """One recorded output and what its index says of it."""

    kind: str
    file: str
    expect: dict[str, str]
    note: str

    @property
    def path(self) -> Path:
        return CORPUS / self.kind / self.file

    @property
    def text(self) -> str:
        return self.path.read_bytes().decode("utf-8", errors="replace")

    def __str__(self) -> str:
        return f"{self.kind}-{self.file.removesuffix('.txt')}"


def samples(kind: str) -> list[Sample]:
    """All samples of a kind; empty where the corpus isn't there."""
    index = CORPUS / kind / "index.tsv"
    if not index.is_file():
        return []
    with index.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [Sample(kind, row["file"], expected(row["expect"]), row["note"]) for row in rows]


def expected(column: str) -> dict[str, str]:
    """``key=value; key=value`` as a dictionary; a part without ``=`` continues the one before."""
    pairs: dict[str, str] = {}
    last = ""
    for part in column.split("; "):
        key, equals, value = part.partition("=")
        if equals:
            last = key.strip()
            pairs[last] = value.strip()
        elif last:
            pairs[last] += f"; {part}"
    return pairs
