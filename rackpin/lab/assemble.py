"""From a description and addresses to a lab's state, its keys, and one booted host."""

from __future__ import annotations

from pathlib import Path

from rackpin.lab import host, network, seed
from rackpin.lab.description import LabDescription
from rackpin.lab.errors import LabError
from rackpin.lab.hardware import place
from rackpin.lab.state import HostState, LabState, control_boot_id
from rackpin.lab.supervisor import write_atomically


def plan(
    description: LabDescription, name: str, directory: Path, base: Path, net: network.Addresses
) -> LabState:
    """The state the lab is to have; nothing is made yet."""
    hosts = [
        HostState(
            name=h.name,
            address=net.host(i),
            fabric_address=net.fabric_host(i) if h.nics == 2 else None,
            groups=list(h.groups),
            sku=h.sku,
            hardware=h.hardware,
            faults=h.faults,
            data=h.data,
            machine=f"{name}-{h.name}",
            directory=directory / "hosts" / h.name,
        )
        for i, h in enumerate(description.hosts)
    ]
    return LabState(
        name=name,
        state="up",
        directory=directory,
        base=base,
        bridge=net.bridge,
        subnet=str(net.subnet),
        control_address=net.control,
        fabric_bridge=net.fabric_bridge,
        fabric_subnet=str(net.fabric_subnet),
        nameservers=[str(server) for server in description.nameservers],
        hosts=hosts,
        control_boot_id=control_boot_id(),
    )


def make_keys(lab: LabState) -> None:
    """The lab's ssh key, a host key per host, known_hosts; keys that are there are kept."""
    seed.key_pair(lab.ssh_key, f"rackpin-lab-{lab.name}")
    lines = []
    for one in lab.hosts:
        key = host_key(lab, one)
        seed.key_pair(key, one.name)
        kind, public = key.with_suffix(".pub").read_text().split()[:2]
        lines.append(f"{one.name},{one.address} {kind} {public}\n")
    write_atomically(lab.known_hosts, "".join(lines))


def host_key(lab: LabState, one: HostState) -> Path:
    """Outside the host's disk, so that it outlives a reset."""
    return lab.directory / "hostkeys" / one.name


def forget_host_key(lab: LabState, one: HostState) -> None:
    for path in (host_key(lab, one), host_key(lab, one).with_suffix(".pub")):
        path.unlink(missing_ok=True)


def boot(lab: LabState, one: HostState) -> bool:
    """Boot a host that is off, from its disk or, when it has none, fresh (then True)."""
    host.clean_up(one)  # also the rest of a host whose supervisor was killed
    record = host.base_record(one)
    fresh = not record.exists()
    if fresh:
        host.delete_disk(one)  # one that was not finished
    root = host.mount(one, lab.base if fresh else _recorded_base(one, record))
    if fresh:
        seed.fresh_host(root, one.name, seed.resolv_conf(lab.nameservers))
    seed.addresses(root, one.address, lab.control_address, one.fabric_address)
    seed.access(root, lab.ssh_key, host_key(lab, one))
    if fresh:
        place.forget_faults(one)
    place.put(root, one)
    if fresh:
        write_atomically(record, f"{lab.base}\n")
    index = [h.name for h in lab.hosts].index(one.name)
    port = (network.fabric_port_name(lab.name, index), lab.fabric_bridge)
    host.boot(one, lab.bridge, port if one.fabric_address else ())
    return fresh


def _recorded_base(one: HostState, record: Path) -> Path:
    """The base a disk was made over; a changed description counts from the host's next reset."""
    base = Path(record.read_text().strip())
    if not base.is_dir():
        raise LabError(
            f"{one.name}: the base of its disk, {base}, is gone: "
            "`rackpin lab down --purge` deletes all disks, then `rackpin lab up` makes fresh hosts"
        )
    return base
