"""Which engine's constants hold for what somebody calls its version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rackpin.plan.data import table

_NUMBER = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_DEV = re.compile(r"0\.1\.dev|\bnightly\b|\bv2 (?:model )?runner\b", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(frozen=True)
class Generation:
    """Constants of a range of vLLM versions.

    row: the table's row with the constants of the one it is ``like``; version: None when it isn't
    known; known: the overheads were measured for it; note: what to say of the choice, or "".
    """

    id: str
    version: Version | None
    row: dict[str, Any]
    known: bool
    note: str

    @property
    def label(self) -> str:
        return str(self.row["label"])

    def since(self, key: str) -> bool:
        """Whether this version is at least the one of a table's key; newer where unknown."""
        return self.version is None or self.version >= Version(table("vllm")[key])


def vllm_generation(text: str | None) -> Generation:
    """The generation of a version in any of its forms: ``0.19.0``, ``v0.10``, ``0.26.1rc1.dev156``,
    ``0.1.dev18496+g… (main, July 2026)``, ``main Dec 2023``. Unknown ones get the newest known."""
    said = (text or "").strip()
    if _DEV.search(said):
        return _row("v2runner", None, "a build of main: constants of the builds of July 2026")
    found = _NUMBER.search(said)
    if found:
        version = Version(".".join(part for part in found.groups() if part))
        for row in table("vllm")["generations"]:
            if row["versions"] != "dev" and SpecifierSet(row["versions"]).contains(version):
                known = row["known"]
                note = (
                    ""
                    if known
                    else (
                        f"the overheads of vLLM {version} were not measured: made with those of "
                        f"{row['like']}"
                    )
                )
                return _row(row["id"], version, note)
    day = _month(said)
    if day:
        for row in table("vllm")["generations"]:
            if day <= str(row["until"]):
                return _row(row["id"], None, f"taken for vLLM of {day} by its date")
    newest = table("vllm")["newest_known"]
    why = f"vLLM version {said!r} is not known" if said else "no --engine-version was given"
    generation = _row(
        newest, None, f"{why}: made with the constants of the newest that is measured"
    )
    return Generation(generation.id, None, generation.row, not said, generation.note)


def _row(name: str, version: Version | None, note: str) -> Generation:
    rows = {row["id"]: row for row in table("vllm")["generations"]}
    row = rows[name]
    merged = dict(row)
    while "like" in row:
        row = rows[row["like"]]
        merged = {**row, **merged}
    return Generation(name, version, merged, bool(merged["known"]), note)


def _month(text: str) -> str | None:
    year = re.search(r"\b(20\d\d)\b", text)
    if not year:
        return None
    low = text.lower()
    months = [i for i, name in enumerate(_MONTHS, 1) if re.search(rf"\b{name}", low)]
    season = 11 if "late" in low else 2 if "early" in low else 6
    return f"{year[1]}-{months[0] if months else season:02d}"
