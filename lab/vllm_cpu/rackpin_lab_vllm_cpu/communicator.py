"""Collectives between ranks that may be on different hosts."""

import os
import socket
from typing import Any

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

IDENT = "VLLM_DIST_IDENT"


class LabCpuCommunicator(CpuCommunicator):
    """Shared memory on one host, torch.distributed (gloo) as soon as two hosts take part.

    Upstream compares the ranks' VLLM_DIST_IDENT to decide, and gives every rank of an engine the
    same one wherever it runs; with the host's name in it, the comparison tells the truth.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        suffix = f"-{socket.gethostname()}"
        ident = os.environ[IDENT]  # CPUWorker sets it before the first group is made
        if not ident.endswith(suffix):  # one communicator per group, one ident per process
            os.environ[IDENT] = ident + suffix
        super().__init__(*args, **kwargs)
