"""What one node tells that should be alike among nodes of its SKU: firmware, settings, readings.

Only answers that came whole are read; a key that a node can't tell is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from rackpin.checks import fabric_hcas, fabric_look, gpu_driver, gpu_pci, gpuinfo, host, net_fabric
from rackpin.checks.base import NO_ANSWER, Context, Outputs, sections
from rackpin.checks.host import Answer, properties
from rackpin.checks.host_cpu import counted, numbers
from rackpin.checks.host_memory import kib
from rackpin.checks.sysctl import parse_lines
from rackpin.fabric.model import Fabric, distance
from rackpin.parse.nvidia_smi_model import Gpu, quantity

Value = str | float
# Words of the kernel's command line that name this node's own disk or address.
_OWN = re.compile(r"^(BOOT_IMAGE|root|resume|rootflags|initrd|ip|rd\.\S+|cryptdevice|ifname)=")


def collect(ctx: Context, outputs: Outputs) -> dict[str, Value]:
    """Words and numbers by key; a number's key ends with its unit. Empty: the node told nothing."""
    found: dict[str, Value] = {}
    if isinstance(state := host.read(host.STATE, outputs.get(host.STATE.name, NO_ANSWER)), dict):
        found |= _host(Answer(state))
    if isinstance(net := host.read(net_fabric.command(ctx), outputs.get("net.fabric", NO_ANSWER)),
                  dict):  # fmt: skip
        found |= _net(net)
    found |= _sysctl(outputs)
    if isinstance(smi := gpuinfo.read_smi(outputs), gpuinfo.Smi):
        found |= _cards(smi.gpus)
        if smi.driver:
            found["gpu.driver"] = smi.driver
    if isinstance(loaded := gpu_driver.kernel_answer(outputs), dict):
        mine = {m for m in gpu_driver.loaded_modules(loaded) if m.startswith(("nvidia", "mlx5"))}
        found["kernel.modules"] = _some(mine)
    hcas = outputs.get(fabric_hcas.HCAS.name, NO_ANSWER)
    if hcas.ok and hcas.stdout.rstrip().endswith("\nend"):
        found |= _hcas(hcas.stdout)
    registers = host.read(gpu_pci.REGISTERS, outputs.get(gpu_pci.REGISTERS.name, NO_ANSWER))
    if isinstance(registers, dict):
        found |= _pci(Answer(registers))
    if isinstance(fabric := fabric_look.read(outputs), Fabric):
        found |= _fabric(fabric)
    return {key: value for key, value in found.items() if value != ""}


