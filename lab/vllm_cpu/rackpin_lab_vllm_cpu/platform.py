"""The CPU platform as the lab needs it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm.platforms.cpu import CpuPlatform

if TYPE_CHECKING:  # vllm.config asks for the platform while it is itself being imported
    from vllm.config import VllmConfig


class LabCpuPlatform(CpuPlatform):
    """vLLM's CPU platform, which also runs under ``--distributed-executor-backend ray``."""

    # Hosts claim one with `ray start --num-gpus=1`; upstream leaves it empty and refuses Ray.
    ray_device_key = "GPU"
    # Small helpers stay compiled even with --enforce-eager, and inductor would want a C++ compiler.
    simple_compile_backend = "eager"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "rackpin_lab_vllm_cpu.communicator.LabCpuCommunicator"

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Start no more processes, and import torch no more often, than a host with GPUs does.

        Upstream gives a single worker a process of its own, and spawns every process afresh, to
        bind threads to cores. The lab binds none (VLLM_CPU_OMP_THREADS_BIND=nobind,
        OMP_NUM_THREADS=1), and each avoided import is 5 s less of a start.
        """
        parallel = vllm_config.parallel_config
        alone = parallel.distributed_executor_backend == "uni"
        super().check_and_update_config(vllm_config)
        if alone:
            parallel.distributed_executor_backend = "uni"
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
