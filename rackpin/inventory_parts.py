"""Parts of the fleet's data that concern where nodes fetch from, and what clients reach."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Names that become part of a unit's or a directory's name.
NAME = r"^[a-z0-9][a-z0-9-]{0,40}$"
DEB_NAME = r"^[a-z0-9][a-z0-9+.-]+$"
DEB_VERSION = r"^[0-9][A-Za-z0-9.+:~-]*$"
SUITE = r"^[A-Za-z0-9._~+/-]+$"

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=1)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AptRepository(Model):
    """One apt repository, owned whole: its source file, its key, and who may use it.

    Without a key only if ``trusted`` says so in so many words: a plain local one.
    """

    name: str = Field(pattern=NAME)
    uri: str  # http(s)://, or file:/// for a directory that every node has
    suite: str = Field(pattern=SUITE)  # ends with / for a flat repository
    components: list[str] = Field(default_factory=list)  # none for a flat one
    key_file: str | None = None  # public key on the control machine; absolute once it is loaded
    fingerprint: str | None = None  # of the key that may sign: 40 hex digits, spaces allowed
    trusted: bool = False

    @property
    def flat(self) -> bool:
        return self.suite.endswith("/")


class AptPin(Model):
    """One package at one exact version; ``origin`` is the repository it must come from."""

    name: str = Field(pattern=DEB_NAME)
    version: str = Field(pattern=DEB_VERSION)
    origin: str | None = None  # a name of apt_repositories; None: any that the node has


class BundleConfig(Model):
    """A served bundle (``rackpin bundle serve``): the one place that nodes fetch anything from.

    Its debs are signed by the site's key, or taken unsigned only if ``trusted`` says so. apt on
    the nodes then asks nobody else; the host's own source files stay as they are, unused.
    """

    url: str  # e.g. http://10.0.0.5:8901
    key_file: str | None = None  # the bundle's keys/site.asc, on the control machine
    fingerprint: str | None = None
    trusted: bool = False


class GatewayConfig(Model):
    """What clients reach on the nodes of the group ``gateway``."""

    port: Port = 8080
    tls_cert: str | None = None  # PEM with its chain, on the control machine; absolute once loaded
    tls_key: str | None = None  # PEM, mode 0600
    # Between two reads from an engine: a completion in one piece says nothing until it is done.
    read_timeout_s: Seconds = 3600
    max_body_mb: int = Field(64, ge=1)  # pictures come in the request
