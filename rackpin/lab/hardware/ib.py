"""InfiniBand tools: ibstat, ibstatus, ibv_devinfo, ibv_devices, ibdev2netdev, rdma, show_gids."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.lab.hardware.model import Nic, Node
from rackpin.lab.hardware.parts import Answer

# what the rate is called: rate in Gb/s → width and speed (IBTA)
SPEEDS = {10: "4X SDR", 100: "4X EDR", 200: "4X HDR", 400: "4X NDR"}
DOWN_RATE = 10  # a port that isn't linked shows the lowest rate
PART_IDS = {"MT4129": 4129, "MT4123": 4123}
CAPABILITIES = {400: "0xa751e848", 200: "0xa651e848"}  # of InfiniBand ports, by rate
NO_CAPABILITIES = "0x00010000"


def rate(nic: Nic) -> int:
    return nic.rate if nic.state == "Active" else DOWN_RATE


def subnet_lid(nic: Nic) -> int:
    """LID of the subnet manager, 0 on Ethernet."""
    return 1 if nic.link_layer == "InfiniBand" else 0


def port_guid(nic: Nic) -> int:
    """On Ethernet the port's GUID is made of its MAC: 02 added, fffe in the middle."""
    if nic.link_layer == "InfiniBand":
        return nic.guid
    return (nic.guid >> 40 ^ 0x020000) << 40 | 0xFFFE << 24 | (nic.guid & 0xFFFFFF)


def gid(nic: Nic) -> str:
    """The port's first GID: link-local prefix and its GUID."""
    return f"fe80:0000:0000:0000:{grouped(port_guid(nic))}"


def grouped(guid: int) -> str:
    """A GUID as sysfs writes it."""
    text = f"{guid:016x}"
    return ":".join(text[i : i + 4] for i in range(0, 16, 4))


def _port(nic: Nic) -> list[str]:
    infiniband = nic.link_layer == "InfiniBand"
    capability = CAPABILITIES[nic.rate] if infiniband else NO_CAPABILITIES
    return [
        f"State: {nic.state}",
        f"Physical state: {nic.physical}",
        f"Rate: {rate(nic)}",
        f"Base lid: {nic.lid}",
        "LMC: 0",
        f"SM lid: {subnet_lid(nic) if nic.state == 'Active' else 0}",
        f"Capability mask: {capability}",
        f"Port GUID: 0x{port_guid(nic):016x}",
        f"Link layer: {nic.link_layer}",
    ]


def _ca(nic: Nic) -> str:
    lines = [
        f"CA '{nic.device}'",
        f"\tCA type: {nic.ca_type}",
        "\tNumber of ports: 1",
        f"\tFirmware version: {nic.firmware}",
        "\tHardware version: 0",
        f"\tNode GUID: 0x{nic.guid:016x}",
        f"\tSystem image GUID: 0x{nic.guid:016x}",
        "\tPort 1:",
        *(f"\t\t{line}" for line in _port(nic)),
    ]
    return "\n".join(lines) + "\n"


def ibstat(node: Node, argv: Sequence[str]) -> Answer:
    """``ibstat``, ``-l``, ``-p``, ``CA``, ``CA PORT``."""
    if not node.nics:
        return Answer("", "ibpanic: [4242] main: no IB devices found\n", 255)
    match list(argv):
        case []:
            return Answer("".join(map(_ca, node.nics)), "", 0)
        case ["-l"]:
            return Answer("".join(f"{nic.device}\n" for nic in node.nics), "", 0)
        case ["-p"]:
            return Answer("".join(f"0x{port_guid(nic):016x}\n" for nic in node.nics), "", 0)
        case [name, *port]:
            for nic in node.nics:
                if nic.device == name and port in ([], ["1"]):
                    lines = [f"CA: '{name}'", "Port 1:", *_port(nic)]
                    return Answer(_ca(nic) if not port else "\n".join(lines) + "\n", "", 0)
    why = f"stat of IB device '{' '.join(argv)}' failed: No such file or directory"
    return Answer("", f"ibpanic: [4242] main: {why}\n", 255)


def ibstatus(node: Node, _argv: Sequence[str]) -> Answer:
    """``ibstatus``: what sysfs says, port by port."""
    out = []
    for nic in node.nics:
        state = "4: ACTIVE" if nic.state == "Active" else "1: DOWN"
        physical = {"LinkUp": "5: LinkUp", "Polling": "2: Polling", "Disabled": "3: Disabled"}
        out.append(
            f"Infiniband device '{nic.device}' port 1 status:\n"
            f"\tdefault gid:\t {gid(nic)}\n\tbase lid:\t 0x{nic.lid:x}\n"
            f"\tsm lid:\t\t 0x{subnet_lid(nic):x}\n\tstate:\t\t {state}\n"
            f"\tphys state:\t {physical[nic.physical]}\n"
            f"\trate:\t\t {rate(nic)} Gb/sec ({SPEEDS[rate(nic)]})\n"
            f"\tlink_layer:\t {nic.link_layer}\n\n"
        )
    if not out:
        return Answer("", "Fatal error:  No device found\n", 1)
    return Answer("".join(out), "", 0)


def ibv_devices(node: Node, _argv: Sequence[str]) -> Answer:
    lines = [f"    {nic.device:<16}\t{nic.guid:016x}\n" for nic in node.nics]
    head = "    device          \t   node GUID\n    ------          \t----------------\n"
    return Answer(head + "".join(lines), "", 0)


