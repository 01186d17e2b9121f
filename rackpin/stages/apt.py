"""apt: repositories, their keys, pins, and guards; everything that says what apt may take."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from rackpin import deadlines, layout
from rackpin.alike import alike
from rackpin.apt import keys
from rackpin.apt.pins import (
    PRIORITY,
    candidate_faults,
    conflicts,
    rivals,
    unattended_patterns,
)
from rackpin.apt.state import KEYRINGS, ONLY, SOURCES, AptState
from rackpin.apt.wanted import hashes, pins, repositories
from rackpin.desired import Desired, OwnedDir, OwnedFile, Target, owned
from rackpin.inventory_parts import AptRepository
from rackpin.inventory_problems import Problem
from rackpin.parse.apt_sources import Source, same_suite, same_uri
from rackpin.preflight import ARCHITECTURE
from rackpin.stages.base import data

DEBIAN_ARCH = {"x86_64": "amd64"}


@alike
def names(target: Target) -> tuple[str, ...]:
    return tuple(pin.name for pin in pins(target))


def source_path(repository: AptRepository, only: bool = False) -> str:
    """``only``: apt looks nowhere else (a bundle), so a host's own files must lie elsewhere."""
    return f"{ONLY if only else SOURCES}/rackpin-{repository.name}.sources"


def only(target: Target) -> bool:
    """Whether apt on the node asks rackpin's repositories and nobody else's."""
    return target.fleet.config.bundle is not None


def keyring_path(repository: AptRepository) -> str:
    return f"{KEYRINGS}/rackpin-{repository.name}.asc"


@lru_cache(maxsize=32)
def _armored(path: str, fingerprint: str, _stamp: int) -> str:
    """The one certificate with this fingerprint; others of the file could sign as well."""
    wanted = keys.normal(fingerprint)
    for certificate in keys.read_keys(Path(path)):
        if keys.is_of(certificate, wanted):
            return keys.armor(certificate.data, "@OWNED@")
    raise keys.KeyFileError(f"{path} does not hold {keys.spaced(wanted)}")


def keyring(repository: AptRepository) -> str:
    """The armored key for the node, with a place for the owner's mark in its head."""
    path = Path(str(repository.key_file))
    return _armored(str(path), str(repository.fingerprint), path.stat().st_mtime_ns)


def proxies(target: Target) -> dict[str, str]:
    """apt's options (``Acquire::http::Proxy::HOST``) for the hosts of our repositories."""
    proxy = target.fleet.config.apt_proxy
    parts = [urlsplit(repository.uri) for repository in repositories(target)]
    remote = [p for p in parts if proxy and p.scheme != "file"]
    return {f"Acquire::{p.scheme}::Proxy::{p.hostname}": str(proxy) for p in remote}


@alike
def desired(target: Target) -> Desired:
    wanted = pins(target)
    guarded = [str(name) for name in data("guarded-packages.yaml")]
    files: list[OwnedFile] = [
        owned(
            "etc/apt/apt.conf.d/90-rackpin.j2",
            values={"apt_lock_s": deadlines.APT_LOCK_S, "proxies": proxies(target)},
        ),
        owned(
            "etc/apt/apt.conf.d/91-rackpin-unattended.j2",
            values={"guarded": unattended_patterns(wanted, guarded)},
        ),
        owned(
            "etc/needrestart/conf.d/90-rackpin.conf.j2",
            values={"units": ["ray-", "vllm@", "nvidia-", "docker", "containerd"]},
        ),
        *trusted_files(target),
    ]
    return Desired(
        files=tuple(files),
        directories=(
            OwnedDir(layout.STATE),
            OwnedDir(layout.APT),
            *([OwnedDir(ONLY)] if only(target) else []),
        ),
    )


