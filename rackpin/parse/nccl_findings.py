"""What follows from an NCCL log as a whole: faults that no single line of it states."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# WARN lines that only advise; the job goes on. Sources: RCCL init.cc, aws-ofi-nccl, nccl#1737.
_ADVICE = re.compile(
    r"iommu=pt|NUMA auto balancing|kernel\.numa_balancing|Missing \"?iommu|MSCCL|"
    r"could not find any local path|Kernel version .* dmabuf|"
    r"Failed to open libibverbs|\(ras/|"
    r"NET/OFI .*(?:not supported, using|falling back|is recommended)",
    re.IGNORECASE,
)


@dataclass
class Seen:
    """Values by name, each once, in the order in which the text has them."""

    values: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, name: str, value: str) -> None:
        if value:
            self.values.setdefault(name, {})[value] = None

    def list(self, name: str) -> list[str]:
        return [*self.values.get(name, {})]

    def first(self, name: str) -> str | None:
        return next(iter(self.values.get(name, {})), None)


def advisory(warning: str) -> bool:
    """Whether a WARN line is advice and no fault."""
    return bool(_ADVICE.search(warning))


def within_one_host(seen: Seen) -> bool:
    """Whether every rank of the job is seen on one host: then the network carries nothing."""
    ranks = max(map(int, seen.list("nranks")), default=0)
    hosts = seen.list("host")
    return len(hosts) == 1 and ranks > 0 and len(seen.list(f"ranks on {hosts[0]}")) == ranks


def derived_errors(seen: Seen) -> dict[str, str]:
    """Faults told by comparing hosts and lines: a name → the fault in words.

    * GPUDirect RDMA is off on a job that goes over the network.
    * Hosts run different builds: other version numbers, or the wording of other releases (the
      blank before the colon went in 2.19 to 2.27, file by file).
    * Loopback is among the interfaces of a job on several hosts (horovod#789).
    """
    errors: dict[str, str] = {}
    hosts = seen.list("host")
    off = seen.list("gdr off")
    if off and "Enabled" not in seen.list("gdr") and not within_one_host(seen):
        errors["gdr-disabled"] = f"GPU Direct RDMA disabled for {', '.join(off)}"
    for what in ("version", "wording"):
        of = {host: frozenset(seen.list(f"{what} of {host}")) for host in hosts}
        said = [words for words in of.values() if words]
        if len(set(said)) > 1 and _differ(said, what):
            where = ", ".join(hosts)
            errors["different-builds"] = (
                f"different NCCL builds on the hosts {where}: other {what}s"
            )
            break
    if len(hosts) > 1 and seen.list("lo on") and len(seen.list("interface")) > 1:
        errors["loopback"] = "loopback (lo) is among the interfaces of a job on several hosts"
    return errors


def _differ(said: list[frozenset[str]], what: str) -> bool:
    """Versions differ when no host shares one; wordings when one and the same subject is spelt
    with the blank on one host and without on another."""
    if what == "version":
        return not frozenset.intersection(*said)
    every = frozenset.union(*said)
    both = {word for word in every if word.endswith(" ") and word.rstrip() in every}
    spelt = [{word for word in words if word.rstrip() + " " in both} for words in said]
    told = [words for words in spelt if words]
    return len(told) > 1 and not set.intersection(*told)
