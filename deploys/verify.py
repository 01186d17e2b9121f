"""verify: asks every node what it really is; changes nothing. Writes the report.

By itself: ``pyinfra inventories/prod.py deploys/verify.py -y``.
"""

from rackpin.deploy import here
from rackpin.operations_verify import report_node, verify_node

node = here(refuse=False)
node.run.expects_verify = True

verify_node(name="verify: node", run=node.run, target=node.target)
report_node(name="verify: report", run=node.run, target=node.target)
