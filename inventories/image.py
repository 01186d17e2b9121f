"""One container that becomes the image of a stack.

RACKPIN_STACK names the stack and RACKPIN_WHEELHOUSE the address of its wheels. RACKPIN_IMAGE is
`@local` inside `docker build`, or `@docker/IMAGE` or `@docker/CONTAINER` from outside.
"""

import os

from rackpin.inventory_problems import FLEET, InventoryError, Problem

_stack = os.environ.get("RACKPIN_STACK", "")
if not _stack:
    _problem = Problem(FLEET, "RACKPIN_STACK", "is not set", "set it to a directory of stacks/")
    raise InventoryError([_problem], __file__)

image = [
    (
        os.environ.get("RACKPIN_IMAGE", "@local"),
        {
            "stack": _stack,
            "wheelhouse_url": os.environ.get("RACKPIN_WHEELHOUSE", "http://127.0.0.1:8900"),
        },
    )
]
