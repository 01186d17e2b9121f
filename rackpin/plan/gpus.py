"""A card by any of its usual names: ``H100-80GB``, ``NVIDIA H100 80GB HBM3``, ``A40-48GB``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rackpin.plan.data import table
from rackpin.plan.errors import PlanError

_NOISE = re.compile(r"nvidia|geforce|tesla|quadro|®|\(r\)|[\s_\-]+", re.IGNORECASE)
_CLASS = re.compile(r"\b(\d{1,4}) ?GB class", re.IGNORECASE)
_COUNT = re.compile(r"^\d+\s*[x×*]\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    """One kind of card.

    total_gib: what CUDA reports; gbps: memory bandwidth in GB/s, 0 unknown; cc: compute
    capability, 0 unknown; nvlink: sold with NVLink as a rule; note: what was assumed, or "".
    """

    id: str
    total_gib: float
    gbps: float
    cc: float
    nvlink: bool
    note: str


def find_gpu(name: str | None, total_gib: float | None = None) -> Gpu:
    """The card called ``name``; ``total_gib`` replaces the table's figure.

    A name that isn't known is accepted with ``total_gib``: then nothing but its size counts.
    Raises PlanError for an unknown card without it.
    """
    if total_gib is not None and not 0 < total_gib < 100_000:
        raise PlanError(f"--total-gib {total_gib:g}: give the memory of one card in GiB, above 0")
    found = (_known(name) or _sized(name)) if name else None
    if found is None:
        if total_gib is not None:
            what = f"card {name!r} is not in the table" if name else "no --gpu was given"
            note = f"{what}: only its size of {total_gib:g} GiB counts"
            return Gpu(name or f"{total_gib:g} GiB card", total_gib, 0.0, 0.0, False, note)
        known = ", ".join(row["id"] for row in table("gpus")["gpus"])
        said = f"--gpu {name!r} is not known" if name else "--gpu is missing"
        raise PlanError(
            f"{said}: name one of {known}, or give its memory as torch reports it with --total-gib"
        )
    return found if total_gib is None else replace(found, total_gib=total_gib)


def _sized(name: str) -> Gpu | None:
    """A card called by its size only: ``48 GB class``."""
    size = _CLASS.search(name)
    if size is None:
        return None
    usable = float(size[1]) * float(table("gpus")["usable"])
    note = f"{name!r} names no card: {usable:.1f} GiB taken, nothing but the size counts"
    return Gpu(name, usable, 0.0, 0.0, False, note)


def _known(name: str) -> Gpu | None:
    plain = _NOISE.sub("", _COUNT.sub("", name.strip())).lower()
    for row in table("gpus")["gpus"]:
        if re.search(row["match"], plain):
            note = ""
            if row["from"] == "catalogue":
                note = f"memory of {row['id']} is estimated from the catalogue, no log was found"
            cc, bandwidth = float(row["cc"]), float(row["gbps"])
            return Gpu(row["id"], float(row["total_gib"]), bandwidth, cc, row["nvlink"], note)
    return None
