"""Single things that a lock names: wheels, debs, sources, images, and what isn't resolved."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rackpin.stack.hostpins import (
    DIGEST,
    CudaPin,
    DebPin,
    DriverPin,
    KernelPin,
    NcclPins,
    RdmaPin,
)
from rackpin.stack.model import COMMIT, SHA256, Model


class Wheel(Model):
    """One wheel, exactly. ``url`` is null when no public place has it."""

    name: str
    version: str
    filename: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl$")
    sha256: str = Field(pattern=SHA256)
    size: int = Field(gt=0)  # bytes
    url: str | None = None
    builder: str | None = None  # for a local wheel: the script that writes it


class Reason(Model):
    """Why something could not be resolved, as a person should read it."""

    reason: str = Field(min_length=10)


class Unresolved(Model):
    """What stands in place of an item that could not be resolved: never an invented hash."""

    wanted: str  # what was looked for: an image's name, an archive's address, an OS
    unresolved: Reason


class Source(Model):
    """One source archive, exactly; sha256 and size are of the file at ``url``."""

    version: str
    commit: str = Field(pattern=COMMIT)
    url: str
    sha256: str = Field(pattern=SHA256)
    size: int | None = None  # bytes, where known


class Blob(Model):
    """One part of an image: a manifest, a config or a layer, named by its sha256."""

    digest: str = Field(pattern=DIGEST)
    size: int = Field(gt=0)  # bytes
    media_type: str

    @property
    def hex(self) -> str:
        return self.digest.removeprefix("sha256:")


class Image(Model):
    """One container image, exactly: ``ref`` is only its name, ``digest`` is what counts.

    ``parts`` is what a linux/amd64 host needs of it, its manifest first; none when only the
    digest is known.
    """

    ref: str
    digest: str = Field(pattern=DIGEST)
    parts: list[Blob] = Field(default_factory=list)

    @property
    def pull(self) -> str:
        """What ``docker pull`` and ``FROM`` take: name and digest, no tag."""
        head, _, last = self.ref.rpartition("/")
        return f"{head}/{last.partition(':')[0]}@{self.digest}".lstrip("/")


class ModelFile(Model):
    """One file of a model; ``path`` is below the model's directory."""

    path: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*$")
    sha256: str = Field(pattern=SHA256)
    size: int = Field(ge=0)  # bytes
    url: str | None = Field(default=None, pattern=r"^https://")


class Deb(Model):
    """One deb, exactly. ``filename`` is its path below the repository's address."""

    name: str
    version: str
    architecture: str
    filename: str
    sha256: str = Field(pattern=SHA256)
    size: int = Field(gt=0)  # bytes
    repository: str


class DebClosure(Model):
    """Every deb that a bare host of one OS needs beside its base, sorted by name."""

    debs: list[Deb]


Role = Literal[
    "kernel", "driver", "fabric_manager", "cuda", "nccl", "dcgm", "container_toolkit", "rdma",
    "mpi", "environment", "base", "gateway", "image",
]  # fmt: skip


class Package(Model):
    """A package that a host needs by name; its closure follows from it.

    ``version`` is a whole Debian version, or null where only the driver's own version is fixed
    (roles driver and fabric_manager) or the OS's newest will do. Roles base and environment are
    for every host, gateway is for nodes of that group, image is for container images only.
    """

    name: str
    version: str | None
    role: Role
    repository: Literal["os", "nvidia", "doca"]


class Host(Model):
    """The host's part of the pins, as it stands in the lock."""

    kernel: KernelPin | None = None
    driver: DriverPin | None = None
    fabric_manager: str | None = None  # a version: always the driver's
    cuda: CudaPin | None = None
    nccl: NcclPins = NcclPins()
    dcgm: DebPin | None = None
    container_toolkit: DebPin | None = None
    rdma: RdmaPin | None = None
