"""fabric: adapters, their names, what lies between them and the cards, and NCCL's settings."""

from rackpin.apt.wanted import pins
from rackpin.deploy import apply_files, here
from rackpin.fabric.gpudirect import gpudirect
from rackpin.operations import packages, units
from rackpin.operations_fabric import acs_off, gdrcopy_built, gone, peermem_loaded, rebuilt
from rackpin.stages import fabric as stage

node = here()
target, fabric = node.target, node.target.fabric
wish = node.wish("fabric")
SETTLE_S = 120  # as long as the units themselves may take
node.run.notes += [f"{target.node.name}: fabric: {note}" for note in stage.notes(target)]

if fabric and fabric.gpus and target.node.gpus:
    if wish.packages:
        packages(
            name="fabric: packages",
            names=wish.packages,
            versions={pin.name: pin.version for pin in pins(target)},
            broken=node.survey.dpkg_broken,
            hold=True,
        )
    gdrcopy, _ = stage.gdrcopy(target)
    if gdrcopy and fabric.hcas:
        gdrcopy_built(name="fabric: gdrcopy", build=gdrcopy, stage=wish)
    rebuilt(name="fabric: kernel modules", pin=target.lock.host.rdma)
    gone(name="fabric: files of an earlier wish", paths=stage.OWNED, stage=wish)
    apply_files("fabric", wish)
    way = gpudirect(fabric, stage.flavour(target))
    peermem_loaded(name="fabric: nvidia-peermem", wanted=way.by == "peermem")
    for unit in wish.units:
        units(name=f"fabric: {unit}", names=(unit,), settle_s=SETTLE_S)
    if stage.ACS_UNIT in wish.units:
        acs_off(name="fabric: ACS", unit=stage.ACS_UNIT)
