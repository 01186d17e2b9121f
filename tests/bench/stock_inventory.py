"""The same nodes for stock pyinfra, by its own ssh connector."""

import json
import os
from pathlib import Path

_lab = json.loads(Path(os.environ["RACKPIN_BENCH_DIR"], "nodes.json").read_text())
_count = int(os.environ["RACKPIN_BENCH_NODES"])
nodes = (
    [(name, {"ssh_hostname": address}) for name, address in _lab["nodes"][1 : _count + 1]],
    {
        "ssh_user": "root",
        "ssh_key": _lab["ssh_key"],
        "ssh_known_hosts_file": str(Path(os.environ["RACKPIN_BENCH_DIR"]) / "known_hosts"),
    },
)