def ibv_devinfo(node: Node, argv: Sequence[str]) -> Answer:
    """``ibv_devinfo``, ``-d DEVICE``, ``-l``."""
    if not node.nics:
        return Answer("", "No IB devices found\n", 255)
    if list(argv) == ["-l"]:
        names = "".join(f"\t{nic.device}\n" for nic in node.nics)
        count = len(node.nics)
        return Answer(f"{count} HCA{'s' if count > 1 else ''} found:\n{names}\n", "", 0)
    wanted = argv[1] if len(argv) == 2 and argv[0] == "-d" else None
    chosen = [nic for nic in node.nics if wanted in (None, nic.device)]
    if not chosen:
        return Answer("", f"IB device '{wanted}' wasn't found\n", 255)
    return Answer("".join(map(_devinfo, chosen)), "", 0)


def _devinfo(nic: Nic) -> str:
    active = nic.state == "Active"
    device = {
        "transport:\t\t\t": "InfiniBand (0)",
        "fw_ver:\t\t\t\t": nic.firmware,
        "node_guid:\t\t\t": grouped(nic.guid),
        "sys_image_guid:\t\t\t": grouped(nic.guid),
        "vendor_id:\t\t\t": "0x02c9",
        "vendor_part_id:\t\t\t": str(PART_IDS[nic.ca_type]),
        "hw_ver:\t\t\t\t": "0x0",
        "board_id:\t\t\t": nic.board_id,
        "phys_port_cnt:\t\t\t": "1",
    }
    ethernet = nic.link_layer == "Ethernet"
    mtu = "1024 (3)" if ethernet or not active else "4096 (5)"
    port = {
        "state:\t\t\t": "PORT_ACTIVE (4)" if active else "PORT_DOWN (1)",
        "max_mtu:\t\t": "4096 (5)",
        "active_mtu:\t\t": mtu,
        "sm_lid:\t\t\t": str(subnet_lid(nic) if active else 0),
        "port_lid:\t\t": str(nic.lid),
        "port_lmc:\t\t": "0x00",
        "link_layer:\t\t": nic.link_layer,
    }
    lines = [f"hca_id:\t{nic.device}", *(f"\t{key}{value}" for key, value in device.items())]
    lines += ["\t\tport:\t1", *(f"\t\t\t{key}{value}" for key, value in port.items())]
    return "\n".join(lines) + "\n\n"


def ibdev2netdev(node: Node, _argv: Sequence[str]) -> Answer:
    out = ""
    for nic in node.nics:
        state = "Up" if nic.state == "Active" else "Down"
        out += f"{nic.device} port 1 ==> {nic.netdev} ({state})\n"
    return Answer(out, "", 0)


def rdma(node: Node, argv: Sequence[str]) -> Answer:
    """``rdma link`` and ``rdma link show``."""
    if list(argv) not in (["link"], ["link", "show"]):
        return Answer("", f"Unknown command '{' '.join(argv)}'\n", 1)
    out = ""
    for nic in node.nics:
        state = "ACTIVE" if nic.state == "Active" else "DOWN"
        physical = {"LinkUp": "LINK_UP", "Polling": "POLLING", "Disabled": "DISABLED"}[nic.physical]
        if nic.link_layer == "InfiniBand":
            lids = (
                f"subnet_prefix fe80:0000:0000:0000 lid {nic.lid} sm_lid {subnet_lid(nic)} lmc 0 "
            )
            out += f"link {nic.device}/1 {lids}state {state} physical_state {physical} \n"
        else:
            tail = f"state {state} physical_state {physical} netdev {nic.netdev} "
            out += f"link {nic.device}/1 {tail}\n"
    return Answer(out, "", 0)


def show_gids(node: Node, _argv: Sequence[str]) -> Answer:
    out = "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n"
    out += "---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
    count = 0
    for nic in node.nics:
        versions = ("v1", "v2") if nic.link_layer == "Ethernet" else ("v1",)
        netdev = nic.netdev if nic.link_layer == "Ethernet" else ""
        for index, version in enumerate(versions):
            out += f"{nic.device}\t1\t{index}\t{gid(nic)}\t\t\t{version}\t{netdev}\n"
            count += 1
    return Answer(f"{out}n_gids_found={count}\n", "", 0)


TOOLS = {
    "ibstat": ibstat,
    "ibstatus": ibstatus,
    "ibv_devices": ibv_devices,
    "ibv_devinfo": ibv_devinfo,
    "ibdev2netdev": ibdev2netdev,
    "rdma": rdma,
    "show_gids": show_gids,
}


def argvs(node: Node) -> list[tuple[str, list[str]]]:
    """Every call the programs on a host know the answer to."""
    devices = [nic.device for nic in node.nics]
    calls: list[tuple[str, list[str]]] = [(tool, []) for tool in TOOLS if tool != "rdma"]
    calls += [("rdma", ["link"]), ("rdma", ["link", "show"])]
    calls += [("ibstat", words) for words in (["-l"], ["-p"])] + [("ibv_devinfo", ["-l"])]
    for name in devices:
        calls += [("ibstat", [name]), ("ibstat", [name, "1"]), ("ibv_devinfo", ["-d", name])]
    return calls
