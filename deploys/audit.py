"""audit: what the node should be, left on it for its own timer to compare."""

from rackpin.deploy import apply_files, here
from rackpin.operations import units

node = here()
wish = node.wish("audit")
SETTLE_S = 30  # a timer is active at once

apply_files("audit", wish)
units(name="audit: timer", names=wish.units, settle_s=SETTLE_S)
