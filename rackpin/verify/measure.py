"""Rounds of collectives: disjoint sets of nodes at the same time, one question to each launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackpin.checks.base import NO_ANSWER
from rackpin.findings import Measurement
from rackpin.nccltests.build import Kind
from rackpin.skus import Sku
from rackpin.verify import launch, nccl_command, nccl_run
from rackpin.verify.asking import Asker, Tell
from rackpin.verify.launch import Session
from rackpin.verify.nccl_run import Collective, Judged, RunKind


@dataclass
class Measurer:
    """``skus`` and ``gpus`` by node; ``into`` gets every measurement as it comes."""

    ask: Asker
    tell: Tell
    session: Session
    skus: Mapping[str, Sku]
    gpus: Mapping[str, int]
    library: Kind
    into: list[Measurement]
    rounds: int = 0
    runs: int = 0
    evidence: dict[str, str] = field(default_factory=dict)

    def round(self, kind: RunKind, sets: Sequence[Sequence[str]]) -> list[Judged]:
        """Run them at the same time; results in the same order. A hung set's nodes are cleared."""
        if not sets:
            return []
        self.rounds += 1
        asked, found = [], []
        for nodes in sets:
            self.runs += 1
            first = nodes[0]
            one = Collective(
                kind=kind,
                nodes=tuple(nodes),
                sku=self.skus[first],
                gpus=self.gpus[first],
                library=self.library,
                round=self.rounds,
                number=self.runs,
            )
            asked.append((one, nccl_command.command(one, self.session)))
        outputs = self.ask({one.nodes[0]: [command] for one, command in asked})
        for one, command in asked:
            output = outputs.get(one.nodes[0], {}).get(command.name, NO_ANSWER)
            found.append(nccl_run.judge(one, command, output))
        self.into += [result.measurement for result in found]
        self._clear([result for result in found if result.trouble == "hung"])
        self._say(kind, found)
        return found

    def _clear(self, hung: Sequence[Judged]) -> None:
        nodes = [node for one in hung for node in one.collective.nodes]
        if nodes and any(len(one.collective.nodes) > 1 for one in hung):
            self.ask({node: [launch.clear(self.session)] for node in nodes})

    def _say(self, kind: str, found: Sequence[Judged]) -> None:
        bad = [one for one in found if not one.good]
        speeds = [speed for one in found if (speed := one.measurement.busbw_gb_s) is not None]
        text = f"round {self.rounds} ({kind}): {len(found) - len(bad)} of {len(found)} well"
        if speeds:
            text += f", {min(speeds):g} to {max(speeds):g} GB/s"
        self.tell(text)
        for one in bad:
            self.tell(f"  {', '.join(one.collective.nodes[:8])}: {one.measurement.why}")
