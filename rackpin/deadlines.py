"""How long things may take, in seconds. Each number stands here once, with its reason."""

from __future__ import annotations

CONNECT_S = 10  # TCP and SSH handshake; pyinfra's own default
FACT_S = 60  # a fact that hangs (nvidia-smi in D state) costs its node one minute, F044
OPERATION_S = 900  # anything without a deadline of its own
APT_S = 1800  # a full closure over a slow mirror, plus the lock wait below
APT_LOCK_S = 600  # first-boot unattended-upgrades holds the lock for minutes, F023
APT_RETRY_S = (5, 15, 45)  # a mirror in the middle of its sync is whole again within a minute, F021
APT_HTTP_S = 20  # a mirror that says nothing for this long is tried again
DKMS_S = 1800  # one kernel's modules take 9 minutes on two busy cores
LOAD_S = 180  # eight cards are initialised one after the other
BOOT_S = 1800  # a server with eight cards tests itself for ten minutes and more before it boots
BOOT_ASK_S = 5  # between two tries to reach a node that reboots
SETTLE_S = 300  # from the first answer after a boot until its units are up
BUILD_S = 3600  # nccl-tests for every card generation on a few old cores
FETCH_S = 300  # one source archive, some 100 kB
ENVIRONMENT_S = 1800  # unpacking several GB of wheels on a slow disk
BUNDLE_S = 20  # a served bundle says what it is, before anything is changed
GATEWAY_S = 60  # a few files and nginx's own test of them
GATEWAY_RELOAD_S = 30  # new workers are there within a second; on a busy machine later
VERIFY_S = 180  # all checks of one node, smoke generation and collective included
# One wave's site.py: kernel and driver built, a reboot, an environment and the slowest engine.
ROLL_APPLY_S = 4 * 3600
INTERRUPT_S = 30.0  # pyinfra ends its own connections and writes its summary in that time
KILL_AFTER_S = 10  # between TERM and KILL of a remote command that passed its deadline
GRACE_S = 15  # the controller waits this much longer than the remote deadline
TCP_SILENT_S = 40  # a host that died is noticed after this, not after the kernel's 15 minutes
SSH_ASK_S = 15  # between two questions to sshd while a connection is open
SSH_SILENT_S = 90  # a node that swaps still answers within a minute; a frozen one never does
