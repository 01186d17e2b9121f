"""What a healthy bare-metal host answers to the scripts about itself; tests change one section."""

from __future__ import annotations

import json

from rackpin.checks.base import Output
from rackpin.checks.fabric_counters import ONLY_WARN, THRESHOLDS
from rackpin.lab.hardware.model import Nic, Node, Slot
from tests.unit import driver_samples

KERNEL = "6.5.0-45-generic"
METAL = "container=none\nvm=none"
CONTAINER = "container=lxc\nvm=kvm"
MACHINE = "container=none\nvm=kvm"
BOOT = "[    0.000000] Linux version 6.5.0-45-generic"
GRUB = "c2V0IGRlZmF1bHQ9IjAiCm1lbnVlbnRyeSAnVWJ1bnR1JyB7CglsaW51eAkvYm9vdC92bWxpbnV6LTYuNS4wLTQ1LWdlbmVyaWMgcm9vdD1VVUlEPTEgcm8KfQo="  # noqa: E501 - driver_samples.GRUB in base64
SERVICE = "Id={}.service\nLoadState={}\nActiveState={}\nSubState=x\nResult={}\nUnitFileState={}\n"


def service(
    name: str, load: str = "loaded", active: str = "active", result: str = "success",
    file: str = "enabled", condition: str = "yes",
) -> str:  # fmt: skip
    """One block of ``systemctl show``."""
    return SERVICE.format(name, load, active, result, file) + f"ConditionResult={condition}\n"


