"""``lspci`` with -n, -nn, -v, -vv, -vvv, -k, -D, -s and -d."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from getopt import GetoptError, getopt

from rackpin.lab.hardware import pci
from rackpin.lab.hardware.model import Node, Pcie
from rackpin.lab.hardware.parts import Answer

GT_PER_S = {3: "8GT/s", 4: "16GT/s", 5: "32GT/s"}
SLOWEST = "2.5GT/s"
USAGE = "lspci: invalid option; see `lspci --help'.\n"
ACS_ON = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
ACS_OFF = "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
HOST_BRIDGE = "0600"
CLASSES = {
    "0200": "Ethernet controller",
    "0207": "Infiniband controller",
    "0300": "VGA compatible controller",
    "0302": "3D controller",
    "0600": "Host bridge",
    "0604": "PCI bridge",
    "0680": "Bridge",
}
VENDORS = {
    "8086": "Intel Corporation",
    "10de": "NVIDIA Corporation",
    "15b3": "Mellanox Technologies",
}


@dataclass(frozen=True)
class Device:
    """One function on the bus. ``link``: what it can and what it came up with, None for none."""

    bus: str
    kind: str
    vendor: str
    device: str
    name: str
    revision: str
    numa: int
    link: tuple[Pcie, int] | None = None
    subsystem: str = ""
    driver: str = ""
    modules: str = ""
    memory: str = ""
    port: str = ""  # of bridges: which kind
    acs: bool = False  # of ports: traffic between devices goes by the CPU
    asleep: bool = False  # the link is at its slowest speed while there is nothing to do
    alive: bool = True

    def head(self, names: str, domain: bool) -> str:
        """The first line. ``names``: "" for names, "n" for numbers, "nn" for both."""
        where = self.bus if domain else self.bus.removeprefix("0000:")
        pair = f"{self.vendor}:{self.device}"
        revision = "ff" if not self.alive else self.revision
        tail = f" (rev {revision})" if revision else ""
        if names == "n":
            return f"{where} {self.kind}: {pair}{tail}"
        kind, name = CLASSES[self.kind], f"{VENDORS[self.vendor]} {self.name}"
        if names == "nn":
            name = name.removesuffix(f" {self.device}")  # a device without a name of its own
            return f"{where} {kind} [{self.kind}]: {name} [{pair}]{tail}"
        return f"{where} {kind}: {name}{tail}"

    def detail(self, level: str) -> list[str]:
        """The lines below: ``level`` is "", "k" (drivers), "v" or "vv"."""
        drivers = [f"\tKernel driver in use: {self.driver}"] if self.driver else []
        drivers += [f"\tKernel modules: {self.modules}"] if self.modules else []
        subsystem = []
        if self.subsystem:
            vendor, number = self.subsystem.split(":")
            subsystem = [f"\tSubsystem: {VENDORS.get(vendor, vendor)} Device {number}"]
        if not level:
            return []
        if level == "k":
            return [*subsystem, *drivers]
        if not self.alive:
            return [*subsystem, "\t!!! Unknown header type 7f", *drivers]
        return [*subsystem, *(self._verbose() if level == "vv" else self._brief()), *drivers]

    def _brief(self) -> list[str]:
        lines = [f"\tFlags: bus master, fast devsel, latency 0, NUMA node {self.numa}"]
        lines += [f"\tMemory at 210000000000 (64-bit, prefetchable) [size={self.memory}]"] * bool(
            self.memory
        )
        return [*lines, "\tCapabilities: <access denied>"] if self.link else lines

    def _verbose(self) -> list[str]:
        lines = [
            "\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- "
            "SERR- FastB2B- DisINTx+",
            "\tStatus: Cap+ 66MHz- UDF- FastB2B- ParErr- DEVSEL=fast >TAbort- <TAbort- <MAbort- "
            ">SERR- <PERR- INTx-",
            "\tLatency: 0",
            f"\tNUMA node: {self.numa}",
        ]
        if self.memory:
            region = f"(64-bit, prefetchable) [size={self.memory}]"
            lines.append(f"\tRegion 2: Memory at 210000000000 {region}")
        return lines + (self._express() if self.link else [])

    def _express(self) -> list[str]:
        assert self.link is not None
        able, width = self.link
        kind = self.port or "Endpoint"
        speed = GT_PER_S[able.generation]
        now = f"{SLOWEST} (downgraded)" if self.asleep else f"{speed} (ok)"
        narrow = "ok" if width == able.width else "downgraded"
        lines = [
            f"\tCapabilities: [60] Express (v2) {kind}, MSI 00",
            "\t\tDevCap:\tMaxPayload 256 bytes, PhantFunc 0",
            "\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq+",
            "\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop-",
            "\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes",
            f"\t\tLnkCap:\tPort #0, Speed {speed}, Width x{able.width}, ASPM not supported",
            "\t\tLnkCtl:\tASPM Disabled; RCB 64 bytes, Disabled- CommClk-",
            f"\t\tLnkSta:\tSpeed {now}, Width x{width} ({narrow})",
            "\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-",
        ]
        if self.port in (pci.ROOT, pci.DOWNSTREAM):
            lines += [
                "\tCapabilities: [148 v1] Access Control Services",
                "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- "
                "DirectTrans-",
                f"\t\tACSCtl:\t{ACS_ON if self.acs else ACS_OFF}",
            ]
        return lines


def devices(node: Node) -> list[Device]:
    """Everything on the bus, in order: a host bridge, ports, NVSwitches, cards, NICs."""
    name = "Ice Lake Memory Map/VT-d"
    found = [Device("0000:00:00.0", HOST_BRIDGE, "8086", "09a2", name, "20", 0)]
    ends = [*_cards(node), *_switches(node), *_nics(node)]
    chains = pci.chains(node.preset)
    ports: dict[str, Device] = {}
    for one in ends:
        bridges = pci.kinds(chains[one.bus])
        for bus, kind in bridges.items():
            nearest = bus == list(bridges)[-1]  # the other end of the device's own link
            ports.setdefault(bus, _port(node, one, bus, kind, nearest))
    return sorted([*found, *ends, *ports.values()], key=lambda one: one.bus)


def _cards(node: Node) -> list[Device]:
    card = node.card
    driver = "nouveau" if node.nouveau else "nvidia" if node.driver else ""
    modules = "nvidiafb, nouveau" + (", nvidia_drm, nvidia" if node.driver else "")
    return [
        Device(
            *(gpu.slot.bus, card.pci_class, "10de", card.device_id, card.pci_name, "a1"),
            numa=gpu.slot.numa,
            link=(card.pcie, gpu.width),
            subsystem=card.subsystem,
            driver=driver,
            modules=modules,
            memory=f"{card.bar1 // 1024}G" if card.bar1 >= 1024 else f"{card.bar1}M",
            asleep=node.asleep(gpu),
            alive=gpu.on_bus,
        )
        for gpu in node.gpus
    ]


def _switches(node: Node) -> list[Device]:
    number = node.preset.nvswitch_id
    driver = "nvidia-nvswitch" if node.loaded else ""
    return [
        Device(bus, "0680", "10de", number, f"Device {number}", "a1", 0, driver=driver)
        for bus in node.preset.nvswitches
        if bus not in node.absent
    ]


def _nics(node: Node) -> list[Device]:
    return [
        Device(
            nic.slot.bus,
            "0207" if nic.link_layer == "InfiniBand" else "0200",
            *("15b3", nic.device_id, nic.pci_name, ""),
            numa=nic.slot.numa,
            link=(nic.pcie, nic.pcie.width),
            subsystem=f"15b3:{nic.board_id[-4:]}",
            driver="mlx5_core",
            modules="mlx5_core",
            memory="32M",
        )
        for nic in node.nics
    ]


def _port(node: Node, below: Device, bus: str, kind: str, nearest: bool) -> Device:
    """A bridge above a device; the nearest has the same link."""
    words = (bus, "0604", "8086", "347a", "Device 347a", "06", below.numa)
    link = below.link
    if link and not nearest:
        link = (link[0], link[0].width)
    asleep = below.asleep and nearest
    return Device(*words, link=link, driver="pcieport", port=kind, acs=node.acs, asleep=asleep)


@dataclass(frozen=True)
class Asked:
    names: str = ""
    level: str = ""
    domain: bool = False
    slot: str = ""
    ids: str = ""


def asked(argv: Sequence[str]) -> Asked | None:
    """The options, also several in one word (-nnvv); None for one that isn't known."""
    try:
        options, rest = getopt(list(argv), "nvkDs:d:")
    except GetoptError:
        return None
    if rest:
        return None
    given = [name for name, _ in options]
    picked = dict(options)
    verbose = given.count("-v")
    return Asked(
        names="n" * min(2, given.count("-n")),
        level="vv" if verbose > 1 else "v" if verbose else "k" if "-k" in given else "",
        domain="-D" in given,
        slot=picked.get("-s", ""),
        ids=picked.get("-d", ""),
    )


def answer(node: Node, argv: Sequence[str]) -> Answer:
    """What ``lspci ARGV`` prints."""
    wish = asked(argv)
    if wish is None:
        return Answer("", USAGE, 1)
    out = []
    for one in devices(node):
        if not (_at(one, wish.slot) and _of(one, wish.ids)):
            continue
        out += [one.head(wish.names, wish.domain), *one.detail(wish.level)]
        out += [""] if wish.level in ("v", "vv") else []
    return Answer("".join(f"{line}\n" for line in out), "", 0)


def _at(one: Device, slot: str) -> bool:
    return not slot or one.bus in (slot, f"0000:{slot}", f"{slot}.0", f"0000:{slot}.0")


def _of(one: Device, ids: str) -> bool:
    vendor, _, device = ids.lower().partition(":")
    return (not vendor or vendor == one.vendor) and (not device or device == one.device)
