"""Shell scripts that build and switch the Python environment of a node.

An environment lies at its final path from the start (``ROOT/env/STACK-DIGEST``), because the
scripts in its ``bin`` carry absolute paths. Its file ``.complete`` is written last and means
that everything locked is in it; ``ROOT/current`` points at the one in use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from rackpin.stack.lock import Lock, render_requirements
from rackpin.stack.share import Share

ROOT = "/opt/rackpin"
LOCK_WAIT_S = 1800  # another build on this node; a full one takes minutes
FETCH_DEADLINE_S = 300  # for the installer itself, some 18 MB
INSTALL_DEADLINE_S = 3600
_HERE = Path(__file__).resolve().parent
_PROBE = _HERE.parent / "probes" / "versions.py"


def env_path(lock: Lock, root: str = ROOT) -> str:
    """Where the environment of this lock lies on a node."""
    return f"{root}/env/{lock.env_name}"


def probe_text() -> str:
    """The probe that prints ``{"python": …, "dists": {name: version}}`` of its interpreter."""
    return _PROBE.read_text(encoding="utf-8")


def build_script(
    lock: Lock,
    url: str,
    root: str = ROOT,
    python: str | None = None,
    compile: bool = True,
    share: Share | None = None,
) -> str:
    """The POSIX sh script (run as root) that builds the environment of ``lock`` from ``url``.

    ``url`` is the wheelhouse's address; nothing else is asked, but with ``share`` other nodes that
    are built at the same time. The last line printed is
    ``complete: PATH`` (it was there already) or ``built: PATH``. Exit 0 only when the environment
    is whole; 75 when another build held the lock too long. ``current`` is never touched.
    """
    values = {
        "root": root,
        "env": env_path(lock, root),
        "url": url.rstrip("/"),
        "python": python or f"/usr/bin/python{lock.python}",
        "digest": lock.env_digest,
        "uv_version": lock.uv.version,
        "uv_file": lock.uv.filename,
        "uv_sha256": lock.uv.sha256,
        "lock_wait": str(LOCK_WAIT_S),
        "fetch_deadline": str(FETCH_DEADLINE_S),
        "install_deadline": str(INSTALL_DEADLINE_S),
        "bytecode": "--compile-bytecode" if compile else "--no-compile-bytecode",
    }
    head = "".join(f"{name}={quote(value)}\n" for name, value in values.items())
    files = {
        "@SHARE@": share.script(lock, url, root) if share else "\n",
        "@FETCH_UV@": (_HERE / "node_fetch_uv.py").read_text(encoding="utf-8"),
        "@PROBE@": probe_text(),
        "@REQUIREMENTS@": render_requirements(lock),
        "@EXPECTED@": json.dumps(lock.dists, sort_keys=True, indent=0),
    }
    body = (_HERE / "node_build.sh").read_text(encoding="utf-8")
    for mark, text in files.items():
        body = body.replace(f"{mark}\n", text if text.endswith("\n") else f"{text}\n")
    return f"#!/bin/sh\nset -eu\n{head}{body}"


def activate_script(lock: Lock, root: str = ROOT) -> str:
    """The sh script that makes the complete environment of ``lock`` the current one.

    ``ROOT/current`` changes in one step and the one before stays reachable as
    ``ROOT/previous``. Prints ``unchanged: PATH`` or ``activated: PATH``; fails, touching
    nothing, when the environment isn't complete.
    """
    return f"""#!/bin/sh
set -eu
root={quote(root)}
env={quote(env_path(lock, root))}
digest={lock.env_digest}
if [ "$(cat "$env/.complete" 2>/dev/null)" != "$digest" ]; then
  echo "$env: not complete, so $root/current stays; build it first" >&2
  exit 1
fi
link() {{ # a new link under another name, renamed over the old: never a moment without
  ln -s "$1" "$root/.$2.$$"
  mv -T "$root/.$2.$$" "$root/$2"
}}
old=$(readlink "$root/current" || echo)
if [ "$old" = "$env" ]; then
  echo "unchanged: $env"
  exit 0
fi
if [ -n "$old" ]; then link "$old" previous; fi
link "$env" current
sync -f "$root"
echo "activated: $env"
"""


def list_script(root: str = ROOT) -> str:
    """The sh script that prints ``current PATH``, ``previous PATH`` and ``env PATH STATE`` lines.

    STATE is ``complete`` or ``partial``.
    """
    return f"""#!/bin/sh
set -eu
root={quote(root)}
for name in current previous; do
  if [ -L "$root/$name" ]; then echo "$name $(readlink "$root/$name")"; fi
done
for env in "$root"/env/*/; do
  env=${{env%/}}
  if [ -f "$env/.complete" ]; then echo "env $env complete"
  elif [ -d "$env" ]; then echo "env $env partial"; fi
done
"""


def envs_to_keep(listing: str) -> list[str]:
    """Paths that must stay, from the output of :func:`list_script`: current and previous."""
    words = [line.split(" ", 1) for line in listing.splitlines() if " " in line]
    return sorted({path.strip() for kind, path in words if kind in ("current", "previous")})


def envs_to_prune(listing: str, also_keep: Iterable[str] = ()) -> list[str]:
    """Complete environments that are neither current nor previous nor in ``also_keep``.

    Nothing removes them by itself: an engine may still run from one.
    """
    keep = {*envs_to_keep(listing), *also_keep}
    found = [line.split(" ") for line in listing.splitlines() if line.startswith("env ")]
    return sorted(parts[1] for parts in found if parts[2] == "complete" and parts[1] not in keep)
