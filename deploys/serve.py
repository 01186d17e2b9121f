"""serve: the engines whose API server is on this node. A running engine is never restarted here."""

from rackpin.deploy import apply_files, here
from rackpin.operations import units
from rackpin.operations_models import placed_model
from rackpin.operations_verify import admit, judge_admission
from rackpin.stages.serve import placed

node = here()
wish = node.wish("serve")

fleet = node.target.fleet

for model in placed(node.target):
    placed_model(
        name=f"serve: model {model.name}",
        model=model,
        bundle_url=fleet.config.bundle.url,
        transfers=fleet.config.transfers,
        share=fleet.share(node.target.node, node.run.surveys or ()),
    )

if wish.units:
    instances = fleet.instances_on(node.target.node)
    apply_files("serve", wish)
    admit(name="serve: look", run=node.run, target=node.target)
    judge_admission(name="serve: admit", run=node.run, target=node.target)
    units(
        name="serve: engines",
        names=wish.units,
        settle_s=max(i.wait_s + i.start_timeout_s for i in instances),
    )
