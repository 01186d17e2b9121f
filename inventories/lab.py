"""The lab that runs on this machine (`rackpin lab up`; RACKPIN_LAB names another than the first).

Two engines: one over the head and a worker through Ray, one on the next worker by itself.
"""

from rackpin.inventory_problems import FLEET, InventoryError, Problem
from rackpin.lab import state as _state
from rackpin.lab.errors import LabError

try:
    _lab = _state.load()
except LabError as error:
    _problem = Problem(FLEET, "RACKPIN_LAB", str(error), "or name the one that runs by RACKPIN_LAB")
    raise InventoryError([_problem], __file__) from error


def _hosts(group):
    """The lab's hosts of a group, with what the lab knows of each."""
    return [
        (
            f"@fleet/{host.name}",
            {
                "ssh_hostname": host.address,
                # a second NIC is the fabric: the nodes speak to each other there
                "address": host.fabric_address or host.address,
                "sku": host.sku,
                **host.data,
            },
        )
        for host in _lab.hosts
        if group in host.groups
    ]


head = _hosts("head")
workers = _hosts("workers")
gateway = _hosts("gateway")
monitoring = _hosts("monitoring")

_ray_nodes = [name.removeprefix("@fleet/") for name, _ in [*head, *workers]]
_tiny = {
    "model": "/srv/models/tiny",
    "max_model_len": 256,
    # float32, so that both engines say the same; a KV cache that three hosts can share memory with
    "args": [
        "--enforce-eager",
        "--dtype=float32",
        "--max-num-seqs=8",
        "--kv-cache-memory-bytes=67108864",
    ],
    # The hosts share the machine's few cores.
    "env": {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    },
    "api_key_file": str(_lab.directory / "api-key"),  # `rackpin lab up` makes it
}
_instances = [
    {"name": "tiny-tp2", "served_name": "tiny-tp2", "nodes": _ray_nodes[:2], "tp": 2, **_tiny},
    {"name": "tiny-one", "served_name": "tiny-one", "nodes": _ray_nodes[2:3], "tp": 1, **_tiny},
]

all = (
    [*head, *workers, *gateway, *monitoring],
    {
        "fleet": _lab.name,
        "stack": "cpu-lab",
        "state_dir": str(_lab.directory / "state"),
        "wheelhouse_url": f"http://{_lab.control_address}:8900",
        # A smaller lab serves with what it has.
        "instances": [i for i in _instances if len(i["nodes"]) == i["tp"]],
        "ray": {"object_store_bytes": 200_000_000, "num_cpus": 4},
        # The machine under the lab clamps these for every process, whatever a unit asks.
        "limits": {"observed_memlock_min": 8388608, "observed_nofile_min": 20000},
        # Read-only in a lab host: they would be the control machine's own.
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
        "ssh_known_hosts_file": str(_lab.known_hosts),
    },
)
