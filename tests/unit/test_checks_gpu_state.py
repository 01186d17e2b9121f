"""Cards and fabric beyond nvidia-smi: registers, counters, ACS, IOMMU, holders, DCGM, docker."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rackpin.checks import containers, fabric_counters, fabric_look, gpu_dcgm, gpu_holders, gpu_pci
from rackpin.checks import gpu_next_boot as next_boot
from rackpin.checks.base import Check, Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.lab.hardware import presets
from rackpin.stack.hostpins import DebPin
from tests.unit import checks_samples, driver_samples, gpu_samples
from tests.unit import host_samples as samples

PASS, FAIL, WARN, NOT_RUN = Outcome.PASS, Outcome.FAIL, Outcome.WARN, Outcome.NOT_RUN
SKU = "h100-sxm-8"
NODE = presets.node("head1", SKU)


@pytest.fixture
def ctx(target: Target) -> Context:
    ctx = gpu_samples.context(target, SKU)
    host = ctx.lock.host.model_copy(update={"container_toolkit": DebPin(version="1.19.1-1")})
    return replace(ctx, lock=ctx.lock.but(host=host))


def judged(ctx: Context, check: Check, output: Output) -> list[Finding]:
    return check.judge(ctx, {command.name: output for command in check.commands(ctx)})


def one(ctx: Context, check: Check, output: Output) -> Finding:
    (found,) = judged(ctx, check, output)
    return found


def pci(old: str, new: str, place: str = samples.METAL) -> Output:
    text = samples.pci(NODE).stdout
    assert old in text
    return Output(rc=0, stdout=text.replace(old, new, 1).replace(samples.METAL, place))


def test_payload_is_judged_on_bare_metal_only(ctx: Context) -> None:
    larger = pci("|1|10528|", "|1|10560|")  # the card sends 512 bytes, its port takes 256
    found = one(ctx, gpu_pci.PAYLOAD, larger)
    assert found.outcome is FAIL and "512 bytes" in found.summary
    assert judged(ctx, gpu_pci.PAYLOAD, pci("|1|10528|", "|1|10560|", samples.MACHINE)) == []


def test_pci_errors_by_their_weight(ctx: Context) -> None:
    for row, outcome in (("0|0|3", FAIL), ("0|3|0", WARN), ("100|0|0", WARN), ("99|0|0", PASS)):
        assert one(ctx, gpu_pci.ERRORS, pci("16|16|0|0|0", f"16|16|{row}")).outcome is outcome
    none = Output(rc=0, stdout=samples.pci(NODE).stdout.replace("16|16|0|0|0", "16|16|||"))
    found = one(ctx, gpu_pci.ERRORS, none)
    assert found.outcome is NOT_RUN and not found.required
    virtual = replace(none, stdout=none.stdout.replace(samples.METAL, samples.MACHINE))
    assert judged(ctx, gpu_pci.ERRORS, virtual) == []


def test_an_adapter_in_a_slower_slot_is_as_it_should_be(ctx: Context) -> None:
    """Its port's own limit decides: a Gen5 adapter in a Gen4 slot runs at 16 GT/s."""
    lines = samples.pci(NODE).stdout.splitlines()
    (row,) = [line for line in lines if line.startswith("mlx5_0|")]
    slower = row.replace("32.0 GT/s PCIe|32", "16.0 GT/s PCIe|32")
    parent = row.split("|")[2]
    gen4 = [
        slower if line == row
        else line.replace("32.0", "16.0") if line.startswith(f"bridge|{parent}|")
        else line for line in lines
    ]  # fmt: skip
    assert one(ctx, gpu_pci.ADAPTERS, Output(rc=0, stdout="\n".join(gen4))).outcome is PASS
    alone = [slower if line == row else line for line in lines]
    found = one(ctx, gpu_pci.ADAPTERS, Output(rc=0, stdout="\n".join(alone)))
    assert found.outcome is FAIL and "16 of 32 GT/s" in found.summary


def counted(ctx: Context, history: dict[str, list[float]] | None = None, **counts: int) -> Finding:
    text = samples.counters(NODE).stdout
    for name, count in counts.items():
        text = text.replace(f"{name} 0", f"{name} {count}", 1)
    known = {f"fabric.counters {k}": v for k, v in (history or {}).items()}
    return one(replace(ctx, history=known), fabric_counters.CHECK, Output(rc=0, stdout=text))


def test_counters_by_their_threshold(ctx: Context) -> None:
    assert counted(ctx).outcome is PASS
    few = counted(ctx, symbol_error=9)
    assert few.outcome is WARN and few.metrics["symbol_error_count"] == 9
    many = counted(ctx, symbol_error=10, link_downed=30)
    assert many.outcome is FAIL and "symbol_error: mlx5_0/1 10" in many.summary
    assert "link_downed: mlx5_0/1 30" in many.summary
    assert counted(ctx, port_xmit_discards=5000).outcome is WARN


def test_ports_that_count_nothing(ctx: Context) -> None:
    rows = [
        x for x in samples.counters(NODE).stdout.splitlines() if x.startswith(("port m", "end"))
    ]
    virtual = one(ctx, fabric_counters.CHECK, Output(rc=0, stdout="\n".join(rows)))
    assert virtual.outcome is NOT_RUN and not virtual.required
    text = samples.counters(NODE).stdout.replace("link_downed 0\n", "", 1)
    some = one(ctx, fabric_counters.CHECK, Output(rc=0, stdout=text))
    assert some.outcome is NOT_RUN and some.required and "mlx5_0/1: link_downed" in some.summary


def test_counters_against_the_last_verify(ctx: Context) -> None:
    old = counted(ctx, {"symbol_error_count": [4, 500.0]}, symbol_error=500)
    assert old.outcome is WARN and "none new" in old.summary
    new = counted(ctx, {"symbol_error_count": [500.0]}, symbol_error=512)
    assert new.outcome is FAIL and "12 new since the last verify" in new.summary
    assert counted(ctx, {"symbol_error_count": [510.0]}, symbol_error=512).outcome is WARN
    reset = counted(ctx, {"symbol_error_count": [9000.0]}, symbol_error=11)
    assert reset.outcome is FAIL and "11 new" in reset.summary
    assert counted(ctx, {"symbol_error_count": [3.0]}, symbol_error=3).outcome is PASS


def look(ctx: Context, check: Check, **changes: str) -> list[Finding]:
    return judged(ctx, check, samples.fabric_look(NODE, None, **changes))


def test_acs_and_iommu_concern_bare_metal(ctx: Context) -> None:
    bridge = samples.chain(NODE.gpus[0].slot)[2]
    on = samples.fabric_look(NODE, bridges={bridge: "29"})
    found = one(ctx, fabric_look.ACS, on)
    assert found.outcome is FAIL and bridge in found.summary
    passed_through = checks_samples.with_config(ctx, acs_off=False)
    assert judged(passed_through, fabric_look.ACS, on) == []
    for check in (fabric_look.ACS, fabric_look.IOMMU):
        assert look(ctx, check, virt="kvm") == []
        (unknown,) = look(ctx, check, virt="")
        assert unknown.outcome is NOT_RUN


def test_an_iommu_parameter_that_is_lost_on_its_way(ctx: Context) -> None:
    (lost,) = look(ctx, fabric_look.IOMMU, next="\tlinux\t/boot/vmlinuz root=UUID=1 ro")
    assert lost.outcome is WARN and "the next boot has it no more" in lost.summary


def test_cards_without_a_near_adapter(ctx: Context) -> None:
    lines = samples.fabric_look(presets.node("head1", SKU, ["hca-missing"])).stdout
    found = one(ctx, fabric_look.MAP, Output(rc=0, stdout=lines))
    assert found.outcome is WARN and "no adapter near 0000:db:00.0" in found.summary
    (none,) = look(ctx, fabric_look.MAP, gpus="")
    assert none.outcome is NOT_RUN and "no card is in /sys" in none.summary
    assert look(ctx, fabric_look.MAP, gpus="", virt="docker") == []


def test_modules_that_must_be_built_again(ctx: Context) -> None:
    (found,) = look(
        ctx, fabric_look.MODULES, dkms=f"gdrdrv/2.4, {samples.KERNEL}, x86_64: built", gdrcopy=""
    )
    assert found.outcome is WARN and "gdrdrv 2.4 is not built" in found.summary


def test_the_next_boot(ctx: Context) -> None:
    def boot(place: str = samples.METAL, **changes: str) -> list[Finding]:
        text = "\n".join(["## place", place, *driver_samples.text(**changes)])
        return judged(ctx, next_boot.CHECK, Output(rc=0, stdout=text))

    assert boot()[0].outcome is PASS
    (gone,) = boot(built="")
    assert gone.outcome is FAIL and "has no nvidia.ko" in gone.summary
    (late,) = boot(loaded=driver_samples.LOADED.replace("535.129.03", "535.54.03"))
    assert late.outcome is WARN and "reboot due: the loaded module is 535.54.03" in late.summary
    assert boot(pci="= 1")[0].outcome is NOT_RUN
    assert boot(place=samples.CONTAINER) == []


def held(ctx: Context, **changes: str) -> Finding:
    return one(ctx, gpu_holders.CHECK, samples.sectioned(samples.HOLDERS, **changes))


def test_who_has_a_card_open(ctx: Context) -> None:
    assert held(ctx).outcome is PASS
    orphan = held(ctx, units="vllm@two.service loaded failed failed engine")
    assert orphan.outcome is FAIL and "left over from vllm@two" in orphan.summary
    gone = held(ctx, units="")
    assert gone.outcome is FAIL
    for state in ("activating", "deactivating"):
        assert held(ctx, units=f"vllm@two.service loaded {state} x engine").outcome is PASS
    stuck = held(ctx, holders="77|VLLM::Worker|D|0::/system.slice/vllm@two.service")
    assert stuck.outcome is WARN and "state D" in stuck.summary
    assert held(ctx, units="Failed to connect to bus").outcome is FAIL  # and not told
    assert held(ctx, holders="", units="Failed to connect to bus").outcome is NOT_RUN


def health(ctx: Context, **changes: str) -> list[Finding]:
    return judged(ctx, gpu_dcgm.CHECK, samples.sectioned(samples.DCGM, **changes))


@pytest.mark.parametrize(
    ("text", "outcome", "named"),
    [
        ("Error: unable to establish a connection to the specified host\nstatus 255", NOT_RUN,
         "unable to establish"),
        ("Health watches not enabled. Please enable watches.\nstatus 1", NOT_RUN, "watches"),
        ("| Overall Health | Warning |\n| -> 2 | Warning: thermal |\nstatus 0", WARN, "thermal"),
        ("| Overall Health | Failure |\n| -> 2 | Failure: XID |\nstatus 0", FAIL, "XID"),
        ("| Overall Health | Healthy |\nstatus 3", NOT_RUN, "status 3"),
        ("status 0", NOT_RUN, "nothing of health"),
    ],
)  # fmt: skip
def test_dcgm(ctx: Context, text: str, outcome: Outcome, named: str) -> None:
    (found,) = health(ctx, health=text)
    assert found.outcome is outcome and named in found.summary
    assert outcome is not NOT_RUN or not found.required
    assert health(ctx, dcgmi="none", health="") == []


def docker(ctx: Context, check: Check, **changes: str) -> list[Finding]:
    return judged(ctx, check, samples.sectioned(samples.DOCKER, **changes))


def test_the_container_toolkit(ctx: Context) -> None:
    (old,) = docker(ctx, containers.TOOLKIT, toolkit="ii  1.14.0-1")
    assert old.outcome is FAIL and "1.19.1-1 is pinned" in old.summary
    (plain,) = docker(ctx, containers.TOOLKIT, info='{"runc":{}}\nstatus 0')
    assert plain.outcome is WARN and "no runtime nvidia" in plain.summary
    (snap,) = docker(ctx, containers.TOOLKIT, docker="/snap/bin/docker")
    assert snap.outcome is WARN and "is a snap" in snap.summary
    gone = {"docker": "none", "info": "", "containers": "", "toolkit": ""}
    for check in (containers.TOOLKIT, containers.SHM):
        assert docker(ctx, check, **gone) == []


@pytest.mark.parametrize(
    ("box", "outcome"),
    [
        ({"ShmSize": 67108864}, FAIL),
        ({"ShmSize": 2**29}, WARN),
        ({"ShmSize": 67108864, "IpcMode": "host"}, PASS),
        ({"Ulimits": None}, WARN),
        ({"Ulimits": None, "Privileged": True}, PASS),
        ({"ShmSize": "N/A"}, NOT_RUN),
    ],
)
def test_containers_with_cards(ctx: Context, box: dict[str, object], outcome: Outcome) -> None:
    row = f"/engine|{json.dumps(samples.BOX | box)}\nstatus 0"
    assert docker(ctx, containers.SHM, containers=row)[0].outcome is outcome


def test_containers_without_cards_are_nobodys_question(ctx: Context) -> None:
    row = f"/web|{json.dumps({'ShmSize': 67108864})}\nstatus 0"
    assert docker(ctx, containers.SHM, containers=row) == []
    (silent,) = docker(ctx, containers.SHM, containers="Cannot connect\nstatus 1")
    assert silent.outcome is NOT_RUN and not silent.required
