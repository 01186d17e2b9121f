"""The work of ``work.py`` by pyinfra's own operations, one each."""

import json
import os
from pathlib import Path

from pyinfra import host
from pyinfra.operations import apt, files, server, systemd

directory = Path(os.environ["RACKPIN_BENCH_DIR"])
work = json.loads((directory / "work.json").read_text())
mine = directory / "files" / host.name

server.group(name="group", group=work["user"], system=True)
server.user(name="user", user=work["user"], home=work["home"], system=True)
for package in work["packages"]:
    apt.packages(name=f"package {package}", packages=[package])
for path in work["parents"]:
    files.directory(name=f"directory {path}", path=path)
for path, mode, owner in work["directories"]:
    files.directory(
        name=f"directory {path}", path=path, mode=mode, user=owner, group=owner, recursive=False
    )
for path, mode, owner in work["files"]:
    files.put(
        name=f"file {path}",
        src=str(mine / path.lstrip("/")),
        dest=path,
        mode=mode,
        user=owner,
        group=owner,
    )
for unit in work["units"]:
    systemd.service(name=f"unit {unit}", service=unit, running=True, enabled=None)
