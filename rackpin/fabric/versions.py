"""Which releases of NCCL a stack's nodes have."""

from __future__ import annotations

from rackpin.stack.lock import Lock


def nccl_versions(lock: Lock) -> list[str]:
    """The engine's and the host's, sorted; the wheel that is locked counts where none is pinned."""
    pins = lock.host.nccl
    found = {pin.version for pin in (pins.host, pins.engine) if pin}
    found |= {v for name, v in lock.dists.items() if name.startswith("nvidia-nccl-cu")}
    return sorted(found)
