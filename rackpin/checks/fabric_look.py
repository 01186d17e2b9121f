"""What the kernel does between cards and adapters: ACS, IOMMU, modules, places (F080, F081)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rackpin.checks import gpuinfo
from rackpin.checks.base import NO_ANSWER, NOTHING, Command, Context, Outputs, Question, unseen
from rackpin.checks.gpuinfo import Told
from rackpin.fabric.kernel import acs_on, boot_notes, device_notes
from rackpin.fabric.look import LookError, parse, script
from rackpin.fabric.model import Fabric, Near, distance
from rackpin.fabric.rebuild import needed
from rackpin.findings import Finding, Level

DEADLINE_S = 45.0  # dkms status and ofed_info with 20 s each
TRANSLATES = "the IOMMU translates"  # how rackpin.fabric.kernel begins what NCCL hangs on


def command() -> Command:
    """The fabric stage's own look, so that both mean the same."""
    return Command("fabric.look", script(), DEADLINE_S, slow=True)


def read(outputs: Outputs) -> Fabric | str:
    """The node's cards, adapters and kernel, or why they can't be had."""
    asked = command()
    output = outputs.get(asked.name, NO_ANSWER)
    if why := unseen(asked, output):
        return why
    try:
        found = parse(output.stdout.splitlines())
    except LookError as error:
        return str(error)
    if not output.ok:
        return f"the look ended with status {output.rc}"
    return "it doesn't say what it runs on" if found.virt == "unknown" else found


def _acs(ctx: Context, fabric: Fabric, told: Told) -> str | None:
    """In a virtual machine the bridges are the hypervisor's; for passed-through cards it stays."""
    if not fabric.bare_metal or not ctx.fleet.config.acs_off:
        return None
    told.untold += [f"ACS of bridge {bridge.slot}" for bridge in fabric.bridges if not bridge.seen]
    if bridges := acs_on(fabric):
        told.faults.append(
            f"ACS sends traffic between devices through the CPU: {', '.join(bridges)}"
        )
    return f"ACS is off on {len(fabric.bridges)} bridges above cards and adapters"


def _iommu(ctx: Context, fabric: Fabric, told: Told) -> str | None:
    if not fabric.bare_metal:
        return None
    for note in boot_notes(fabric):
        (told.faults if note.startswith(TRANSLATES) else told.worries).append(note)
    return "the IOMMU passes cards' addresses through" if fabric.iommu else "no IOMMU is on"


def _modules(ctx: Context, fabric: Fabric, told: Told) -> str | None:
    if not fabric.hcas:
        return None  # fabric.hcas says what is missing
    pin = ctx.lock.host.driver
    flavour = pin.flavour if pin else ""
    told.worries += [note for note in device_notes(fabric, flavour) if "ACS" not in note]
    told.worries += [item.why for item in needed(fabric, ctx.lock.host.rdma)]
    return "modules of network and driver fit each other"


def _map(ctx: Context, fabric: Fabric, told: Told) -> str | None:
    if not fabric.gpus:
        if fabric.bare_metal:
            told.untold.append("no card is in /sys")
        return None
    lost = [gpu.slot for gpu in fabric.gpus if gpu.numa is None]
    if lost and len(lost) < len(fabric.gpus):
        told.worries.append(f"NUMA node unknown for {', '.join(lost)}, known for the others")
    if lost and fabric.bare_metal and len(lost) == len(fabric.gpus) and len(lost) > 1:
        told.worries.append("no card has a NUMA node: the BIOS tells none")
    if not fabric.hcas:
        return f"{len(fabric.gpus)} cards in their places"
    near = {gpu.slot: min(distance(gpu, hca) for hca in fabric.hcas) for gpu in fabric.gpus}
    best = min(near.values())
    far = [f"{slot} ({level.name})" for slot, level in near.items() if level > Near.PXB]
    # Where no card has an adapter near, the board is built so.
    if far and best <= Near.PXB:
        told.worries.append(f"no adapter near {', '.join(far)}, others have one ({best.name})")
    return f"{len(fabric.gpus)} cards, the nearest adapter of each: {best.name}"


@dataclass(frozen=True)
class LookCheck:
    """``look`` fills what was told; None where the question doesn't concern the node."""

    id: str
    title: str
    expected: str
    source: str
    remedy: str
    look: Callable[[Context, Fabric, Told], str | None]
    level: Level = "node"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command()] if gpuinfo.has_cards(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not gpuinfo.has_cards(ctx):
            return []
        asked = command()
        output = outputs.get(asked.name, NO_ANSWER)
        question = Question(ctx, self.id, asked, output, self.expected, self.source)
        fabric = read(outputs)
        if isinstance(fabric, str):
            return [question.not_run(fabric)]
        told = Told()
        good = self.look(ctx, fabric, told)
        if good is None and not (told.faults or told.worries or told.untold):
            return []
        shown = [f"virt {fabric.virt}, kernel {fabric.kernel}, {' '.join(fabric.boot.running)}"]
        shown += [f"{gpu.slot} numa {gpu.numa} iommu {gpu.iommu or '-'}" for gpu in fabric.gpus]
        shown += [f"{hca.name} {hca.slot} numa {hca.numa}" for hca in fabric.hcas]
        shown += [f"bridge {b.slot} acs {b.acs}" for b in fabric.bridges if b.acs or not b.seen]
        return [
            gpuinfo.conclude(question, good or "", told, shown="\n".join(shown), remedy=self.remedy)
        ]


ACS = LookCheck(
    id="fabric.acs",
    title="ACS is off between cards and adapters",
    expected="no bridge above a card or adapter redirects traffic (bare metal)",
    source="NVIDIA, NCCL troubleshooting: PCI access control; failures F080",
    remedy="run deploys/site.py (its fabric stage turns ACS off at boot); or the BIOS's setting",
    look=_acs,
)
IOMMU = LookCheck(
    id="fabric.iommu",
    title="The IOMMU doesn't translate for cards",
    expected="iommu=pt in force and in the next boot, where there is an IOMMU (bare metal)",
    source="NVIDIA, NCCL troubleshooting: IO virtualization; failures F081",
    remedy="run deploys/site.py, then reboot in a wave; or switch the IOMMU off in the BIOS",
    look=_iommu,
)
MODULES = LookCheck(
    id="fabric.modules",
    title="Modules of network and driver fit each other",
    expected="GPUDirect possible, gdrdrv of the driver, nothing to build again",
    source="lock: host.rdma, host.driver; failures F059-F065",
    remedy="run deploys/site.py: it builds and loads what is missing",
    look=_modules,
)
MAP = LookCheck(
    id="fabric.map",
    title="Cards and adapters sit where they should",
    expected="a NUMA node for every card, an adapter near each where others have one",
    source="NCCL documentation: NCCL_NET_GDR_LEVEL and its levels",
    remedy="nvidia-smi topo -m: a card or adapter in another slot; BIOS: NUMA, NPS setting",
    look=_map,
)
