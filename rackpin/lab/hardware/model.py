"""What lab/hardware/NAME.yaml may say, and the node that comes of it: plain data, no text of tools.

A preset describes one kind of server. :func:`rackpin.lab.hardware.presets.node` makes a
:class:`Node` of it: cards and NICs with serial numbers of their own, faults applied.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

BUS = r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pcie(Part):
    generation: Literal[3, 4, 5]
    width: Literal[1, 4, 8, 16]


class NvLink(Part):
    """``links`` of one card, ``gbps`` of one link (GB/s), and which cards are joined."""

    links: int = Field(ge=1)
    gbps: str  # as nvidia-smi prints it: 25, 26.562
    groups: list[list[int]]  # slots whose cards see each other, e.g. [[0, 1], [2, 3]]
    switched: bool  # through NVSwitches, which need fabric manager


class Card(Part):
    """One model of GPU; memory in MiB, power in W, clocks in MHz, temperatures in °C."""

    name: str
    brand: str
    architecture: Literal["Ampere", "Ada Lovelace", "Hopper"]
    compute_capability: str
    pci_name: str  # what pci.ids calls it
    pci_class: Literal["0300", "0302"]
    device_id: str = Field(pattern=r"^[0-9a-f]{4}$")
    subsystem: str = Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")
    memory: int
    reserved: int
    bar1: int
    vbios: str
    board_part: str | None
    gpu_part: str
    inforom_image: str
    inforom_oem: str
    inforom_ecc: str
    power_idle: float
    power_limit: float
    power_min: float
    clock_idle: int
    clock_graphics: int
    clock_memory: int
    clock_video: int
    temperature: int
    fan: int | None = None  # percent; None: cooled by the server's fans
    ecc: bool
    mig: bool  # can MIG be switched on at all
    remap_banks: int
    serial: bool  # does nvidia-smi know its serial number
    pcie: Pcie


class Slot(Part):
    """Where a card or NIC sits. ``path``: host bridge/switch/port, for how near two things are."""

    bus: str = Field(pattern=BUS)
    numa: int = Field(ge=0)
    path: str = Field(pattern=r"^[a-z0-9]+/[a-z0-9]+/[a-z0-9]+$")


class Nic(Part):
    """A Mellanox port as ibstat and lspci show it; ``rate`` in Gb/s."""

    device: str
    netdev: str
    slot: Slot
    ca_type: str
    pci_name: str
    device_id: str = Field(pattern=r"^[0-9a-f]{4}$")
    board_id: str
    firmware: str
    rate: int
    pcie: Pcie
    link_layer: Literal["InfiniBand", "Ethernet"] = "InfiniBand"
    state: Literal["Active", "Down"] = "Active"
    physical: Literal["LinkUp", "Polling", "Disabled"] = "LinkUp"
    guid: int = 0
    lid: int = 0
    counters: dict[str, int] = Field(default_factory=dict)  # errors of the port that are not 0


class Collective(Part):
    """How all_reduce_perf fares here: GB/s of bus bandwidth by number of ranks.

    ``nvlink`` counts when all ranks are in one NVLink group, ``pcie`` when not, ``network`` when
    they are on several nodes. ``half``: bytes at which half of it is reached. ``latency``: µs.
    """

    nvlink: dict[int, float] = Field(default_factory=dict)
    ring: float | None = None  # the same without NVLS
    pcie: float | None = None
    network: float
    half: int
    latency: float
    source: str


class Preset(Part):
    """One file of lab/hardware/."""

    name: str
    title: str
    driver: str  # shown once a driver is installed
    nccl_tests: Literal["2.13.9", "2.19.6"] = "2.13.9"
    nccl: str = "2.19.3"
    card: Card
    slots: list[Slot] = Field(min_length=1)
    nvlink: NvLink | None = None
    nvswitches: list[str] = Field(default_factory=list)
    nvswitch_id: str = "22a3"
    nics: list[Nic] = Field(default_factory=list)
    cpus: list[str]  # of each NUMA node, as topo -m prints them
    collective: Collective
    faults: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def consistent(self) -> Preset:
        buses = [slot.bus for slot in self.slots] + [nic.slot.bus for nic in self.nics]
        double = sorted({bus for bus in buses if buses.count(bus) > 1})
        if double:
            raise ValueError(f"two devices at {', '.join(double)}")
        if any(slot.numa >= len(self.cpus) for slot in self.slots):
            raise ValueError("a slot's numa has no entry in cpus")
        return self


class Gpu(Part):
    """One card in its slot, with what faults do to it. ``minor``: N of /dev/nvidiaN."""

    slot: Slot
    minor: int
    uuid: str
    serial: str
    fabric_id: str
    vbios: str
    width: int
    ecc: bool
    mig: bool = False
    remap_pending: bool = False
    remapped: int = 0
    hot: bool = False
    links_down: frozenset[int] = frozenset()
    handle: Literal["", "lost", "unknown"] = ""  # why nvidia-smi can't open it
    on_bus: bool = True  # lspci still reads its registers


class Node(Part):
    """A node as its tools see it."""

    name: str
    preset: Preset
    driver: str | None  # version of the module that is loaded, and of nvidia-smi
    cuda: str
    library: str | None  # version of the libraries, when it isn't the driver's
    nouveau: bool = False
    hang: bool = False  # nvidia-smi never answers
    gpus: list[Gpu]
    nics: list[Nic]
    fabric: Literal["none", "running", "off", "mismatch"]
    fabric_version: str | None = None
    local_factor: float = 1.0  # of bus bandwidth
    network_factor: float = 1.0
    sockets: bool = False  # NCCL finds no HCA that it can use
    gdr: bool = True  # NCCL uses GPUDirect RDMA
    rank_hang: bool = False  # all_reduce_perf never ends
    wrong: int = 0  # elements that all_reduce_perf finds wrong
    kernel_log: list[tuple[float, str]] = Field(default_factory=list)  # seconds, line
    absent: list[str] = Field(default_factory=list)  # buses of described devices that aren't there
    acs: bool = False  # on, on every port that can redirect
    iommu_translates: bool = False
    secure_boot: bool = False
    # What booted (uname -r). Given, kernel and modules follow from the host's disk from then on.
    kernel: str | None = None

    @property
    def card(self) -> Card:
        return self.preset.card

    def asleep(self, gpu: Gpu) -> bool:
        """Ada cards without work go to P8, their link to its slowest speed: that is no fault."""
        return self.loaded and self.card.architecture == "Ada Lovelace" and not gpu.hot

    @property
    def loaded(self) -> bool:
        """Is the NVIDIA module loaded and usable by nvidia-smi?"""
        return self.driver is not None and not self.nouveau

    @property
    def major(self) -> int:
        found = re.match(r"\d+", self.driver or "")
        return int(found.group()) if found else 0

    @property
    def card_links(self) -> int:
        """NVLinks of one card, 0 without NVLink."""
        return self.preset.nvlink.links if self.preset.nvlink else 0

    @property
    def cuda_works(self) -> bool:
        return self.loaded and self.library is None and self.fabric in ("none", "running")

    def joined(self, one: int, other: int) -> int:
        """NVLinks between two of the cards that are there (indices as nvidia-smi counts)."""
        link = self.preset.nvlink
        if link is None:
            return 0
        pair = {self.gpus[one].minor, self.gpus[other].minor}
        if not any(pair <= set(group) for group in link.groups):
            return 0
        down = max(len(self.gpus[i].links_down) for i in (one, other))
        return link.links - down
