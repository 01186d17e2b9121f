"""HCAs of the compute fabric: ports that are up, their rate and link layer; GPUDirect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rackpin.checks import gpu_driver, gpuinfo
from rackpin.checks.base import NO_ANSWER, NOTHING, Command, Context, Outputs, Question, unseen
from rackpin.checks.gpu_driver import KERNEL
from rackpin.checks.gpuinfo import Told
from rackpin.findings import Finding, Level
from rackpin.parse import infiniband
from rackpin.parse.infiniband_model import Port
from rackpin.parse.kinds import NotThisKind
from rackpin.skus import Hcas, Sku

SYS = "/sys/class/infiniband"
# sysfs needs no tool of any vendor; a device that comes or goes meanwhile must not end it.
HCAS = Command(
    "fabric.hcas",
    f"""ls -1 {SYS} 2>/dev/null | sed 's/^/device /'
grep -sH . {SYS}/*/fw_ver {SYS}/*/hca_type {SYS}/*/ports/*/state {SYS}/*/ports/*/phys_state \\
  {SYS}/*/ports/*/rate {SYS}/*/ports/*/link_layer
echo end
""",
)
OF_DEVICE = re.compile(rf"^{SYS}/([\w.-]{{1,64}})/(fw_ver|hca_type):\s*(\S+)\s*$", re.MULTILINE)
_USUAL = re.compile(r"mlx\d_(?:ib|bond_|eth)?\d+")
PEERMEM = {"nvidia_peermem", "nv_peer_mem"}
DMABUF_KERNEL = (5, 12)  # dma-buf in RDMA, for NVIDIA's open modules (NCCL user guide, GPUDirect)
FIX = (
    "ibstat and dmesg on the node; cable, transceiver, switch port and subnet manager; link layer "
    "by mlxconfig LINK_TYPE. Where the site's fabric is another, give the node a SKU that says so"
)


def _sku(ctx: Context) -> Sku | None:
    sku = gpuinfo.sku_of(ctx)
    return sku if isinstance(sku, Sku) and sku.hcas and gpuinfo.has_cards(ctx) else None


class HcaCheck:
    id = "fabric.hcas"
    title = "The HCAs of the SKU are up, as fast as they should be, and reach GPU memory"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [HCAS, KERNEL] if _sku(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        sku = _sku(ctx)
        if sku is None or sku.hcas is None:
            return []
        return [ports(ctx, sku.hcas, outputs), peermem(ctx, outputs)]


def ports(ctx: Context, want: Hcas, outputs: Outputs) -> Finding:
    """``fabric.hcas``: enough good ports; with enough of them, others may be as they are."""
    output = outputs.get(HCAS.name, NO_ANSWER)
    expected = f"{want.count} ports up, {want.rate} Gb/s, {want.link_layer}"
    question = Question(ctx, "fabric.hcas", HCAS, output, expected, "skus/: hcas")
    if why := unseen(HCAS, output):
        return question.not_run(why)
    text = output.stdout.strip()
    if not output.ok or text.splitlines()[-1:] != ["end"]:
        return question.not_run("its answer is not whole")
    told = Told()
    listed = re.findall(r"^device (\S+)$", text, re.MULTILINE)
    try:
        seen = infiniband.read(output.stdout).ports if listed else ()
    except NotThisKind as error:
        return question.not_run(f"the answer can't be read: {error}")
    facts: dict[str, dict[str, str]] = {}
    for device, key, value in OF_DEVICE.findall(output.stdout):
        facts.setdefault(device, {})[key] = value
    wrong = {port: said for port in seen if (said := _wrong(port, want))}
    good = len(seen) - len(wrong)
    silent = set(listed) - {port.device for port in seen}
    if good < want.count:
        told.faults.append(f"{good} of {want.count} ports are as they should be")
        if len(listed) < want.count:
            told.faults.append(f"there are {len(listed)} devices in {SYS}")
        told.faults += [f"{device} tells nothing of its ports" for device in sorted(silent)]
    (told.faults if good < want.count else told.worries).extend(wrong.values())
    _alike(listed, facts, told)
    return gpuinfo.conclude(question, f"{good} ports up", told, shown=text, remedy=FIX)


def _wrong(port: Port, want: Hcas) -> str:
    """What is wrong with a port, "" when nothing is; what it doesn't tell is wrong too."""
    said = []
    if port.up is not True:
        said.append(f"{port.state or 'state not told'}, {port.physical or 'no physical state'}")
    elif port.rate_gbps is None or port.rate_gbps < want.rate:
        said.append(f"{port.rate_gbps} of {want.rate} Gb/s")
    if port.link_layer != want.link_layer:
        said.append(f"{port.link_layer or 'unknown link layer'} instead of {want.link_layer}")
    return f"{port.device} port {port.port}: {', '.join(said)}" if said else ""


def _alike(listed: Sequence[str], facts: dict[str, dict[str, str]], told: Told) -> None:
    kinds: dict[str, Counter[str]] = {}
    for device in listed:
        fact = facts.get(device, {})
        if "fw_ver" not in fact or "hca_type" not in fact:
            told.untold.append(f"{device}: its firmware")
        else:
            kinds.setdefault(fact["hca_type"], Counter())[fact["fw_ver"]] += 1
    for device in listed:
        fact = facts.get(device, {})
        versions = kinds.get(fact.get("hca_type", ""), Counter())
        most = versions.most_common(1)[0][0] if versions else ""
        if "fw_ver" in fact and fact["fw_ver"] != most:
            told.worries.append(f"{device} has firmware {fact['fw_ver']}, its siblings {most}")
        if not _USUAL.fullmatch(device):
            told.worries.append(
                f"{device} is not named mlx5_N: NCCL_IB_HCA=mlx5 would leave it out"
            )


def peermem(ctx: Context, outputs: Outputs) -> Finding:
    """``fabric.peermem``: HCAs reach GPU memory, by nvidia_peermem or by dma-buf."""
    output = outputs.get(KERNEL.name, NO_ANSWER)
    expected = "nvidia_peermem loaded, or open modules on Linux 5.12 and later (dma-buf)"
    source = "NVIDIA, GPUDirect RDMA documentation"
    question = Question(ctx, "fabric.peermem", KERNEL, output, expected, source)
    found = gpu_driver.kernel_answer(outputs)
    if isinstance(found, str):
        return question.not_run(found)
    here = gpu_driver.loaded_modules(found) & PEERMEM
    release = re.match(r"(\d+)\.(\d+)\.", found.get("release", ""))
    version, flavour = gpu_driver.driver_state(found)
    by_dmabuf = flavour == "open" and release and tuple(map(int, release.groups())) >= DMABUF_KERNEL
    faults = []
    if version is None:
        faults.append("the NVIDIA module is not loaded, so no HCA reaches GPU memory")
    elif not here and not by_dmabuf:
        faults.append("neither nvidia_peermem nor dma-buf: traffic goes through the host's memory")
    shown = (
        f"modules: {', '.join(sorted(here))}; driver {version} {flavour}; {release and release[0]}"
    )
    remedy = "modprobe nvidia-peermem, and put it into /etc/modules-load.d; dmesg says why it fails"
    return question.verdict(
        ", ".join(sorted(here)) or "dma-buf of the open modules", faults, shown=shown, remedy=remedy
    )


CHECK = HcaCheck()
