"""A model of the stack on a node: its files at the engine's path, each proved by sha256.

``PATH/.rackpin-model`` is written last: the digest of the stack's list, then size, time of change
(ctime, which no program can set) and name of each file. While it is missing, engines wait.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from shlex import quote
from urllib.parse import quote as url_quote

from rackpin import deadlines
from rackpin.audit.node.models import MODEL_MARK as MARK
from rackpin.stack.items import ModelFile
from rackpin.stack.lock import Lock
from rackpin.stack.share import Share, Transfers, Wanted, fetch_script

WAS = f"{MARK}.was"  # the mark of what lay there before, while it is replaced
LISTED = 20_000  # files of a directory that isn't ours: what more it has is not looked at
SLOWEST = 50e6  # bytes/s: what a node gets at least where ten share a link of 5 Gb/s
LEFT_FREE = 1e9  # bytes that stay free beside a model

_STATE = """p={path}
if [ -e "$p/{mark}" ]; then
  set --
  {{ read -r digest; while read -r size time name; do set -- "$@" "$name"; done; }} <"$p/{mark}"
  echo "mark $digest"
  now=$(cd "$p" && stat -c '%s %.9Z %n' -- "$@" 2>/dev/null)
  [ -z "$now" ] || [ "$now" != "$(tail -n +2 "$p/{mark}")" ] || echo same
fi
d=$p; while [ -n "$d" ] && [ ! -d "$d" ]; do d=${{d%/*}}; done
echo "free $(df -B1 --output=avail -- "${{d:-/}}" | tail -n 1)"
[ ! -d "$p" ] || find "$p/" -type f -printf 'file %s %P\\n' | head -n {listed}
echo end"""


@dataclass(frozen=True)
class ModelState:
    """What lies at a model's path. ``sizes``: bytes by file; ``free``: bytes on its disk."""

    digest: str = ""  # of the list that the mark is for
    same: bool = False  # every file of the mark has the size and ctime of when it was proved
    free: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PlacedModel:
    """A model that the stack pins, and where a node wants it."""

    name: str
    path: str
    files: tuple[ModelFile, ...]

    @cached_property
    def rows(self) -> tuple[tuple[str, str, int], ...]:
        """Path below the model's, sha256 and bytes of each file."""
        return tuple((file.path, file.sha256, file.size) for file in self.files)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.rows).encode()).hexdigest()

    @property
    def mark(self) -> str:
        return f"{self.path}/{MARK}"

    @cached_property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    @property
    def deadline_s(self) -> float:
        """For fetching, or only reading, all of it."""
        return deadlines.ENVIRONMENT_S + self.size / SLOWEST

    def settled(self, state: ModelState) -> bool:
        return state.same and state.digest == self.digest

    def missing(self, state: ModelState) -> int:
        """Bytes that are not there, as far as sizes tell."""
        return sum(f.size for f in self.files if state.sizes.get(f.path) != f.size)


def model_of(lock: Lock, name: str, path: str) -> PlacedModel:
    """KeyError when the lock has no such model."""
    return PlacedModel(name, path, tuple(lock.models[name]))


def models_at(lock: Lock, wanted: Mapping[str, str]) -> list[PlacedModel]:
    """The models of ``Fleet.models_on``, which gives their names by path."""
    return [model_of(lock, name, path) for path, name in sorted(wanted.items())]


def state_script(path: str) -> str:
    return _STATE.format(path=quote(path), mark=MARK, listed=LISTED)


def place_script(
    model: PlacedModel,
    bundle_url: str,
    root: str,
    transfers: Transfers,
    share: Share | None = None,
    python: str = "/usr/bin/python3",
) -> str:
    """The POSIX sh script (run as root) that has all files at their path, or says what is wrong.

    A file that is there already and right is kept; another one of that name is kept beside it,
    unless rackpin put it there. Exit 75: another run had the lock too long.
    """
    wanted = Wanted(
        origin=f"{bundle_url.rstrip('/')}/models/{url_quote(model.name)}",
        into=model.path,
        files=model.rows,
        all_s=int(model.deadline_s) - 60,
        ours=f"{model.path}/{WAS}",
    )
    names = " ".join(quote(file.path) for file in model.files)
    return f"""#!/bin/sh
set -eu
umask 022
export LC_ALL=C.UTF-8
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY PYTHONPATH PYTHONHOME
model={quote(model.path)}
digest={model.digest}
root={quote(root)}
python={quote(python)}
mkdir -p "$root" "$model"
exec 9>"$root/.models.lock"
flock -w {deadlines.ENVIRONMENT_S} 9 || {{
  echo "$root/.models.lock: another run has it" >&2
  exit 75
}}
[ ! -e "$model/{MARK}" ] || mv "$model/{MARK}" "$model/{WAS}"
work=$(mktemp -d "$root/.models.XXXXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
{fetch_script(wanted, transfers, share, root)}
# On disk before it is called complete.
sync -f "$model"
cd "$model"
echo "$digest" >"{MARK}.part"
stat -c '%s %.9Z %n' -- {names} >>"{MARK}.part"
sync "{MARK}.part"
mv "{MARK}.part" "{MARK}"
rm -f "{WAS}"
echo "complete: $model"
"""


def parse_state(lines: list[str]) -> ModelState:
    """The answer of :func:`state_script`. ValueError when it is cut or can't be read."""
    if not lines or lines[-1] != "end":
        raise ValueError("the answer about a model is cut")
    digest, same, free, sizes = "", False, None, {}
    for line in lines[:-1]:
        word, _, rest = line.partition(" ")
        if word == "mark":
            digest = rest
        elif word == "same":
            same = True
        elif word == "free":
            free = int(rest)
        elif word == "file":
            size, _, name = rest.partition(" ")
            sizes[name] = int(size)
        else:
            raise ValueError(f"the answer about a model has {line[:80]!r}")
    if free is None:
        raise ValueError("the answer about a model does not say how much is free")
    return ModelState(digest, same, free, sizes)
