"""For each check of cards and fabric: the lie typical for it, then two faults at once."""

from __future__ import annotations

from tests.unit.lies import Lie, also, first, last, lie, pattern, two

BRAKE = "clocks_event_reason_hw_power_brake_slowdown"
HOT = "clocks_event_reason_hw_thermal_slowdown"
LINK4 = ("Link 4: 26.562 GB/s", "Link 4: <inactive>")
IB3 = "/sys/class/infiniband/mlx5_3/ports/1/state:4: ACTIVE"
IB5 = "/sys/class/infiniband/mlx5_5/ports/1/rate:400 Gb/sec"
XID = "[  812.1] NVRM: Xid (PCI:0000:3b:00): {}, pid=77, name=python, x\n"
# Size, count, type, redop, root, time; then algbw, busbw and wrong elements, out of place.
ROW = r"(?m)^( +8589934592(?: +\S+){5}) +\S+ +\S+ +\S+"


def tag(name: str, old: str, new: str) -> tuple[str, str]:
    return f"<{name}>{old}</{name}>", f"<{name}>{new}</{name}>"


def smi(name: str, old: str, new: str, named: str) -> Lie:
    return lie("gpu.smi", *tag(name, old, new), named)


ALLREDUCE = "gpu.allreduce.engine"
LIES: dict[str, tuple[Lie, ...]] = {
    "gpu.count": (
        smi("attached_gpus", "8", "9", "8 of 9"),
        two(smi("minor_number", "0", "ERR!", "answers with errors"),
            lie("gpu.bus", "0000:3b:00.0", "#", "7 of 8")),
    ),
    "gpu.model": (
        lie("gpu.smi", "NVIDIA H100 80GB HBM3<", "N/A<", "19:00.0"),
        two(lie("gpu.smi", "NVIDIA H100 80GB HBM3<", "NVIDIA H100 PCIe<", "19:00.0"),
            also("3b:00.0")),
    ),
    "gpu.driver": (
        lie("gpu.kernel", "libcuda.so.535.129", "libcuda.so.550.54", "libcuda"),
        two(lie("gpu.kernel", "libcuda.so.535.129", "libcuda.so.550.54", "libcuda"),
            lie("gpu.kernel", "/dev/nvidia3\n", "", "7 of 8")),
    ),
    "gpu.xid": (
        lie("gpu.log", "## dmesg status\n0", "## dmesg status\n1", "neither"),
        two(lie("gpu.log", "## dmesg\n", "## dmesg\n" + XID.format(31) + XID.format(79),
                "Xid 31"), also("Xid 79")),
    ),
    "gpu.ecc": (
        smi("current_ecc", "Enabled", "N/A", "19:00.0"),
        two(smi("dram_uncorrectable", "0", "3", "3 dram"),
            smi("sram_threshold_exceeded", "No", "Yes", "threshold")),
    ),
    "gpu.rows": (
        smi("remapped_row_pending", "No", "N/A", "19:00.0"),
        two(smi("remapped_row_pending", "No", "Yes", "waits for a reset"),
            smi("remapped_row_failure", "No", "Yes", "could not replace")),
    ),
    "gpu.pcie": (
        smi("current_link_width", "16x", "N/A", "width"),
        two(smi("current_link_width", "16x", "8x", "8 of 16"),
            smi("max_link_gen", "5", "3", "Gen3")),
    ),
    "gpu.clocks": (
        smi(BRAKE, "Not Active", "N/A", "hw_power_brake"),
        two(smi(BRAKE, "Not Active", "Active", "power supply"),
            smi(HOT, "Not Active", "Active", "too hot")),
    ),
    "gpu.mig": (
        smi("current_mig", "Disabled", "N/A", "19:00.0"),
        two(smi("current_mig", "Disabled", "Enabled", "19:00.0"), also("3b:00.0")),
    ),
    "gpu.persistence": (
        smi("persistence_mode", "Enabled", "N/A", "19:00.0"),
        two(smi("persistence_mode", "Enabled", "Disabled", "19:00.0"), also("3b:00.0")),
    ),
    "gpu.vbios": (
        smi("vbios_version", "96.00.74.00.01", "N/A", "N/A"),
        two(first("gpu.smi", "<vbios_version>96.00.74.00.01", "<vbios_version>97", "97"),
            last("gpu.smi", "<vbios_version>96.00.74.00.01", "<vbios_version>98", "98")),
    ),
    "gpu.next_boot": (
        lie("gpu.look", "x86_64: installed", "x86_64: added", "added"),
        two(lie("gpu.look", "x86_64: installed", "x86_64: built", "is built"),
            lie("gpu.look", "nvidia-uvm.ko|535.129.03", "nvidia-uvm.ko|", "nvidia-uvm.ko")),
    ),
    "gpu.holders": (
        lie("gpu.holders", "vllm@two.service loaded active", "vllm@two.service loaded failed",
            "VLLM::Worker[1440]"),
        two(lie("gpu.holders", "vllm@two.service loaded active", "vllm@two.service loaded inactive",
                "VLLM::Worker[1440]"),
            lie("gpu.holders", "## units", "99|python|S|0::/user.slice/a.scope\n## units",
                "python[99]")),
    ),
    "gpu.dcgm": (
        lie("gpu.dcgm", "Overall Health            | Healthy", "Health watches not enabled |",
            "watches nothing"),
        two(lie("gpu.dcgm", "| Healthy     |\n", "| Failure     |\n| -> 3 | Failure: XID 48 |\n"
                "| -> 5 | Warning: PCIe replays |\n", "XID 48"), also("PCIe replays")),
    ),
    "gpu.pci_payload": (
        pattern("gpu.pci", r"(gpu\|0000:19:00.0\|[^|]*\|1\|)10528", r"\1", "registers"),
        two(pattern("gpu.pci", r"(gpu\|0000:19:00.0\|[^|]*\|1\|)10528", r"\g<1>10496",
                    "MaxPayload 128"),
            pattern("gpu.pci", r"(mlx5_0\|[^|]*\|[^|]*\|1\|)10528", r"\g<1>2336",
                    "MaxReadReq 128")),
    ),
    "gpu.pci_errors": (
        lie("gpu.pci", "16|16|0|0|0", "16|16|||", "no device has error counters"),
        two(first("gpu.pci", "16|16|0|0|0", "16|16|0|0|2", "2 fatal"),
            last("gpu.pci", "16|16|0|0|0", "16|16|0|4|0", "4 uncorrected")),
    ),
    "fabric.manager": (
        lie("fabric.manager", "ActiveState=active", "", "systemctl"),
        two(lie("fabric.manager", "ActiveState=active", "ActiveState=failed", "failed"),
            lie("fabric.manager", "version is : 535.129.03", "version is : 535.54.03",
                "535.54.03")),
    ),
    "fabric.gpus": (
        smi("status", "Success", "N/A", "19:00.0"),
        two(smi("status", "Success", "Insufficient Resources", "19:00.0"),
            also("3b:00.0")),
    ),
    "fabric.nvlink": (
        first("fabric.nvlink", "\t Link 17: 26.562 GB/s\n", "", "17 of 18"),
        two(first("fabric.nvlink", "" + LINK4[0], LINK4[1], "GPU 0"),
            last("fabric.nvlink", "" + LINK4[0], LINK4[1], "GPU 7")),
    ),
    "fabric.hcas": (
        lie("fabric.hcas", "link_layer:InfiniBand", "link_layer:", "layer"),
        two(lie("fabric.hcas", IB3, IB3.replace("4: ACTIVE", "1: DOWN"), "mlx5_3"),
            lie("fabric.hcas", IB5, IB5.replace("400", "200"), "mlx5_5")),
    ),
    "fabric.counters": (
        lie("fabric.counters", "symbol_error 0", "symbol_error N/A", "symbol_error"),
        two(lie("fabric.counters", "port mlx5_0 1\nsymbol_error 0",
                "port mlx5_0 1\nsymbol_error 500", "mlx5_0/1 500"),
            last("fabric.counters", "link_downed 0", "link_downed 40", "link_downed")),
    ),
    "fabric.hca_pcie": (
        pattern("gpu.pci", r"(mlx5_0\|.*\|10528\|)32.0 GT/s PCIe", r"\1N/A", "its PCIe link"),
        two(pattern("gpu.pci", r"(mlx5_0\|.*PCIe\|)16\|16", r"\g<1>8|16", "8 of 16"),
            pattern("gpu.pci", r"(mlx5_1\|.*\|10528\|)32.0 GT/s", r"\g<1>8.0 GT/s", "8 of 32")),
    ),
    "fabric.acs": (
        pattern("fabric.look", r"(?m)^(0000:18:[0-9a-f.]+)\|0$", r"\1|unseen", "ACS of bridge"),
        two(pattern("fabric.look", r"(?m)^(0000:[0-9a-f:.]+)\|0$", r"\1|29", "0000:18:01.0", 2),
            also("0000:18:00.1")),
    ),
    "fabric.iommu": (
        lie("fabric.look", "|identity", "|DMA-FQ", "translates"),
        two(first("fabric.look", "|identity", "|DMA", "translates"),
            lie("fabric.look", "ro iommu=pt\n@@ grub", "ro quiet\n@@ grub", "reboot pending")),
    ),
    "fabric.modules": (
        lie("fabric.look", "@@ peer_api\nyes", "@@ peer_api\nno", "no GPUDirect"),
        two(lie("fabric.look", "@@ peer_api\nyes", "@@ peer_api\nno", "no GPUDirect"),
            lie("fabric.look", "@@ gdrcopy\n", "@@ gdrcopy\nloaded 2.4\nbuilt 2.5\n",
                "gdrdrv 2.4")),
    ),
    "fabric.map": (
        first("fabric.look", "|0|identity", "|-1|identity", "NUMA node unknown"),
        two(first("fabric.look", "|0|identity", "|-1|identity", "NUMA node unknown"),
            pattern("fabric.look", r"(?m)^hca\|mlx5_0\|.*\nport.*\n", "", "no adapter near")),
    ),
    "gpu.allreduce": (
        # The average is fine, the one row that decides is not there.
        pattern(ALLREDUCE, r"(?m)^ +8589934592 .*\n", "", "8589934592"),
        two(pattern(ALLREDUCE, ROW, r"\1 100.0 175.0 7", "wrong elements"), also("175")),
    ),
}  # fmt: skip
