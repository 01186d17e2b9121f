"""Recorded logs of engines that failed: the first finding against the index's class."""

from __future__ import annotations

import pytest

from rackpin.diagnose.engine import diagnose
from tests.recorded.corpus import Sample, needs_corpus, samples

pytestmark = needs_corpus

# the index's class → the rule that must come first
RULES = {
    "disk quota exceeded while downloading the model": "disk.quota",
    "free memory below gpu_memory_utilization": "vllm.free-memory-below-utilization",
    "no memory left for KV cache": "vllm.no-kv-cache-memory",
    "max model length does not fit KV cache": "vllm.max-len-exceeds-kv-cache",
    "attention heads not divisible by TP": "vllm.heads-not-divisible",
    "world size larger than GPU count": "vllm.world-size-over-gpus",
    "world size larger than GPU count; then CUDA OOM": "vllm.world-size-over-gpus",
    "ray placement group infeasible": "ray.placement-infeasible",
    "custom all-reduce graph registration": "vllm.custom-all-reduce",
    "custom all-reduce": "vllm.custom-all-reduce",
    "illegal memory access (reported in another place)": "vllm.custom-all-reduce-illegal-access",
    "spawn needs a real main file": "vllm.spawn-main",
    "worker died: illegal memory access in a GEMM tuner": "vllm.gemm-tuner-illegal-access",
    "engine core killed by SIGSEGV": "vllm.engine-killed-segv",
    "worker init failed (wrapper only)": "vllm.leftover-engine",
    "worker killed by host memory limit": "vllm.workers-gone-silently",
    "ray actor died": "ray.actor-died",
    "NCCL memory registration failed (GPUDirect)": "nccl.mr-registration",
    "NCCL memory registration failed (driver wedged)": "nccl.mr-registration",
    "hang in FlashInfer autotune": "vllm.flashinfer-autotune-hang",
    "NCCL RoCE GID index wrong": "nccl.gid-index",
    "NCCL unhandled system error": "nccl.unhandled-system-error",
    "RCCL: hostcall refused (no PCIe atomics)": "nccl.rccl-hostcall",
    "abort in ncclCommInitRank": "nccl.plugin-abort",
    "NCCL bootstrap: no interface": "nccl.no-interface",
    "NCCL data type not supported": "nccl.fp8",
    "rendezvous port in use on the master": "torch.port-in-use",
    "rendezvous port in use": "torch.port-in-use",
    "ray/python version mismatch": "ray.version-mismatch",
    "Gloo connects to loopback": "gloo.loopback",
    "Gloo cannot connect": "gloo.connect",
    "Gloo peer lost (secondary)": "gloo.peer-lost",
    "two nodes with the same node rank": "vllm.same-node-rank",
    "Gloo interface without address": "gloo.no-address",
    "NCCL: no network": "nccl.net-plugin",
    "bfloat16 not supported": "vllm.bf16-unsupported",
    "PyTorch without kernels for the GPU": "cuda.arch-not-in-torch",
    "kernel missing for the GPU (dtype)": "cuda.no-kernel-image",
    "device type not inferred": "cuda.device-type",
    "CUDA used before fork": "vllm.cuda-before-fork",
    "CUDA 802 system not yet initialized": "cuda.error-802",
    "no attention backend": "vllm.no-attention-backend",
    "oneCCL cannot list the GPU": "nccl.oneccl-device",
    "ray placement group: node address unknown": "ray.placement-node-address",
    "ray placement group pending although 16 GPUs are free": "ray.placement-pending",
    "ray nodes/addresses mismatch": "ray.addresses-mismatch",
    "hang after NCCL init": "vllm.hang-after-nccl-init",
    "NCCL library not loadable": "nccl.library",
    "tensor parallel larger than local GPUs": "vllm.tp-over-local-gpus",
}
# the index's key → the name of the detail, where they differ
DETAILS = {
    "demand_node": None,  # words of the index, no value of the text
    "port": "port", "device": "device", "free_gib": "free_gib", "total_gib": "total_gib",
    "util": "util", "need_gib": "need_gib", "max_len": "max_len", "have_gib": "have_gib",
    "est_max_len": "est_max_len", "kv_tokens": "kv_tokens", "heads": "heads", "tp": "tp",
    "world": "world", "gpus": "gpus", "available_kv_gib": "available_kv_gib", "dev": "dev",
    "gid_index": "gid_index", "errno": "errno", "cluster_ray": "cluster_ray",
    "cluster_python": "cluster_python", "node_ray": "node_ray", "node_python": "node_python",
    "interface": "interface", "engine": "engine", "cc": "cc", "sm": "sm", "head_size": "head_size",
    "kv_cache_dtype": "kv_cache_dtype", "addresses": "addresses",
    "alloc_gib": "alloc_gib", "exit_type": "exit", "connection_error_code": "code",
    "cuda_reason": "reason",
}  # fmt: skip


@pytest.mark.parametrize("sample", samples("engine-log"), ids=str)
def test_the_first_finding_is_the_cause(sample: Sample) -> None:
    findings = diagnose([(sample.file, sample.text)])
    expected = sample.expect["error_class"]
    if expected.startswith("none"):
        assert findings == []
        return
    first = findings[0]
    assert first.rule == RULES[expected]
    assert first.remedy and first.confidence in ("high", "medium", "low")
    cleaned = [line.strip() for line in sample.text.splitlines()]
    assert first.evidence.splitlines()[0][:40] in "\n".join(cleaned).replace(
        "\x1b[33m", ""
    ).replace("\x1b[0m", "")


@pytest.mark.parametrize("sample", samples("engine-log"), ids=str)
def test_the_values_of_the_message_are_named(sample: Sample) -> None:
    findings = diagnose([(sample.file, sample.text)])
    if sample.expect["error_class"].startswith("none"):
        assert findings == []
        return
    details = {k: v for finding in reversed(findings) for k, v in finding.details.items()}
    for key, value in sample.expect.items():
        name = DETAILS.get(key)
        if not name or value == "?":
            continue
        if value == "absent":
            assert name not in details
        elif key == "errno" and findings[0].rule == "torch.port-in-use":
            assert "98" in findings[0].evidence
        elif ".." in value:  # a range: the text has its first number
            assert details[name] == value.split("..")[0]
        else:
            assert details[name] == value, key
