"""How Open MPI is called to bring the ranks together; it carries none of the data."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from rackpin.verify.launch import Session


def subnet(addresses: Sequence[str]) -> str | None:
    """The smallest network that holds all: which interface MPI takes. None for other than IPv4."""
    parsed = [ipaddress.ip_address(address) for address in addresses]
    if any(one.version != 4 for one in parsed):
        return None
    numbers = [int(one) for one in parsed]
    differ = min(numbers) ^ max(numbers)
    network = ipaddress.ip_network((min(numbers), 32 - differ.bit_length()), strict=False)
    return str(network)


def mpirun(session: Session, nodes: Sequence[str]) -> str:
    """The command line before the program: one process a node, the first node launches."""
    addresses = [session.addresses[node] for node in nodes]
    settings = {
        "plm": "rsh",
        "plm_rsh_agent": f"'{session.agent}'",
        "plm_rsh_no_tree_spawn": "1",  # only the launcher may log in to the others
        "orte_tmpdir_base": session.directory,
        "pml": "ob1",  # MPI only brings the ranks together; the data go by NCCL
        "btl": "tcp,self",
        "coll": "^hcoll",
    }
    if network := subnet(addresses):
        settings |= {"oob_tcp_if_include": network, "btl_tcp_if_include": network}
    words = " ".join(f"--mca {name} {value}" for name, value in settings.items())
    hosts = ",".join(f"{address}:1" for address in addresses)
    return (
        f"mpirun --allow-run-as-root -np {len(nodes)} --host {hosts} --map-by ppr:1:node "
        f"--bind-to none {words}"
    )
