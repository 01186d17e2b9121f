"""A fleet of simulated nodes behind an Asker: what mpirun and all_reduce_perf would answer."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rackpin.checks.base import Command, Output
from rackpin.inventory import Fleet, Node
from rackpin.lab.hardware import model, nccl, presets
from rackpin.lab.hardware.answer import answer
from rackpin.lab.hardware.parts import Answer, Hangs
from rackpin.skus import load_sku
from rackpin.verify import nccl_command

KEY = "ssh-ed25519 " + "A" * 68
# Speed of a set of nodes as a part of what it should be; 0: it never ends.
Factor = Callable[[Sequence[str]], float]


def fleet_of(fleet: Fleet, count: int, sku: str = "h100-sxm-8") -> Fleet:
    """gpu01 … of one SKU, and nothing else."""
    known = load_sku(sku).gpus
    nodes = [
        Node(
            name=f"gpu{n:02d}",
            groups=["workers"],
            address=f"10.8.{n // 200}.{n % 200 + 1}",
            sku=sku,
            gpus=known.count,
        )
        for n in range(1, count + 1)
    ]
    return fleet.model_copy(update={"nodes": {node.name: node for node in nodes}})


@dataclass
class Fabric:
    """``faults`` by node as the lab's; ``factor`` of a set; ``alter`` a run's printed rows."""

    fleet: Fleet
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)
    factor: Factor = lambda nodes: 1.0
    alter: Callable[[Sequence[str], str], str] = lambda nodes, text: text
    replace: Mapping[tuple[str, str], Output] = field(default_factory=dict)  # node, command
    silent: frozenset[str] = frozenset()
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    runs: list[list[tuple[str, ...]]] = field(default_factory=list)  # of each round
    printed: dict[object, Answer] = field(default_factory=dict)

    def __call__(self, wanted: Mapping[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
        self.asked.append({node: [one.name for one in some] for node, some in wanted.items()})
        if any(one.name == "nccl.run" for some in wanted.values() for one in some):
            self.runs.append([])
        return {
            node: {} if node in self.silent else {one.name: self._answer(node, one) for one in some}
            for node, some in wanted.items()
        }

    def _answer(self, node: str, command: Command) -> Output:
        if (node, command.name) in self.replace:
            return self.replace[node, command.name]
        if command.name == "nccl.run":
            return self._run(node, command)
        said = {
            "nccl.prepare": f"client {KEY} x\nhost {KEY} x\n",
            "nccl.trust": "trusted\n",
            "nccl.clear": "cleared\n",
            "nccl.clean": "clean\n",
        }
        return Output(rc=0, stdout=said[command.name], seconds=0.1)

    def _run(self, node: str, command: Command) -> Output:
        line = next(line for line in command.stdin.splitlines() if line.startswith("timeout -k 5"))
        words = line.partition(" >")[0].split()
        names = [node]
        if "--host" in words:
            by_address = {one.address: name for name, one in self.fleet.nodes.items()}
            hosts = words[words.index("--host") + 1].split(",")
            names = [by_address[host.removesuffix(":1")] for host in hosts]
        self.runs[-1].append(tuple(names))
        at = next(i for i, word in enumerate(words) if word.endswith("/rank"))
        rest = words[at + 2 :]
        env = {k: v for k, _, v in (w.partition("=") for w in rest if re.match(r"NCCL_\w+=", w))}
        argv = rest[len(env) :]
        factor = self.factor(names) if len(names) > 1 else 1.0
        nodes = [
            self._node(name, place, factor if place == 0 else 1.0)
            for place, name in enumerate(names)
        ]
        env = {**env, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "x"}
        status, rows, seconds = 124, "", float(words[3])
        try:
            if factor == 0:
                raise Hangs("a rank waits for another")
            key = (tuple(self._key(n) for n in names), factor, tuple(argv), tuple(env.items()))
            if key not in self.printed:
                self.printed[key] = answer(nodes[0], argv, env, with_nodes=nodes[1:])
            printed = self.printed[key]
            status, rows, seconds = printed.code, printed.stdout + printed.stderr, 8.0
        except Hangs:
            pass
        said = {"status": f"{status}\n", "rows": self.alter(names, rows), "errors": ""}
        gpus = int(argv[argv.index("-g") + 1])
        for place, name in enumerate(names):
            hung = nodes[place].rank_hang
            said[f"log {name}"] = "NCCL end\n" if hung else _digest(nodes, place, gpus, env)
        text = "".join(
            f"## {title}\n" + "".join(f"|{line}\n" for line in body.splitlines()) + "\n"
            for title, body in said.items()
        )
        return Output(rc=0, stdout=f"{text}## end\n", seconds=seconds)

    def _key(self, name: str) -> tuple[str, tuple[str, ...]]:
        return self.fleet.nodes[name].sku, tuple(self.faults.get(name, ()))

    def _node(self, name: str, place: int, factor: float) -> model.Node:
        """Named by its place in the run, so that like runs print the like."""
        made = _made(f"host{place + 1}", *self._key(name))
        if factor == 1.0:
            return made
        return made.model_copy(update={"network_factor": made.network_factor * factor})


@cache
def _made(name: str, sku: str, faults: tuple[str, ...]) -> model.Node:
    return presets.node(name, sku, faults)


_DIGESTS: dict[tuple[object, ...], str] = {}


def _digest(nodes: Sequence[model.Node], place: int, gpus: int, env: Mapping[str, str]) -> str:
    """What the node's own script leaves of its log; it doesn't depend on the others."""
    one = nodes[place]
    key = (one.name, one.preset.name, one.sockets, one.gdr, one.fabric, len(one.nics))
    key += (str(one.nics), place, len(nodes), gpus, tuple(env.items()))  # type: ignore[assignment]
    if key not in _DIGESTS:
        _DIGESTS[key] = _shortened(nodes, place, gpus, env)
    return _DIGESTS[key]


def _shortened(nodes: Sequence[model.Node], place: int, gpus: int, env: Mapping[str, str]) -> str:
    with tempfile.TemporaryDirectory() as directory:
        at = Path(directory)
        (at / "log.1.host.77").write_text(nccl.log(nodes, place, gpus, env))
        (at / "digest").write_text(nccl_command.DIGEST)
        command = ["sh", str(at / "digest"), "1"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
