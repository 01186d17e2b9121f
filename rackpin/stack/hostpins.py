"""Pins of what lies under the Python environment: kernel, driver, CUDA, NCCL, network, images.

All of it is optional; a stack for hosts without a GPU has none of it.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Literal

from pydantic import Field, field_validator, model_validator

from rackpin.stack.model import COMMIT, SHA256, Model, dist_name, exact_version

DIGEST = r"^sha256:[0-9a-f]{64}$"
# [host[:port]/]path[:tag] as docker reads it; a digest stands in a key of its own.
IMAGE = r"^[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$"
_DRIVER = r"^\d{3}(\.\d{2,3}){1,2}$"
_DEB_VERSION = r"^(\d+:)?\d[A-Za-z0-9.+~-]*$"


class KernelPin(Model):
    """The kernel that the driver's modules are built for: ``release`` as ``uname -r`` says it."""

    release: str = Field(pattern=r"^\d+\.\d+\.\d+-[a-z0-9.+-]+$")
    compiler: str = Field(pattern=r"^gcc-\d+$")  # the package that DKMS must build with


class Revision(Model):
    """What follows the driver's version in the version of some of its packages."""

    packages: str = Field(pattern=r"^[a-z0-9.+*?-]+$")  # a name or a glob
    revision: str = Field(pattern=r"^-[A-Za-z0-9.+~]+$")  # "-0ubuntu1"


class DriverPin(Model):
    """NVIDIA's driver. Fabric manager has no version of its own: it only works with the same."""

    version: str = Field(pattern=_DRIVER)
    branch: str = Field(pattern=r"^\d{3}$")
    flavour: Literal["closed", "open"]  # of the kernel modules
    source: Literal["nvidia", "ubuntu", "debian"]  # whose packages; they must not be mixed
    fabric_manager: bool = False  # nodes with NVSwitch need it
    revisions: list[Revision] = Field(default_factory=list)  # before rackpin's own table

    @property
    def origin(self) -> Literal["nvidia", "os"]:
        """Whose repositories its packages are in: the vendor's, or the OS's own."""
        return "nvidia" if self.source == "nvidia" else "os"

    @field_validator("fabric_manager", mode="before")
    @classmethod
    def _follows(cls, value: object) -> object:
        if not isinstance(value, bool):
            raise ValueError(
                "must be true or false: fabric manager has always the driver's version, "
                "it refuses any other"
            )
        return value

    @model_validator(mode="after")
    def _of_branch(self) -> DriverPin:
        if not self.version.startswith(f"{self.branch}."):
            raise ValueError(f"version {self.version} is not of branch {self.branch}")
        return self


class CudaPin(Model):
    """The CUDA toolkit on the host; the engine brings CUDA libraries of its own."""

    version: str = Field(pattern=r"^\d+\.\d+\.\d+$")

    @property
    def minor(self) -> str:
        """``12.2``: how packages and NCCL builds name it."""
        return self.version.rpartition(".")[0]


class NcclHostPin(Model):
    """libnccl2 on the host, for tests; ``cuda`` is the CUDA it was built with."""

    version: str
    cuda: str = Field(pattern=r"^\d+\.\d+$")

    check_version = field_validator("version")(exact_version)


class NcclEnginePin(Model):
    """The NCCL wheel that the engine loads; ``override`` forces it against torch's own wish."""

    distribution: str = Field(pattern=r"^nvidia-nccl-cu\d+$")
    version: str
    override: bool = False

    check_name = field_validator("distribution")(dist_name)
    check_version = field_validator("version")(exact_version)


class NcclPins(Model):
    """Both NCCLs of a node. The engine never loads the host's by itself."""

    host: NcclHostPin | None = None
    engine: NcclEnginePin | None = None


class DebPin(Model):
    """Something that is one version of Debian packages: ``1:3.3.6``, ``1.17.8-1``."""

    version: str = Field(pattern=_DEB_VERSION)

    @property
    def upstream(self) -> str:
        """The version without epoch and Debian revision."""
        return re.sub(r"^\d+:|-[^-]*$", "", self.version)


class RdmaPin(Model):
    """InfiniBand software: the OS's rdma-core, or NVIDIA's DOCA or older OFED at a version."""

    stack: Literal["inbox", "doca", "ofed"]
    version: str | None = Field(default=None, pattern=_DEB_VERSION)

    @model_validator(mode="after")
    def _versioned(self) -> RdmaPin:
        if (self.version is None) != (self.stack == "inbox"):
            raise ValueError(
                "doca and ofed need a version; inbox has none, it is the OS's own release"
            )
        return self


class SourcePin(Model):
    """Source that nodes build: one commit, and the sha256 of GitHub's .tar.gz of that commit.

    Without ``sha256`` the archive is fetched and hashed when the stack is locked. A site without
    GitHub makes the same bytes from a clone:
    ``git archive --format=tar --prefix=NAME-COMMIT/ COMMIT | gzip -n``.
    """

    version: str
    commit: str = Field(pattern=COMMIT)
    sha256: str | None = Field(default=None, pattern=SHA256)
    size: int | None = Field(default=None, gt=0)  # bytes
    url: str | None = Field(default=None, pattern=r"^https://")  # default: GitHub's archive

    check_version = field_validator("version")(exact_version)


class ImagePin(Model):
    """A container image by tag; its digest is looked up when the stack is locked, or given."""

    ref: str = Field(pattern=IMAGE)
    digest: str | None = Field(default=None, pattern=DIGEST)


class ModelPin(Model):
    """A model by the manifest of its files, which lies beside the pins (``rackpin model DIR``)."""

    manifest: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*\.json$")


class EolPin(Model):
    """When upstream stops mending something, and who says so."""

    date: date
    source: str = Field(min_length=8)


class Unproven(Model):
    """Something that this stack relies on and that nobody has shown yet."""

    claim: str = Field(min_length=10)
    source: str = Field(min_length=8)