def _some(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def _host(answer: Answer) -> dict[str, Value]:
    bios = properties(answer.parts.get("bios", ""))
    release = next((x.split()[1] for x in answer.lines("kernels") if x.startswith("running ")), "")
    line = answer.parts.get("cmdline", "").split()
    found: dict[str, Value] = {
        "kernel": release,
        "kernel.command_line": " ".join(sorted(word for word in line if not _OWN.match(word))),
        "bios": bios.get("bios_version", ""),
        "board": " ".join(bios.get(k, "") for k in ("product_name", "board_name", "board_version")),
        "cpu.model": _some(counted(answer, "cpu", "model name")),
        "cpu.microcode": _some(counted(answer, "cpu", "microcode")),
        "cpu.governor": _some(counted(answer, "governor")),
        "nccl.plugins": _some(answer.lines("plugins")) or "none",
        "drives": _multiset(
            f"{fields[2].strip()} {fields[3].strip()}"
            for part in ("nvme", "scsi")
            for line in answer.lines(part)
            if len(fields := line.split("|")) == 4
        ),
    }
    found["board"] = str(found["board"]).strip()
    if total := kib(answer).get("MemTotal"):
        found["memory_gib"] = round(total / 2**20, 2)
    words = dict(x.split(" ", 1) for x in answer.lines("cpu") if x.startswith("online "))
    if online := numbers(words.get("online", "")):
        found["cpus_count"] = float(len(online))
    return found


def _multiset(words: Iterable[str]) -> str:
    return ", ".join(f"{n} × {word}" for word, n in sorted(Counter(words).items()))


def _net(parts: dict[str, str]) -> dict[str, Value]:
    link = properties(parts.get("link", ""))
    found: dict[str, Value] = {"net.driver": link.get("driver", "")}
    for key, name in (("mtu", "net.mtu_bytes"), ("speed", "net.speed_mbps")):
        if link.get(key, "").isdigit():
            found[name] = float(link[key])
    # Interface names may differ; what is plugged in should not.
    rows = [line.split() for line in parts.get("others", "").splitlines()]
    found["net.ports"] = _multiset(
        f"{row[1]} at {row[2]} Mb/s" for row in rows if len(row) == 4 and row[1] == "up"
    )
    return found


def _sysctl(outputs: Outputs) -> dict[str, Value]:
    output = outputs.get("sysctl", NO_ANSWER)
    parts = sections(output.stdout)
    if not output.ok or "end" not in parts:
        return {}
    live = parse_lines(parts.get("live", ""))
    return {f"sysctl.{key}": value for key, value in live.items()}


def _cards(cards: Iterable[Gpu]) -> dict[str, Value]:
    cards = list(cards)
    found: dict[str, Value] = {
        "gpu.model": _multiset(card.name or "not told" for card in cards),
        "gpu.vbios": _some((gpuinfo.said(card, "vbios_version") or "").upper() for card in cards),
        "gpu.inforom": _some(gpuinfo.said(card, "img_version") or "" for card in cards),
        "gpu.gsp": _some(gpuinfo.said(card, "gsp_firmware_version") or "" for card in cards),
    }
    limits = [card.power_limit for card in cards if card.power_limit is not None]
    if limits:
        found["gpu.power_limit_w"] = float(min(limits))
    # Heat, power and clocks of a node at work say what it does, not what it is.
    if any(card.utilization is None or gpuinfo.at_work(card) for card in cards):
        return found
    heats = [card.temperature for card in cards if card.temperature is not None]
    powers = [card.power for card in cards if card.power is not None]
    clocks = [n for c in cards if (n := quantity(gpuinfo.said(c, "clocks / sm_clock") or ""))]
    if len(heats) == len(cards):
        found["gpu.rest_temperature_c"] = float(max(heats))
    if len(powers) == len(cards):
        found["gpu.rest_power_w"] = float(max(powers))
    if len(clocks) == len(cards):
        found["gpu.rest_clock_mhz"] = float(min(clocks))
    return found


def _hcas(text: str) -> dict[str, Value]:
    facts: dict[str, dict[str, str]] = {}
    for device, key, value in fabric_hcas.OF_DEVICE.findall(text):
        facts.setdefault(device, {})[key] = value
    return {
        "hca.names": _some(facts),
        "hca.firmware": _multiset(
            f"{one['hca_type']} {one['fw_ver']}" for one in facts.values() if len(one) == 2
        ),
    }


def _pci(answer: Answer) -> dict[str, Value]:
    some = [one for one in gpu_pci.devices(answer).values() if one.kind != "bridge"]
    found: dict[str, Value] = {}
    for key, mine in (
        ("gpu", [one for one in some if one.kind == "gpu"]),
        ("hca", [one for one in some if one.kind != "gpu"]),
    ):
        found[f"{key}.pci"] = _multiset(
            f"MaxPayload {one.payload}, MaxReadReq {one.read_request}, x{one.width}" for one in mine
        )
    return found


def _fabric(fabric: Fabric) -> dict[str, Value]:
    """The map: which slots hold cards and adapters, and how near they are to each other."""
    if not fabric.gpus:
        return {}
    near = [
        f"{gpu.slot}/{gpu.numa}:" + ",".join(f"{h.slot}={distance(gpu, h)}" for h in fabric.hcas)
        for gpu in fabric.gpus
    ]
    digest = hashlib.sha256(" ".join(near).encode()).hexdigest()[:8]
    orders = [hca.relaxed_ordering for hca in fabric.hcas]
    return {
        "pci.map": f"{len(fabric.gpus)} cards, {len(fabric.hcas)} adapters, map {digest}",
        "hca.relaxed_ordering": _some({True: "on", False: "off", None: "not told"}[o]
                                      for o in orders),
        "ofed": fabric.dkms.ofed,
        "gdrcopy": fabric.gdrcopy.loaded,
    }  # fmt: skip
