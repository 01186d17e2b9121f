"""nccl: the host's library at its pin, and nccl-tests built against the host's and the engine's."""

from pyinfra import host

from rackpin.apt.wanted import pins
from rackpin.deploy import here
from rackpin.operations import packages
from rackpin.operations_nccl import tests_built
from rackpin.stages import nccl as stage

node = here()
target = node.target
wish = node.wish("nccl")

if target.node.gpus and target.fabric and target.fabric.gpus:
    builds, notes = stage.tests(target)
    node.run.notes += [f"{host.name}: nccl: {note}" for note in notes]
    if wish.packages:
        packages(
            name="nccl: packages",
            names=wish.packages,
            versions={pin.name: pin.version for pin in pins(target)},
            broken=node.survey.dpkg_broken,
            hold=True,
        )
    for build in builds:
        tests_built(name=f"nccl: tests of the {build.kind}'s NCCL", build=build, stage=wish)
