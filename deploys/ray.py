"""ray: the head's unit, then the workers'. A running Ray is never restarted here."""

from rackpin.deploy import apply_files, here
from rackpin.operations import units
from rackpin.operations_verify import admit, judge_admission

node = here()
wish = node.wish("ray")
SETTLE_S = 180  # a worker waits for its head within this; longer waits go on without us

if node.target.fleet.in_ray(node.target.node):
    apply_files("ray", wish)
    admit(name="ray: look", run=node.run, target=node.target)
    judge_admission(name="ray: admit", run=node.run, target=node.target)
    units(name="ray: unit", names=wish.units, settle_s=SETTLE_S)
