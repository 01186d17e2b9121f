"""What an audit expects of one node or image: everything a deploy puts there, as data.

The same expectation is sent to a node by ``rackpin audit``, and lies on each node as
``/etc/rackpin/audit.json`` for its timer. Nothing in it needs the node to be made.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from rackpin.audit import locked
from rackpin.audit.node.sheet import SCHEMA_VERSION

# Stands for the NIC that has the node's address, which only the node knows.
INTERFACE_MARK = "rackpin-interface-of-address"


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class File(Model):
    """An owned file. ``content`` instead of ``sha256`` where the NIC's name is in it."""

    path: str
    sha256: str = ""
    content: str | None = None
    mode: str
    owner: str
    group: str
    secret: bool = False


class Directory(Model):
    path: str
    mode: str
    owner: str
    group: str


class Block(Model):
    """Rackpin's lines between two marks of a file that it shares."""

    path: str
    begin: str
    end: str
    lines: list[str]


class Environment(Model):
    """``records``: digest of a wheel's RECORD by distribution, where the wheel is at hand.
    ``sealed``: file times say what changed since the build; not so in an image's layers."""

    path: str
    current: str
    digest: str
    python: str
    dists: dict[str, str]
    records: dict[str, str] = Field(default_factory=dict)
    sealed: bool = True


class PinnedModel(Model):
    """A model of the stack on this node. ``files``: path below ``path``, sha256, bytes."""

    path: str
    digest: str  # what its mark begins with
    files: list[tuple[str, str, int]]


class Expectation(Model):
    """What :func:`rackpin.audit.node.main.audit` compares with. Debs and pins are by OS key."""

    schema_version: int = SCHEMA_VERSION
    kind: str  # "host" or "image"
    name: str
    address: str = ""
    fleet: str = ""
    stack: str
    lock: str
    os: list[str]
    environment: Environment
    files: list[File] = Field(default_factory=list)
    directories: list[Directory] = Field(default_factory=list)
    links: dict[str, str] = Field(default_factory=dict)
    blocks: list[Block] = Field(default_factory=list)
    models: list[PinnedModel] = Field(default_factory=list)
    interface_mark: str = INTERFACE_MARK
    unit_files: list[str] = Field(default_factory=list)  # in /etc/systemd/system
    units: list[str] = Field(default_factory=list)  # those that are enabled
    debs: dict[str, dict[str, str | None]]  # must be there; None: any version
    debs_known: dict[str, dict[str, str | None]] = Field(default_factory=dict)  # if there
    driver_family: list[str] = Field(default_factory=lambda: list(locked.DRIVER_FAMILY))
    family_known: list[str] = Field(default_factory=list)  # OSes whose closure is resolved
    holds: dict[str, list[str]] = Field(default_factory=dict)
    candidates: dict[str, dict[str, str]] = Field(default_factory=dict)
    driver: dict[str, str] | None = None
    kernel: str | None = None
    nccl: dict[str, str] | None = None
    engines: list[str] = Field(default_factory=list)  # units that must have NCCL mapped
