"""The same work for all tools: what rackpin put on the nodes, as a list of equal operations.

Paths, modes and owners come from rackpin's stages, contents from the nodes themselves: after a
run of ``deploys/site.py`` every other tool must find nothing to do, and a run that changes
something is refused as a comparison.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
from dataclasses import asdict, dataclass
from pathlib import Path

from rackpin import layout
from rackpin.desired import Target
from rackpin.inventory import Fleet, FleetConfig, Node
from rackpin.lab.process import run
from rackpin.stack.lock import load_stack
from rackpin.stages import STAGES
from tests.bench.nodes import Nodes, address_of, name_of

COMPARED = ("apt", "base", "audit")  # the stages that a node without engines has files of
# Units of the host's own that run anyway, beside those of the stages.
UNITS = ("systemd-journald.service", "ssh.service", "dbus.service", "cron.service")


@dataclass(frozen=True)
class Work:
    """``directories`` and ``files``: path, mode, owner. ``parents``: directories of files."""

    directories: list[tuple[str, str, str]]
    parents: list[str]
    files: list[tuple[str, str, str]]
    packages: list[str]
    units: list[str]
    user: str
    home: str

    @property
    def operations(self) -> int:
        """A package each and a unit each, the user's group too: what roles look like."""
        paths = len(self.directories) + len(self.parents) + len(self.files)
        return paths + len(self.packages) + len(self.units) + 2


def work() -> Work:
    nodes = [
        Node(name=name_of(n), groups=[group], address=address_of(n), sku="lab-cpu", gpus=0)
        for n, group in ((0, "head"), (1, "monitoring"))
    ]
    config = FleetConfig(fleet="bench", stack="cpu-lab", wheelhouse_url="http://10.88.0.1:8900")
    fleet = Fleet(config=config, nodes={node.name: node for node in nodes})
    target = Target(fleet, nodes[1], load_stack("cpu-lab").lock, interface="host0")
    wishes = [STAGES[name](target) for name in COMPARED]
    files = [(f.path, f.mode, f.owner) for wish in wishes for f in wish.files]
    files.append(("/etc/hosts", "644", "root"))
    directories = {d.path: (d.path, d.mode, d.owner) for wish in wishes for d in wish.directories}
    parents = {str(Path(path).parent) for path, _, _ in files} - directories.keys()
    packages = {name for wish in wishes for name in wish.packages}
    units = [*UNITS, *(unit for wish in wishes for unit in wish.units)]
    return Work(
        sorted(directories.values()),
        sorted(parents),
        files,
        sorted(packages),
        units,
        layout.USER,
        f"{layout.STATE}/home",
    )


def fetch(nodes: Nodes, count: int, wanted: Work) -> Path:
    """Each node's files as rackpin left them, in ``DIRECTORY/files/NODE``; nodes 1 to ``count``."""
    root = nodes.directory / "files"
    paths = " ".join(path.lstrip("/") for path, _, _ in wanted.files)
    for number in range(1, count + 1):
        place = root / name_of(number)
        place.mkdir(parents=True, exist_ok=True)
        command = f"tar -C / -c {paths} | base64 -w0"
        packed = base64.b64decode(ask(nodes, number, command))
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(place, filter="data")
    (nodes.directory / "work.json").write_text(json.dumps(asdict(wanted)))
    return root


def ask(nodes: Nodes, number: int, command: str) -> str:
    """A command on one node, past its host."""
    options = [
        *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
        *("-o", f"UserKnownHostsFile={nodes.known_hosts}"),
    ]
    line = ["ssh", "-F", "/dev/null", "-i", str(nodes.site.lab.ssh_key), *options]
    return run([*line, f"root@{address_of(number)}", command], deadline_s=60).stdout
