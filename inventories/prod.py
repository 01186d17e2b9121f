"""A fleet to copy: a Ray head, four workers with 8 × H100, a gateway and a monitoring node.

All are reached as the user `ops` through a jump host. `rackpin inventory check inventories/prod.py`
says what is still missing on this machine. What each key means: docs/inventory.md.
"""

import os
from pathlib import Path

# What must never be in a repository: the API key, the ssh key, known_hosts and ssh_config.
_site = Path(os.environ.get("RACKPIN_SITE") or "~/.config/rackpin/prod").expanduser()

# Values that one node has alone stand with it, values of a group beside its list.
head = ([("@fleet/head1", {"address": "10.20.0.10"})], {"sku": "cpu"})

workers = (
    [
        ("@fleet/gpu001", {"address": "10.20.0.11"}),
        ("@fleet/gpu002", {"address": "10.20.0.12"}),
        # Another chassis: its interface for the cluster has another name.
        ("@fleet/gpu003", {"address": "10.20.0.13", "fabric_interface": "ens1f0np0"}),
        # Four of its cards are out for repair.
        ("@fleet/gpu004", {"address": "10.20.0.14", "gpus": 4}),
    ],
    {
        "sku": "h100-sxm-8",
        "fabric_interface": "bond0",
        "min_free_gb": 60,  # two environments and a wheel cache
    },
)

gateway = ([("@fleet/gw1", {"address": "10.20.0.20"})], {"sku": "cpu"})
monitoring = ([("@fleet/mon1", {"address": "10.20.0.21"})], {"sku": "cpu"})

_key = str(_site / "api-key")
_fleet = {
    "fleet": "prod",
    "stack": "r535-vllm0.19",
    "wheelhouse_url": "http://10.20.0.2:8900",
    "time_servers": ["10.20.0.2"],
    "extra_listeners": [9100],  # the site's own node exporter
    "collective_min_gb_s": 330,  # skus/h100-sxm-8.yaml, all_reduce_busbw_internode_ring
    "instances": [
        {
            "name": "llama-70b",
            "nodes": ["gpu001"],
            "model": "/srv/models/Llama-3.3-70B-Instruct",
            "served_name": "llama-3.3-70b",
            "tp": 8,
            "attention_heads": 64,
            "max_model_len": 32768,
            "api_key_file": _key,
        },
        {
            "name": "llama-405b",  # too large for one node: TP inside each, PP between them
            "nodes": ["gpu002", "gpu003"],
            "model": "/srv/models/Llama-3.1-405B-Instruct-FP8",
            "served_name": "llama-3.1-405b",
            "tp": 8,
            "pp": 2,
            "attention_heads": 128,
            "max_model_len": 16384,
            "start_timeout_s": 3600,
            "api_key_file": _key,
        },
        {
            "name": "llama-70b-small",
            "nodes": ["gpu004"],
            "model": "/srv/models/Llama-3.3-70B-Instruct",
            "served_name": "llama-3.3-70b",
            "tp": 4,
            "attention_heads": 64,
            "max_model_len": 8192,
            "api_key_file": _key,
        },
    ],
}
_ssh = {
    "ssh_user": "ops",
    "_sudo": True,
    "ssh_key": str(_site / "id_ed25519"),
    "ssh_known_hosts_file": str(_site / "known_hosts"),
    "ssh_config_file": str(_site / "ssh_config"),  # the jump host; see ssh_config.example
}

# pyinfra drops a host that is in a group but not here.
all = ([*head[0], *workers[0], *gateway[0], *monitoring[0]], {**_fleet, **_ssh})
