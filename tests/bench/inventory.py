"""RACKPIN_BENCH_NODES nodes on one lab host, without engines: a head, the others in `monitoring`.

Ray would start a cluster on the host for each of them; they get every other stage.
"""

import json
import os
from pathlib import Path

# Not from the lab's own modules: what they import would count as the controller's time.
_directory = Path(os.environ["RACKPIN_BENCH_DIR"])
_lab = json.loads((_directory / "nodes.json").read_text())
_count = int(os.environ["RACKPIN_BENCH_NODES"])
_relay = os.environ.get("RACKPIN_BENCH_RELAY")


def _node(number: int) -> tuple[str, dict[str, object]]:
    name, address = _lab["nodes"][number]
    way: dict[str, object] = {"ssh_hostname": address}
    if _relay and not number:
        way = {"ssh_hostname": "127.0.0.1", "ssh_port": int(_relay)}
    return f"@fleet/{name}", {**way, "address": address, "sku": "lab-cpu"}


head = [_node(0)]
monitoring = [_node(number) for number in range(1, _count)]
all = (
    [*head, *monitoring],
    {
        "fleet": _lab["fleet"],
        "stack": "cpu-lab",
        "state_dir": str(_directory / "state"),
        "wheelhouse_url": _lab["wheelhouse_url"],
        "verify_level": "quick",
        "ray": {"object_store_bytes": 200_000_000, "num_cpus": 4},
        # As in inventories/lab.py: what the machine under the lab clamps or keeps to itself.
        "limits": {"observed_memlock_min": 8388608, "observed_nofile_min": 20000},
        "sysctl_skip": [
            "vm.*",
            "kernel.*",
            "fs.*",
            "net.core.*mem_max",
            "net.ipv4.neigh.*",
            "transparent_hugepage",
        ],
        "min_free_gb": 6,
        "ssh_user": "root",
        "ssh_key": _lab["ssh_key"],
        "ssh_known_hosts_file": str(_directory / "known_hosts"),
    },
)
