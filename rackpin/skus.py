"""What hardware should be and should give: ``skus/NAME.yaml``, each number with its source."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

SKUS = Path(__file__).resolve().parent.parent / "skus"


class SkuError(Exception):
    """A SKU file that can't be used; the text names file, key and what to do."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpus(_Part):
    count: int = Field(ge=0)  # how many Ray is told of; 0 for a server without any
    model: str  # as nvidia-smi prints it; "none" where there is no card
    nvswitch: bool = (
        False  # the cards are joined by NVSwitches: nothing runs without fabric manager
    )
    ecc: bool = True  # must ECC be on; false where the cards come with it off
    mig: bool = False  # can the cards be split at all (nvidia-smi says N/A where not)
    fabric_state: bool = False  # nvidia-smi tells each card's state in the fabric: Hopper and later
    source: str = Field(min_length=1)


class Pcie(_Part):
    """The link of each card."""

    generation: int = Field(ge=1, le=7)
    width: int = Field(ge=1, le=16)
    source: str = Field(min_length=1)


class NvLink(_Part):
    """NVLinks that are up on each card of a healthy node."""

    links: int = Field(ge=1)
    source: str = Field(min_length=1)


class Hcas(_Part):
    """Ports of the compute fabric; a node may have more, for storage or the way out."""

    count: int = Field(ge=1)
    rate: int  # Gb/s of one port
    link_layer: Literal["InfiniBand", "Ethernet"]
    source: str = Field(min_length=1)


class Figure(_Part):
    """One number the hardware should reach, and below what it is suspect or bad."""

    name: str
    unit: str  # "GB/s", "Gb/s", …
    expected: float = Field(gt=0)
    warn_below: float
    fail_below: float
    conditions: str  # tool, arguments, size: a number without them can't be compared
    source: str = Field(min_length=1)

    @model_validator(mode="after")
    def _descending(self) -> Figure:
        if not self.fail_below <= self.warn_below <= self.expected:
            raise ValueError("must be fail_below ≤ warn_below ≤ expected")
        return self


class Gate(_Part):
    """Which figure all_reduce_perf must reach in one kind of run, and at which size."""

    figure: str
    size_gib: int = Field(ge=1)  # of one buffer; smaller ones are slower on sound hardware


class Sku(_Part):
    name: str
    gpus: Gpus
    pcie: Pcie | None = None
    nvlink: NvLink | None = None
    hcas: Hcas | None = None
    notes: list[str] = Field(default_factory=list)
    figures: list[Figure] = Field(default_factory=list)
    # None: nobody published or measured one
    all_reduce: Gate | None = None  # within one node
    internode: Gate | None = None  # over two nodes or more, by rings
    nic_loop: Gate | None = None  # within one node, every hop out of one HCA and into the next

    @model_validator(mode="after")
    def _gates_are_there(self) -> Sku:
        for key in ("all_reduce", "internode", "nic_loop"):
            wanted: Gate | None = getattr(self, key)
            if wanted and wanted.figure not in [one.name for one in self.figures]:
                raise ValueError(f"{key}: there is no figure {wanted.figure!r}")
        return self

    @property
    def gate(self) -> tuple[Figure, int] | None:
        """The figure of all_reduce_perf within one node and its size in bytes."""
        return self.at(self.all_reduce)

    def at(self, wanted: Gate | None) -> tuple[Figure, int] | None:
        """A gate's figure and its size in bytes."""
        if wanted is None:
            return None
        return next(f for f in self.figures if f.name == wanted.figure), wanted.size_gib * 2**30


def known_skus(directory: Path = SKUS) -> list[str]:
    """Names of all SKU files, sorted."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def load_sku(name: str, directory: Path = SKUS) -> Sku:
    """Read ``skus/NAME.yaml``; SkuError when it is missing, not YAML, or says something unknown."""
    path = directory / f"{name}.yaml"
    try:
        return _read(name, path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        known = ", ".join(known_skus(directory)) or "none"
        text = f"there is no SKU {name!r} ({directory.name}/{name}.yaml); known: {known}"
        raise SkuError(text) from None


@lru_cache(maxsize=64)
def _read(name: str, path: Path, changed_ns: int) -> Sku:
    """Once a process and version of the file: each node of a fleet asks several times."""
    try:
        sku = Sku.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise SkuError(f"{path}: not YAML: {error}; correct it") from error
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()
        )
        raise SkuError(f"{path}: {wrong}; see rackpin/skus.py for its keys") from error
    if sku.name != name:
        raise SkuError(f"{path}: name: is {sku.name!r}; make it {name!r}, as the file is called")
    return sku
