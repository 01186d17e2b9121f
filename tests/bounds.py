"""What a run over the lab's fleet may cost, in counts. Times differ by machine, these don't.

Each bound has its measurement and about 30 % room. A change that needs more says why in its commit.
"""

# Remote executions of a node. The survey, and all checks of verify.
NOOP_EXECUTIONS = 2
# One changed file: the survey, the file, its trigger, the facts again after each, and verify.
CHANGE_EXECUTIONS = 6
# Bytes of the survey's script for the head of tests/conftest.py's fleet.
SURVEY_SENT = 26_000  # 19 764
# The same of the verify script at level node.
VERIFY_SENT = 59_000  # 45 107
# Both, and an allowance, not a measurement, for ssh's handshake, login and packets.
NOOP_SENT = SURVEY_SENT + VERIFY_SENT + 10_000
# What a node sends back in such a run, the same allowance included, and pyinfra's operations.
NOOP_RECEIVED = 160_000  # 118 969, a head that serves
NOOP_OPERATIONS = 82  # 63