@alike
def trusted_files(target: Target) -> list[OwnedFile]:
    """What apt may take from where. Pins first: a repository must never be there without (F012)."""
    files = []
    if wanted := pins(target):
        files.append(
            owned(
                "etc/apt/preferences.d/00-rackpin.pref.j2",
                values={"pins": wanted, "priority": PRIORITY, "rivals": rivals(wanted)},
            )
        )
    for one in repositories(target):
        if not one.trusted:
            files.append(
                owned(
                    "etc/apt/keyrings/rackpin-NAME.asc.j2",
                    keyring_path(one),
                    values={"armored": keyring(one).rstrip()},
                )
            )
    for one in repositories(target):
        values = {
            "repository": one,
            "architecture": DEBIAN_ARCH[ARCHITECTURE],
            "keyring": "" if one.trusted else keyring_path(one),
        }
        template = "etc/apt/sources.list.d/rackpin-NAME.sources.j2"
        files.append(owned(template, source_path(one, only(target)), values=values))
    if only(target):  # last: until then apt must find something
        files.append(owned("etc/apt/apt.conf.d/92-rackpin-sources.j2", values={"only": ONLY}))
    return files


@alike
def digest(target: Target) -> str:
    """Identifies what has to be proved: the files, and where each pin must come from."""
    files = [(file.path, file.sha256) for file in trusted_files(target)]
    origins = [(pin.name, pin.version, pin.origin) for pin in pins(target)]
    proved = [files, origins, sorted(hashes(target).items())]
    return hashlib.sha256(json.dumps(proved).encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """What is to be done about apt on one node beside its owned files."""

    prove: bool  # lists and pins have to be proved, before and after the change
    disable: tuple[Source, ...]  # other people's entries for a repository that is ours now
    remove: tuple[str, ...]  # our own files that nothing wishes any more
    hold: tuple[str, ...]
    release: tuple[str, ...]  # held by us for an earlier set of pins
    notes: tuple[str, ...]  # what a person should know; nothing is done about it


def plan(target: Target, state: AptState) -> Plan:
    """Compare the wish with what was found. Pure."""
    wanted = pins(target)
    files = trusted_files(target)
    remove = tuple(
        path for path in state.files if state.is_ours(path) and path not in {f.path for f in files}
    )
    disable, _ = superseded(target, state)
    differs = any(state.files.get(file.path) != file.content for file in files)
    faults = candidate_faults(wanted, repositories(target), state.policy, state.site_pins)
    settled = state.proved == digest(target) or not (files or state.proved)
    installed = [name for name in names(target) if name in state.status]
    return Plan(
        prove=bool(not settled or differs or remove or disable or faults or state.errors),
        disable=tuple(disable),
        remove=remove,
        hold=tuple(name for name in installed if not state.status[name].held),
        release=tuple(name for name in state.held if name not in names(target)),
        notes=(
            *(f"{one.place} names a repository of rackpin's: switched off" for one in disable),
            *conflicts(wanted, state.site_pins),
        ),
    )


def superseded(target: Target, state: AptState) -> tuple[list[Source], list[Problem]]:
    """Others' entries for our repositories: those to switch off, and those that can't be.

    apt refuses all sources when two entries for one repository name different keys (F019).
    """
    ours = {(same_uri(r.uri), same_suite(r.suite)): r for r in repositories(target)}
    off: list[Source] = []
    problems: list[Problem] = []
    for source in [] if only(target) else state.site_sources:
        pairs = [(uri, same_suite(suite)) for uri in source.uris for suite in source.suites]
        mine = [ours[pair] for pair in pairs if pair in ours]
        if not mine:
            continue
        more = source.components - set(mine[0].components) if "deb" in source.types else set()
        if len(mine) == len(pairs) and not more and "\ufffd" not in state.files[source.file]:
            off.append(source)
        elif any(_at_odds(source, repository) for repository in mine):
            extra = f"components {', '.join(sorted(more))}" if more else "more than that"
            problems.append(
                Problem(
                    target.node.name,
                    source.place,
                    f"names {mine[0].uri} {mine[0].suite} with another key than "
                    f"apt_repositories[{mine[0].name}], and {extra}; apt would refuse all sources",
                    f"give {mine[0].name} what it has more, or split it: what is left in a line "
                    "of its own can be switched off",
                )
            )
    return off, problems


def _at_odds(source: Source, repository: AptRepository) -> bool:
    wanted = "" if repository.trusted else keyring_path(repository)
    return source.signed_by != wanted or bool(source.trusted) != repository.trusted