SERVICES = "\n".join(
    [
        service("nvidia-persistenced"),
        service("chrony"),
        service("docker", "not-found", "inactive", file=""),
        service("systemd-modules-load", file="static"),
    ]
)
STATE = {
    "place": METAL,
    "cmdline": "BOOT_IMAGE=/boot/vmlinuz-6.5.0-45-generic root=UUID=1 ro iommu=pt",
    "kernels": f"running {KERNEL}\nvmlinuz-{KERNEL}\ninitrd.img-{KERNEL}\nmodules {KERNEL}",
    "grub": GRUB,
    "grubenv": "",
    "reboot": "no",
    "cpu": "present 0-191\nonline 0-191\n    192 microcode : 0x2b0004d0\n"
    "    192 model name : Intel(R) Xeon(R) Platinum 8468",
    "governor": "    192 performance",
    "numa": "node0 1056510000\nnode1 1056940000",
    "memory": "MemTotal:       2113450000 kB\nMemFree:        1800000000 kB\n"
    "MemAvailable:   2000000000 kB\nHardwareCorrupted:     0 kB",
    "edac": "mc0 ce=0 ue=0\nmc1 ce=2 ue=0",
    "mounts": "/ ext4 rw,relatime,errors=remount-ro\n/opt xfs rw,noatime",
    "shm": "tmpfs          1056725000     0 1056725000       0% /dev/shm",
    "bios": "sys_vendor=Acme\nproduct_name=X8\nboard_name=B1\nboard_version=2\nbios_version=1.4",
    "nvme": "nvme0|live|Acme PM9 |GDC5\nnvme1|live|Acme PM9 |GDC5",
    "scsi": "sda|running|Acme S4|XC31",
    "services": SERVICES,
    "synchronized": "NTPSynchronized=yes",
    "chrony": "^,*,10.0.0.1,2,6,377,12,0.00001,0.00002,0.0003",
    "timesyncd": "",
    "dpkg": "",
    "plugins": "libnccl-net.so",
}
LOG = {
    "place": METAL,
    "time": "1800000000\n86400.10",
    "dmesg": "",
    "dmesg status": f"0\n{BOOT}",
    "journal": "",
    "journal status": "",
}
NET = {
    "place": METAL,
    "interface": "host0",
    "addresses": "10.0.0.11/24",
    "link": "operstate=up\nmtu=9000\nspeed=100000\nduplex=full\ncarrier_changes=1\n"
    "driver=mlx5_core",
    "errors": "rx_crc_errors=0\nrx_errors=0\ntx_errors=0",
    "modes": "100000baseCR4/Full\n25000baseCR/Full",
    "others": "host0 up 100000 9000\neno2 down -1 1500",
}
SMART = (
    "SMART overall-health self-assessment test result: PASSED\nCritical Warning: 0x00\n"
    "Available Spare: 100%\nPercentage Used: 3%\nMedia and Data Integrity Errors: 0"
)
DISKS = {
    "place": METAL,
    "drives": "/dev/nvme0n1\n/dev/nvme1n1",
    "tool": "/usr/sbin/smartctl",
    "smart": f"drive /dev/nvme0n1\n{SMART}\ndrive /dev/nvme1n1\n{SMART}",
}
BOX = {"ShmSize": 68719476736, "IpcMode": "private", "DeviceRequests": [{"Count": -1}],
       "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}]}  # fmt: skip
DOCKER = {
    "place": METAL,
    "docker": "/usr/bin/docker",
    "info": '{"nvidia":{"path":"nvidia-container-runtime"},"runc":{"path":"runc"}}\nstatus 0',
    "containers": f"/engine|{json.dumps(BOX)}\nstatus 0",
    "toolkit": "ii  1.19.1-1",
}
DCGM = {
    "place": METAL,
    "dcgmi": "/usr/bin/dcgmi",
    "health": "+-----+\n| Health Monitor Report |\n+=====+\n"
    "| Overall Health            | Healthy     |\n+-----+\nstatus 0",
}
HOLDERS = {
    "place": METAL,
    "holders": "812|nvidia-persiste|S|0::/system.slice/nvidia-persistenced.service\n"
    "1440|VLLM::Worker|S|0::/system.slice/vllm@two.service",
    "units": "vllm@two.service loaded active running vLLM engine two",
}


def sectioned(parts: dict[str, str], **changes: str | None) -> Output:
    """One answer; a section is changed by its name (_ for a space), None leaves it out."""
    named = {key.replace("_", " "): value for key, value in changes.items()}
    assert not named.keys() - parts.keys(), f"no section {named.keys() - parts.keys()}"
    merged = {key: value for key, value in {**parts, **named}.items() if value is not None}
    text = "".join(f"## {title}\n{body}\n" for title, body in merged.items())
    return Output(rc=0, stdout=f"{text}## end\n", seconds=0.1)


def answers() -> dict[str, Output]:
    """Of every host, by command."""
    return {
        "host.state": sectioned(STATE),
        "host.log": sectioned(LOG),
        "host.disks": sectioned(DISKS),
        "net.fabric": sectioned(NET),
    }


def gpu_answers(node: Node) -> dict[str, Output]:
    """Of a host with cards, beside what :mod:`gpu_samples` says."""
    look = "\n".join(["## place", METAL, *driver_samples.text()])
    if (node.driver or "").startswith("590"):
        look = look.replace(driver_samples.VERSION, node.driver or "")
    return {
        "host.docker": sectioned(DOCKER),
        "gpu.dcgm": sectioned(DCGM),
        "gpu.holders": sectioned(HOLDERS),
        "gpu.look": Output(rc=0, stdout=f"{look}\n", seconds=1.0),
        "gpu.pci": pci(node),
        "fabric.counters": counters(node),
        "fabric.look": fabric_look(node),
    }


def counters(node: Node) -> Output:
    names = [*THRESHOLDS, *ONLY_WARN]
    rows = [
        f"port {nic.device} 1\n" + "".join(f"{n} {nic.counters.get(n, 0)}\n" for n in names)
        for nic in node.nics
    ]
    return Output(rc=0, stdout="".join(rows) + "end\n")


def chain(slot: Slot) -> list[str]:
    """The PCI path of a device: host bridge, root port, switch, port, the device itself."""
    host, switch, port = (ord(part[0]) + int(part[1:] or 0) for part in slot.path.split("/"))
    bridge = f"0000:{host - 80:02x}"
    return [f"pci{bridge}", f"{bridge}:01.0", f"{bridge}:{switch - 115:02x}.1",
            f"{bridge}:{port - 80:02x}.2", slot.bus]  # fmt: skip


def pci(node: Node) -> Output:
    """Cards and adapters Gen5 x16, 256 bytes of payload, no errors."""
    rows, seen = [], set[str]()

    def row(kind: str, slot: str, parent: str) -> str:
        return f"{kind}|{slot}|{parent}|1|10528|32.0 GT/s PCIe|32.0 GT/s PCIe|16|16|0|0|0"

    for kind, place in _places(node):
        path = chain(place)
        rows.append(row(kind, path[-1], path[-2]))
        for depth in range(len(path) - 2, 0, -1):
            if path[depth] not in seen:
                seen.add(path[depth])
                rows.append(row("bridge", path[depth], path[depth - 1]))
    return sectioned({"place": METAL, "devices": "\n".join(rows)})


def _places(node: Node) -> list[tuple[str, Slot]]:
    cards = [("gpu", gpu.slot) for gpu in node.gpus]
    return cards + [(nic.device, nic.slot) for nic in node.nics]


def _hca(nic: Nic) -> str:
    path = "/sys/devices/" + "/".join(chain(nic.slot))
    row = f"hca|{nic.device}|{path}|{nic.slot.numa}|{nic.board_id}|a088:c203:0000:1c00||1|"
    return f"{row}\nport|1|4: ACTIVE|5: LinkUp|{nic.rate} Gb/sec|{nic.link_layer}|0x1|"


def fabric_look(node: Node, bridges: dict[str, str] | None = None, **changes: str) -> Output:
    """The fabric stage's look; ``bridges``: ACS word by slot, of all others it is off."""
    slots = dict.fromkeys(
        (part for _, slot in _places(node) for part in chain(slot)[1:-1]), "0"
    ) | (bridges or {})
    gpus = [
        f"{g.slot.bus}|/sys/devices/{'/'.join(chain(g.slot))}|{g.slot.numa}|identity"
        for g in node.gpus
    ]
    parts = {
        "gpus": "\n".join(gpus),
        "hcas": "\n".join(map(_hca, node.nics)),
        "bridges": "\n".join(f"{slot}|{word}" for slot, word in slots.items()),
        "kernel": KERNEL,
        "virt": "none",
        "cmdline": STATE["cmdline"],
        "grub": 'GRUB_CMDLINE_LINUX="iommu=pt"',
        "next": "\tlinux\t/boot/vmlinuz root=UUID=1 ro iommu=pt",
        "modules": "nvidia\nnvidia_uvm\nnvidia_peermem\nmlx5_core\nib_uverbs",
        "peer_api": "yes",
        "flavour": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {node.driver}",
        "gdrcopy": "",
        "opensm": "",
        "iommu": "dmar0",
        "dkms": f"nvidia/535.129.03, {KERNEL}, x86_64: installed",
        "built": "",
        "ofed": "",
        "symbols": "",
        "names": "",
    }
    assert not changes.keys() - parts.keys()
    text = "".join(f"@@ {k}\n{v}\n" if v else f"@@ {k}\n" for k, v in {**parts, **changes}.items())
    return Output(rc=0, stdout=f"{text}@@ end\n", seconds=2.0)
