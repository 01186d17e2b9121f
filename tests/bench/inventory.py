"""RACKPIN_BENCH_NODES nodes on one lab host, without engines: a head, the others in `monitoring`.

Ray would start a cluster on the host for each of them; they get every other stage.
"""

import os
from pathlib import Path

from rackpin.lab import state as _state
from tests.bench.nodes import address_of as _address_of
from tests.bench.nodes import name_of as _name_of

_lab = _state.load()
_directory = Path(os.environ["RACKPIN_BENCH_DIR"])
_count = int(os.environ["RACKPIN_BENCH_NODES"])
_relay = os.environ.get("RACKPIN_BENCH_RELAY")


def _node(number: int) -> tuple[str, dict[str, object]]:
    address = _address_of(number) if number else _lab.hosts[0].address
    way: dict[str, object] = {"ssh_hostname": address}
    if _relay and not number:
        way = {"ssh_hostname": "127.0.0.1", "ssh_port": int(_relay)}
    return f"@fleet/{_name_of(number)}", {**way, "address": address, "sku": "lab-cpu"}


head = [_node(0)]
monitoring = [_node(number) for number in range(1, _count)]
all = (
    [*head, *monitoring],
    {
        "fleet": _lab.name,
        "stack": "cpu-lab",
        "state_dir": str(_directory / "state"),
        "wheelhouse_url": f"http://{_lab.control_address}:8900",
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
        "ssh_key": str(_lab.ssh_key),
        "ssh_known_hosts_file": str(_directory / "known_hosts"),
    },
)
