"""serve: the engines whose API server is on this node. A running engine is never restarted here."""

from rackpin.deploy import apply_files, here
from rackpin.operations import units
from rackpin.operations_verify import admit, judge_admission

node = here()
wish = node.wish("serve")

if wish.units:
    instances = node.target.fleet.instances_on(node.target.node)
    apply_files("serve", wish)
    admit(name="serve: look", run=node.run, target=node.target)
    judge_admission(name="serve: admit", run=node.run, target=node.target)
    units(
        name="serve: engines",
        names=wish.units,
        settle_s=max(i.wait_s + i.start_timeout_s for i in instances),
    )
