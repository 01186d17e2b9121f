"""cuda: the toolkit at its pin without its driver, and the paths by which programs find it."""

from pyinfra import host

from rackpin.apt.wanted import pins
from rackpin.deploy import apply_files, here
from rackpin.facts_cuda import Cuda, CudaFact
from rackpin.operations import packages
from rackpin.operations_cuda import compat_off, toolkit_link
from rackpin.stages import cuda as stage

node = here()
target = node.target
wish = node.wish("cuda")

if wish.files:
    found = host.get_fact(CudaFact) or Cuda()
    node.run.notes += [f"{host.name}: cuda: {note}" for note in stage.notes(target, found)]
    packages(
        name="cuda: packages",
        names=wish.packages,
        versions={pin.name: pin.version for pin in pins(target)},
        broken=node.survey.dpkg_broken,
        hold=True,
    )
    apply_files("cuda", wish)
    toolkit_link(name="cuda: link", link=stage.LINK, home=stage.home(target))
    compat_off(name="cuda: no compat before the driver", allowed=stage.wants_compat(target))
