"""An inventory of RACKPIN_MANY nodes with eight cards each, over the few hosts of one lab."""

import os

from rackpin.lab import state as _state

_lab = _state.load()
COUNT, PORT = int(os.environ["RACKPIN_MANY"]), 2200


def _node(number: int):
    place, host = number // len(_lab.hosts), _lab.hosts[number % len(_lab.hosts)]
    data = {
        "ssh_hostname": host.address,
        "ssh_port": PORT + place if place else 22,  # two nodes are never one sshd's
        "address": f"10.99.0.{number + 1}" if place else host.address,
        "sku": "h100-sxm-8",
    }
    return f"@fleet/n{number:02}", data


head = [_node(0)]
workers = [_node(number) for number in range(1, COUNT)]
all = (
    [*head, *workers],
    {
        "fleet": "many",
        "stack": "cpu-lab",
        "wheelhouse_url": "http://10.99.0.250:8900",
        "state_dir": str(_lab.directory / "state"),
        "ssh_user": "root",
        "ssh_key": str(_lab.ssh_key),
        "ssh_known_hosts_file": str(_lab.directory / "known_hosts_many"),
    },
)
