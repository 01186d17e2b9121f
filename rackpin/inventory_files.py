"""The files on this machine that an inventory names: keys, known hosts, ssh configuration."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rackpin.inventory import Instance
from rackpin.inventory_engines import key_of
from rackpin.inventory_problems import FLEET, Problem, shown, some
from rackpin.inventory_rules import Draft, Rule

HOST_KEY_MODES = ("yes", "accept-new", "no", "off")


def resolve(name: str, base: Path) -> Path:
    """A control-machine file: absolute, or beside the inventory, or in the working directory."""
    path = Path(name).expanduser()
    places = [base / path, Path.cwd() / path]
    return next((place for place in places if place.exists()), places[0]).absolute()


def api_keys(draft: Draft) -> Iterator[Problem]:
    users: dict[Path, list[Instance]] = {}
    for instance in draft.engines("api_key_file"):
        users.setdefault(resolve(instance.api_key_file, draft.base), []).append(instance)
    for path, instances in users.items():
        if wrong := _api_key(path):
            more = f" (also for {some(i.name for i in instances[1:])})" if instances[1:] else ""
            yield Problem(
                FLEET, key_of(instances[0], "api_key_file"), f"{path} {wrong[0]}{more}", wrong[1]
            )


def _api_key(path: Path) -> tuple[str, str] | None:
    """What is wrong with a key file, and what to do. The key itself is never shown."""
    folder, file = shlex.quote(str(path.parent)), shlex.quote(str(path))
    make = f"make one:\n$ (umask 077; mkdir -p {folder} && openssl rand -hex 32 > {file})"
    try:
        mode = path.stat().st_mode
        words = path.read_bytes().split() if stat.S_ISREG(mode) else []
    except FileNotFoundError:
        return "does not exist", make
    except OSError as error:
        return f"can't be read: {error.strerror}", "see the owner and mode of it and of its folders"
    if not stat.S_ISREG(mode):
        return "is not a regular file", make
    if not words:
        return "is empty: the engine would serve everybody", make
    if len(words) > 1:
        return "holds more than one word; a key is one", make
    if mode & 0o077:
        what = f"has mode {stat.S_IMODE(mode):04o}: others can read the key"
        return what, f"make a new key if somebody did, and close it:\n$ chmod 600 {file}"
    return None


def ssh_files(draft: Draft) -> Iterator[Problem]:
    for node, data in draft.data.items():
        yield from _ssh_files(node, data)


def _ssh_files(node: str, data: Mapping[str, Any]) -> Iterator[Problem]:
    if data.get("ssh_key"):
        key = resolve(str(data["ssh_key"]), Path.cwd())
        make = f"name the right file, or make one:\n$ ssh-keygen -t ed25519 -f {key}"
        if not key.is_file():
            yield Problem(node, "ssh_key", f"{key} does not exist on this machine", make)
        elif key.stat().st_mode & 0o077:
            yield Problem(
                node, "ssh_key", f"{key} can be read by others", f"close it:\n$ chmod 600 {key}"
            )
    config = str(data.get("ssh_config_file") or "")
    if config and not Path(config).is_file():  # pyinfra goes on without it, past the jump host
        tilde = "pyinfra does not expand ~ here" if config.startswith("~") else "does not exist"
        what = f"{config}: {tilde}; pyinfra would say nothing and ignore it, jump hosts included"
        yield Problem(
            node,
            "ssh_config_file",
            what,
            "write it; inventories/ssh_config.example is one to start from",
        )
    mode = data.get("ssh_strict_host_key_checking")
    if mode is not None and mode not in HOST_KEY_MODES:
        asks = "asks at a terminal in the middle of a run" if mode == "ask" else "pyinfra refuses"
        remedy = 'use "yes" and a known_hosts file'
        yield Problem(node, "ssh_strict_host_key_checking", f"{shown(mode)}: {asks}", remedy)
    known = Path(str(data.get("ssh_known_hosts_file") or "/dev/null")).expanduser()
    if mode == "yes" and not known.exists():
        what = f"{known} does not exist, and strict checking then refuses every host"
        remedy = (
            f"ssh-keyscan the nodes into it, then compare fingerprints:\n$ ssh-keygen -lf {known}"
        )
        yield Problem(node, "ssh_known_hosts_file", what, remedy)


RULES: tuple[Rule, ...] = (api_keys, ssh_files)
