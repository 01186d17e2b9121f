"""A runner that answers the GPU checks' commands from a simulated node, and contexts for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rackpin.checks import (
    DEFAULT,
    fabric_hcas,
    fabric_manager,
    fabric_nvlink,
    gpu_count,
    gpu_driver,
    gpu_xid,
    gpuinfo,
)
from rackpin.checks.base import Command, Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.lab.hardware import kernel, presets
from rackpin.lab.hardware.answer import answer
from rackpin.lab.hardware.model import Node
from rackpin.skus import load_sku
from rackpin.stack.hostpins import DriverPin
from tests.unit import host_samples

GPU_CHECKS = [check for check in DEFAULT if check.id.split(".")[0] in ("gpu", "fabric")]
RELEASE = "5.15.0-1047-nvidia"


def context(target: Target, sku: str, *, driver: str = "535.129.03") -> Context:
    """head1 as a node of a SKU, its lock with a driver."""
    known = load_sku(sku).gpus
    node = target.fleet.nodes["head1"].model_copy(
        update={"sku": sku, "gpus": known.count, "nvswitch": known.nvswitch}
    )
    pin = DriverPin(
        version=driver,
        branch=driver[:3],
        flavour="closed",
        source="nvidia",
        fabric_manager=known.nvswitch,
    )
    lock = target.lock.but(host=target.lock.host.model_copy(update={"driver": pin}))
    return Context(target.fleet, node, lock)


@dataclass(frozen=True)
class Fake:
    """Answers what the shell text of each command would print on the node."""

    node: Node

    def __call__(self, commands: Sequence[Command]) -> dict[str, Output]:
        return {command.name: self.one(command.name) for command in commands if self.ours(command)}

    @staticmethod
    def ours(command: Command) -> bool:
        return command.name.startswith(("gpu.", "fabric."))

    def one(self, name: str) -> Output:
        makers = {
            gpuinfo.SMI.name: lambda: self._tool("nvidia-smi", "-q", "-x"),
            fabric_nvlink.STATE.name: lambda: self._tool("nvidia-smi", "nvlink", "-s"),
            gpu_count.PCI.name: lambda: self._tool("lspci", "-Dnn", "-d", "10de:"),
            gpu_driver.KERNEL.name: self._kernel,
            gpu_xid.LOG.name: self._log,
            fabric_manager.MANAGER.name: self._manager,
            fabric_hcas.HCAS.name: self._hcas,
        }
        more = host_samples.gpu_answers(self.node)
        return more[name] if name in more else makers[name]()

    def _tool(self, *argv: str) -> Output:
        if self.node.hang and argv[0] == "nvidia-smi":
            return Output(rc=124, seconds=gpuinfo.DEADLINE_S)
        found = answer(self.node, argv)
        return Output(found.code, found.stdout, found.stderr, 0.4)

    def _cat(self, path: str) -> str:
        return self._tool("cat", path).stdout

    def _kernel(self) -> Output:
        node = self.node
        nodes, libraries = [], []
        if node.loaded:
            nodes = [f"/dev/nvidia{gpu.minor}" for gpu in node.gpus]
            nodes += ["/dev/nvidiactl", "/dev/nvidia-uvm"]
        if node.driver:
            version = node.library or node.driver
            where = "/usr/lib/x86_64-linux-gnu"
            libraries = [f"{where}/{name}.so.{version}" for name in ("libnvidia-ml", "libcuda")]
        parts = {
            "loaded": self._cat("/proc/driver/nvidia/version"),
            "disk": self._tool("modinfo", "-F", "version", "nvidia").stdout,
            "libraries": "\n".join(libraries),
            "modules": self._cat("/proc/modules") or "ext4 811008 1 - Live 0x0000000000000000\n",
            "nodes": "\n".join(nodes),
            "release": RELEASE,
        }
        return sectioned(parts)

    def _log(self) -> Output:
        text = self._tool("dmesg").stdout
        lines = ["[    0.000000] Linux version 5.15.0", *text.splitlines()]
        kept = [line for line in lines if "Xid" in line or "NVRM" in line]
        return sectioned(
            {
                "dmesg": "\n".join(kept),
                "dmesg status": f"0 {len(lines)}\n{lines[0]}",
                "journal": "",
                "journal status": "1\n",
            }
        )

    def _manager(self) -> Output:
        node = self.node
        state = {"running": "active", "mismatch": "failed"}.get(node.fabric, "inactive")
        unit = f"LoadState=loaded\nActiveState={state}\nSubState=x\nResult=success"
        version = f"Fabric Manager version is : {node.fabric_version}"
        journal = "" if node.fabric in ("off", "none") else kernel.fabric_log(node)
        return sectioned({"unit": unit, "version": version, "journal": journal})

    def _hcas(self) -> Output:
        wanted = ("fw_ver", "hca_type", "state", "phys_state", "rate", "link_layer")
        lines = [f"device {nic.device}" for nic in self.node.nics]
        for path, text in kernel.sys_infiniband(self.node).items():
            if path.rpartition("/")[2] in wanted:
                lines.append(f"/sys/class/infiniband/{path}:{text.strip()}")
        return Output(rc=0, stdout="\n".join([*lines, "end"]) + "\n")


def sectioned(parts: dict[str, str]) -> Output:
    text = "".join(f"## {title}\n{body.rstrip()}\n" for title, body in parts.items())
    return Output(rc=0, stdout=f"{text}## end\n", seconds=0.1)


def answers(ctx: Context, node: Node) -> dict[str, Output]:
    """Outputs of all GPU commands of the context."""
    wanted = {c.name: c for check in GPU_CHECKS for c in check.commands(ctx)}
    return Fake(node)(list(wanted.values()))


def findings(ctx: Context, outputs: dict[str, Output]) -> dict[str, Finding]:
    found = [finding for check in GPU_CHECKS for finding in check.judge(ctx, outputs)]
    by_id = {finding.check: finding for finding in found}
    assert len(by_id) == len(found), "a check's id stands twice"
    return by_id


def look(target: Target, sku: str, *faults: str) -> dict[str, Finding]:
    """All findings of a simulated node of that SKU with faults."""
    ctx = context(target, sku)
    return findings(ctx, answers(ctx, presets.node("head1", sku, [f for f in faults if f])))


def bad(found: dict[str, Finding]) -> dict[str, Outcome]:
    return {name: one.outcome for name, one in found.items() if one.outcome is not Outcome.PASS}


def altered(output: Output, old: str, new: str, times: int = -1) -> Output:
    """The output with a part of its text replaced; the part must be there."""
    assert old in output.stdout, f"{old!r} is not in the sample"
    return replace(output, stdout=output.stdout.replace(old, new, times))
