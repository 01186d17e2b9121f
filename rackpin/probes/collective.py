"""One all-reduce over all Ray nodes with torch's gloo backend: is the data right, how fast is it.

Sent together with ray_cluster.py, in one process: importing Ray and joining takes seconds.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from datetime import timedelta
from typing import Any


def interface_of(address: str) -> str:
    """Name of the interface that has this IPv4 address; empty when none has."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
            except OSError:
                continue  # an interface without IPv4
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""


class Rank:
    """A Ray actor on one node: tells what it runs with, and takes its part in the all-reduce."""

    def __init__(self, rank: int, address: str) -> None:
        self.rank, self.address = rank, address

    def hello(self) -> dict[str, Any]:
        """Versions and place of this process; a free port for the meeting point."""
        import ray

        self.interface = interface_of(self.address)
        if self.interface:  # otherwise gloo guesses by the host's name
            os.environ["GLOO_SOCKET_IFNAME"] = self.interface
        import torch

        with socket.socket() as probe:
            probe.bind((self.address, 0))
            port = probe.getsockname()[1]
        return {
            "rank": self.rank,
            "address": self.address,
            "ray_address": ray.util.get_node_ip_address(),
            "hostname": platform.node(),
            "interface": self.interface,
            "python": platform.python_version(),
            "ray": ray.__version__,
            "torch": torch.__version__,
            "prefix": os.path.realpath(sys.prefix),
            "port": port,
        }

    def reduce(self, meeting: str, world: int, work: dict[str, int]) -> dict[str, Any]:
        """Seconds of each measured round and the number of wrong elements over all rounds.

        Each rank adds its number to a pattern that differs by place, so that exchanged or
        repeated parts show; all sums are whole numbers that float32 holds exactly.
        """
        import torch
        import torch.distributed as dist

        dist.init_process_group(
            "gloo", init_method=meeting, rank=self.rank, world_size=world,
            timeout=timedelta(seconds=work["timeout_s"]),
        )  # fmt: skip
        try:
            pattern = (torch.arange(work["bytes"] // 4) % 4093).to(torch.float32)
            right = pattern * world + world * (world - 1) // 2
            data = torch.empty_like(pattern)
            seconds, wrong = [], 0
            for number in range(work["warmup"] + work["rounds"]):
                torch.add(pattern, self.rank, out=data)
                dist.barrier()
                started = time.perf_counter()
                dist.all_reduce(data)
                took = time.perf_counter() - started
                if number >= work["warmup"]:
                    seconds.append(took)
                wrong += int(torch.count_nonzero(data != right))
        finally:
            dist.destroy_process_group()
        return {"rank": self.rank, "seconds": seconds, "wrong": wrong}


def figures(ranks: list[dict[str, Any]], size: int) -> dict[str, Any]:
    """Of all ranks' rounds: a round takes as long as its slowest rank. GB/s are 1e9 bytes."""
    world = len(ranks)
    rounds = [max(times) for times in zip(*(r["seconds"] for r in ranks), strict=True)]
    mean = sum(rounds) / len(rounds)
    algbw = size / mean / 1e9
    return {
        "world": world,
        "bytes": size,
        "seconds": rounds,
        "wrong": sum(rank["wrong"] for rank in ranks),
        "wrong_ranks": [rank["rank"] for rank in ranks if rank["wrong"]],
        "algbw_gb_s": algbw,
        "busbw_gb_s": algbw * 2 * (world - 1) / world,
    }
