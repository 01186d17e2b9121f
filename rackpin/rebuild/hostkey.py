"""A node's ssh host key against known_hosts: named by fingerprint, accepted only when asked."""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rackpin import deadlines
from rackpin.report.files import ReportError, commit

SSH_PORT = 22


class HostKeyError(Exception):
    """The key could not be asked for, or known_hosts not be read or written."""


@dataclass(frozen=True)
class Key:
    kind: str  # ssh-ed25519, …
    blob: str  # base64, as known_hosts has it

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -lf`` prints it."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def __str__(self) -> str:
        return f"{self.kind} {self.fingerprint}"


@dataclass(frozen=True)
class HostKey:
    """What a host offers, and what is known of it under ``name`` in ``file``."""

    name: str
    file: Path
    offered: Key
    known: Sequence[Key] = field(default_factory=tuple)
    aliases: Sequence[str] = ()  # its name and addresses in the inventory

    @property
    def state(self) -> Literal["known", "unknown", "changed"]:
        if self.offered in self.known:
            return "known"
        return "changed" if self.known else "unknown"


def known_keys(text: str, name: str) -> list[Key]:
    """The keys that known_hosts has for exactly this name, hashed names included."""
    return [key for line in text.splitlines() if (key := _key(line)) and _names(line, name)]


def replaced(text: str, name: str, key: Key, aliases: Sequence[str] = ()) -> tuple[str, list[str]]:
    """known_hosts with this one key for the host, and the lines that it had before.

    ``aliases`` that had one of its old keys get the new one too; names of others keep theirs.
    """
    before, names = known_keys(text, name), [name]
    kept, old = [], []
    for line in text.splitlines():
        its = _key(line)
        found = [one for n in (name, *aliases) for one in _names(line, n)] if its else []
        if its is None or its not in before or not found:
            kept.append(line)
            continue
        old.append(line)
        first, _, rest = line.strip().partition(" ")
        names += [one for one in found if one not in names and not one.startswith("|")]
        if others := [one for one in first.split(",") if one not in found]:
            kept.append(f"{','.join(others)} {rest}")
    return "\n".join([*kept, f"{','.join(names)} {key.kind} {key.blob}", ""]), old


def _key(line: str) -> Key | None:
    """Of a plain line; comments and lines with a marker (@revoked) are somebody else's affair."""
    fields = line.split()
    if len(fields) < 3 or line.lstrip().startswith(("#", "@")):
        return None
    try:
        base64.b64decode(fields[2], validate=True)
    except (ValueError, binascii.Error):
        return None
    return Key(fields[1], fields[2])


def _names(line: str, name: str) -> list[str]:
    from paramiko import HostKeys

    found = []
    for one in line.split()[0].split(","):
        hashed = one.startswith("|1|") and one.count("|") == 3
        if one == name or (hashed and HostKeys.hash_host(name, one) == one):
            found.append(one)
    return found


def accept(found: HostKey) -> Path | None:
    """Put the offered key into known_hosts, whole or not at all; gives the copy of the old file.

    None when there was no file. Raises :class:`HostKeyError`.
    """
    file = found.file
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else None
        backup = None
        if text is not None:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            backup = file.with_name(f"{file.name}.{stamp}.old")
            shutil.copy2(file, backup)
        mode = file.stat().st_mode & 0o777 if text is not None else 0o600
        made, _ = replaced(text or "", found.name, found.offered, found.aliases)
        commit({file.resolve(): made.encode()}, mode=mode)
    except (OSError, UnicodeDecodeError, ReportError) as error:
        raise HostKeyError(f"{file}: can't be changed: {error}") from error
    return backup


def probe(connector: Any, aliases: Sequence[str] = ()) -> HostKey:
    """Ask a host of a pyinfra inventory for its key, through jump hosts as it would connect.

    No login is tried. Raises :class:`HostKeyError`.
    """
    from paramiko import SSHException, Transport
    from pyinfra.connectors.sshuserclient import SSHClient

    given = connector.make_paramiko_kwargs()
    special = {key: given.pop(key) for key in list(given) if key.startswith("_pyinfra")}
    transport: Any = None
    try:
        hostname, config, _, _, files, _, _ = SSHClient().parse_config(
            given.pop("hostname"),
            given,
            ssh_config_file=special["_pyinfra_ssh_config_file"],
            strict_host_key_checking=special["_pyinfra_ssh_strict_host_key_checking"],
        )
        config |= given | (special["_pyinfra_ssh_paramiko_connect_kwargs"] or {})
        file = Path(special["_pyinfra_ssh_known_hosts_file"] or files[0]).expanduser()
        port = int(config["port"])
        name = hostname if port == SSH_PORT else f"[{hostname}]:{port}"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        known = known_keys(text, name)
        sock = config.get("sock") or socket.create_connection(
            (hostname, port), timeout=deadlines.CONNECT_S
        )
        transport = Transport(sock)
        options = transport.get_security_options()
        kinds = {key.kind for key in known}
        # a key of a kind that is known is asked for first, as ssh does
        options.key_types = sorted(options.key_types, key=lambda one: _kind(one) not in kinds)
        transport.start_client(timeout=deadlines.CONNECT_S)
        key = transport.get_remote_server_key()
        offered = Key(key.get_name(), base64.b64encode(key.asbytes()).decode())
        return HostKey(name, file, offered, known, aliases)
    except (OSError, SSHException, EOFError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise HostKeyError(f"{connector.host.name}: its host key can't be asked: {said}") from error
    finally:
        if transport is not None:
            transport.close()


def _kind(algorithm: str) -> str:
    """The kind of key that an algorithm signs with: one RSA key has three."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm
