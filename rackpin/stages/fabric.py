"""fabric: adapters and their names, what lies between them and the cards, NCCL's settings.

Everything here follows from what the survey found. A node without cards is left alone.
"""

from __future__ import annotations

from rackpin import layout
from rackpin.desired import Desired, OwnedFile, Target, owned, pending_mark
from rackpin.fabric import kernel, names
from rackpin.fabric.gpudirect import gpudirect
from rackpin.fabric.look import shell
from rackpin.fabric.select import INFINIBAND
from rackpin.fabric.settings import Derived, derive
from rackpin.fabric.versions import nccl_versions
from rackpin.gdrcopy.build import Build, build_of

CONF = "/etc/nccl.conf"
PEERMEM = "/etc/modules-load.d/90-rackpin-fabric.conf"
GRUB = "/etc/default/grub.d/90-rackpin-fabric.cfg"
NAMES = f"{layout.ETC}/hca-names"
ACS_UNIT = "rackpin-acs.service"
NAMES_UNIT = "rackpin-hca-names.service"
GDRCOPY_UNIT = "rackpin-gdrcopy.service"
GDRCOPY_PROGRAM = f"{layout.LIB}/gdrcopy"
UNITS = (ACS_UNIT, NAMES_UNIT, GDRCOPY_UNIT)
_UNIT = "/etc/systemd/system/{}"
PROGRAMS = (f"{layout.LIB}/acs-off", f"{layout.LIB}/hca-names", GDRCOPY_PROGRAM)
# Every path that this stage may have; the survey asks of all before it knows which it will be.
OWNED = (
    CONF,
    layout.NCCL_ENV,
    PEERMEM,
    GRUB,
    NAMES,
    *PROGRAMS,
    *(_UNIT.format(unit) for unit in UNITS),
)
TRIGGERS = ("daemon-reload", "update-grub")
PATHS = (*OWNED, *(pending_mark(trigger) for trigger in TRIGGERS))


def gdrcopy(target: Target) -> tuple[Build | None, str]:
    """What of gdrcopy this node is to have, or why there is none though the stack pins it."""
    bundle = target.fleet.config.bundle
    return build_of(target.lock, bundle.url if bundle else None)


def paths(target: Target) -> tuple[str, ...]:
    """Every path that this stage asks for."""
    build, _ = gdrcopy(target)
    return (*PATHS, build.mark, build.link) if build else PATHS


def flavour(target: Target) -> str:
    pin = target.lock.host.driver
    return pin.flavour if pin else ""


def settings(target: Target) -> Derived:
    """NCCL's settings of this node; nothing before the survey."""
    if target.fabric is None:
        return Derived()
    return derive(
        target.fabric,
        target.node.fabric_interface or target.interface,
        nccl_versions(target.lock),
        target.fleet.config.roce_traffic_class,
        target.node.env,
        flavour(target),
    )


def packages(target: Target) -> tuple[str, ...]:
    """What the lock has for the network's software."""
    every = target.lock.packages.get(target.os_key, [])
    return tuple(item.name for item in every if item.role == "rdma" and target.node.gpus)


def notes(target: Target) -> list[str]:
    """What a person should know of this node's fabric, worst first as far as that can be said."""
    fabric = target.fabric
    if fabric is None or not target.node.gpus:
        return []
    if not fabric.gpus:
        return ["no NVIDIA card on its PCI bus: fabric, CUDA and NCCL are left alone"]
    said = [*settings(target).notes, *kernel.device_notes(fabric, flavour(target))]
    if fabric.bare_metal:
        said += kernel.boot_notes(fabric)
    elif fabric.hcas:
        said.append(
            f"virtual machine ({fabric.virt}): ACS and IOMMU are the host's; its PCI tree may not "
            "be the real one, then NCCL_TOPO_FILE in `env` gives the vendor's"
        )
    if why := gdrcopy(target)[1]:
        said.append(f"no gdrcopy: {why}")
    if not fabric.hcas:
        said.append("no RDMA adapter: between nodes NCCL goes over TCP")
    elif (memlock := target.fleet.config.limits.memlock) != "infinity":
        said.append(
            f"limits.memlock is {memlock} bytes: adapters register more, so ibv_reg_mr fails"
        )
    infiniband = [p for hca in fabric.hcas for p in hca.ports if p.layer == INFINIBAND]
    if fabric.subnet_manager and not infiniband:
        said.append("opensm runs here, and no port is InfiniBand: it has nothing to manage")
    elif fabric.subnet_manager and any(p.physical == "LinkUp" and not p.up for p in infiniband):
        said.append("opensm runs here and a linked port is not active: bind it to that port's GUID")
    return said + names.notes(fabric)


def desired(target: Target) -> Desired:
    fabric = target.fabric
    if not target.node.gpus:
        return Desired()
    if fabric is None:
        return Desired(packages=packages(target), foreign=paths(target))
    if not fabric.gpus:
        return Desired(foreign=paths(target))
    files, units = _settings(target), []
    if fabric.hcas:
        files += _names(target)
        units.append(NAMES_UNIT)
        if gdrcopy(target)[0]:
            files += _gdrcopy()
            units.append(GDRCOPY_UNIT)
        if gpudirect(fabric, flavour(target)).by == "peermem":
            files.append(owned("etc/modules-load.d/90-rackpin-fabric.conf.j2"))
    if fabric.bare_metal:
        if target.fleet.config.acs_off:
            files += _acs()
            units.append(ACS_UNIT)
        if kernel.has_grub(fabric):
            values = {"words": " ".join(kernel.WORDS)}
            grub = "etc/default/grub.d/90-rackpin-fabric.cfg.j2"
            files.append(owned(grub, values=values, triggers=("update-grub",)))
    return Desired(
        files=tuple(files), packages=packages(target), units=tuple(units), foreign=paths(target)
    )


def _settings(target: Target) -> list[OwnedFile]:
    found = settings(target).settings
    # systemd lets a file win over Environment=, so an engine's own variables are not in one.
    own = {
        name
        for instance in target.fleet.config.instances
        if target.node.name in instance.nodes
        for name in instance.env
    }
    for_units = [setting for setting in found if setting.name not in own]
    return [
        owned("etc/nccl.conf.j2", values={"settings": found}),
        owned("etc/rackpin/nccl.env.j2", values={"settings": for_units}),
    ]


def _names(target: Target) -> list[OwnedFile]:
    assert target.fabric is not None
    values = {"lib": layout.LIB, "etc": layout.ETC}
    unit = f"etc/systemd/system/{NAMES_UNIT}.j2"
    return [
        owned("etc/rackpin/hca-names.j2", values={"names": names.table(target.fabric)}),
        owned("usr/local/lib/rackpin/hca-names.j2", mode="755"),
        owned(unit, values=values, triggers=("daemon-reload",)),
    ]


def _acs() -> list[OwnedFile]:
    unit = f"etc/systemd/system/{ACS_UNIT}.j2"
    values = {"functions": shell("pci.sh")}
    return [
        owned("usr/local/lib/rackpin/acs-off.j2", mode="755", values=values),
        owned(unit, values={"lib": layout.LIB}, triggers=("daemon-reload",)),
    ]


def _gdrcopy() -> list[OwnedFile]:
    unit = f"etc/systemd/system/{GDRCOPY_UNIT}.j2"
    return [
        owned("usr/local/lib/rackpin/gdrcopy.j2", mode="755"),
        owned(unit, values={"lib": layout.LIB}, triggers=("daemon-reload",)),
    ]
