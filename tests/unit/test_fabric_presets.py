"""The lab's simulated servers: what is derived from their PCI trees agrees with their topo -m."""

from __future__ import annotations

import pytest

from rackpin.fabric.model import Fabric, Gpu, Hca, Port
from rackpin.fabric.settings import derive
from rackpin.lab.hardware import presets
from rackpin.lab.hardware.model import Nic, Slot
from rackpin.lab.hardware.smi_topo import matrix
from rackpin.parse.topo import read


def chain(slot: Slot) -> tuple[str, ...]:
    """Host bridge, root port and switch by their names, the switch's downstream port, itself."""
    bridge, switch, port = slot.path.split("/")
    return (f"pci:{bridge}", f"{bridge}:{switch}", switch, f"{switch}:{port}:{slot.bus}", slot.bus)


def adapter(nic: Nic) -> Hca:
    state, physical = nic.state.upper(), nic.physical
    port = Port(1, state, physical, nic.rate, nic.link_layer, sm_lid=1)
    return Hca(nic.slot.bus, chain(nic.slot), nic.slot.numa, nic.device, ports=(port,))


@pytest.mark.parametrize("name", presets.names())
def test_the_list_is_the_nearest_of_topo(name: str) -> None:
    node = presets.node("gpu001", name)
    fabric = Fabric(
        gpus=tuple(Gpu(g.slot.bus, chain(g.slot), g.slot.numa) for g in node.gpus),
        hcas=tuple(adapter(nic) for nic in node.nics),
    )
    values = derive(fabric, "eth0", ["2.19.3"]).values
    if not node.nics:
        assert values == {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=eth0"}
        return
    listed = set(values["NCCL_IB_HCA"].removeprefix("=").split(","))
    topo = read(matrix(node).text())
    device = {nic.name: nic.device for nic in topo.nics}
    nearest = [(c.link, {device[nic] for nic in c.nics}) for c in topo.closest_nics]
    assert nearest
    assert all(nics <= listed for _, nics in nearest)
    # NCCL counts host bridges of one CPU as equally far, topo tells PHB and NODE apart.
    if all(link in ("PIX", "PXB") for link, _ in nearest):
        assert listed == set.union(*(nics for _, nics in nearest))
