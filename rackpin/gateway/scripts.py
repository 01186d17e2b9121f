"""What runs on a gateway: new files in place only if nginx takes them, and a proven reload."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from importlib import resources

from rackpin import layout
from rackpin.desired import OwnedFile, pending_mark

_END = "RACKPIN_END_OF_FILE"


def install_script(files: Collection[OwnedFile], known: Collection[str], reload: str) -> str:
    """POSIX sh text for stdin, with all contents in it: so nothing is in a process list.

    The files are tried where they can't do harm; ``known`` names that are no longer wanted go.
    Exit 1 with nginx's own words, and the old files in place, when it refuses them.
    """
    directory, draft = layout.GATEWAY, f"{layout.GATEWAY}.new"
    lines = ["set -eu", "umask 077", f"rm -rf {draft}", f"mkdir -m 700 {draft}"]
    names = [file.path.rpartition("/")[2] for file in files]
    for name, file in zip(names, files, strict=True):
        lines += [f"cat >{draft}/{name} <<'{_END}'", file.content.removesuffix("\n"), _END]
        lines += [f"chown {file.owner}:{file.group} {draft}/{name}"]
        lines += [f"chmod {file.mode} {draft}/{name}"]
    lines += [
        f"if ! said=$(nginx -t -q -e stderr -c {draft}/nginx.conf 2>&1); then",
        f"  rm -rf {draft}",
        '  echo "nginx refuses the new configuration; the old one stays in force: $said" >&2',
        "  exit 1",
        "fi",
        f"mkdir -p -m 755 {directory} {layout.PENDING}",
        f"touch {shlex.quote(pending_mark(reload))}",
        f"sync {draft}/*",
    ]
    lines += [f"mv -f {draft}/{name} {directory}/{name}" for name in names]
    lines += [f"rm -f {directory}/{name}" for name in known if name not in names]
    return "\n".join([*lines, f"rm -rf {draft}", ""])


def reload_script(host: str, port: int, tls: bool, digest: str, limit_s: int, reload: str) -> str:
    """A Python program for stdin: reload, then wait until workers with this digest answer."""
    source = resources.files("rackpin.gateway").joinpath("reload.py").read_text(encoding="utf-8")
    values = {
        "UNIT": layout.GATEWAY_UNIT,
        "HOST": host,
        "PORT": port,
        "TLS": tls,
        "DIGEST": digest,
        "LIMIT_S": limit_s,
        "PENDING": pending_mark(reload),
    }
    head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    marker = "# values stand here\n"
    if source.count(marker) != 1:
        raise ValueError(f"reload.py must have one line {marker!r}")
    return source.replace(marker, head)
