"""The same nodes for stock pyinfra, by its own ssh connector."""

import os
from pathlib import Path

from rackpin.lab import state as _state
from tests.bench.nodes import address_of as _address_of
from tests.bench.nodes import name_of as _name_of

_lab = _state.load()
_count = int(os.environ["RACKPIN_BENCH_NODES"])
nodes = (
    [(_name_of(n), {"ssh_hostname": _address_of(n)}) for n in range(1, _count + 1)],
    {
        "ssh_user": "root",
        "ssh_key": str(_lab.ssh_key),
        "ssh_known_hosts_file": str(Path(os.environ["RACKPIN_BENCH_DIR"]) / "known_hosts"),
    },
)
