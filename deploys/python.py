"""python: the lock's environment, hashes enforced, and the atomic link to it."""

from rackpin.deploy import here
from rackpin.operations import activate, environment

node = here()
wish = node.wish("python")
lock = node.target.lock

environment(
    name="python: environment",
    lock=lock,
    url=node.target.fleet.config.wheelhouse_url,
    stage=wish,
    share=node.target.fleet.share(node.target.node, node.run.surveys or ()),
)
activate(name="python: current link", lock=lock, stage=wish)
