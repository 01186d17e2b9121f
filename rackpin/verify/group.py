"""The nodes of one SKU: in pairs, suspects again with sound partners, all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from rackpin.findings import Outcome
from rackpin.skus import Sku
from rackpin.verify import blame, pairs
from rackpin.verify.bisect import Search, bisect
from rackpin.verify.blame import Fault
from rackpin.verify.measure import Measurer
from rackpin.verify.nccl_run import Judged
from rackpin.verify.pairs import Matrix

DRIFT_BELOW = 0.97  # of the first third's median: sound fabrics repeat within a percent or two
LEAST_REPEATS = 3  # a burn-in says nothing of drift with fewer


@dataclass
class Group:
    """``out``: node → why it takes no part any more; ``unfit``: why a node's runs say nothing."""

    sku: Sku
    nodes: list[str]
    measure: Measurer
    matrix: Matrix = field(default_factory=Matrix)
    out: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, Judged] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    planned: int = 0
    done: int = 0
    together: Judged | None = None
    took: list[str] = field(default_factory=list)
    search: Search | None = None
    repeats: list[Judged] = field(default_factory=list)

    @property
    def active(self) -> list[str]:
        return [node for node in self.nodes if node not in self.out]

    @property
    def all_unfit(self) -> bool:
        """Not one run said anything of the hardware."""
        return not self.matrix.edges and bool(self.unfit)

    def pairwise(self, rounds: int | None) -> None:
        """All pairs, or those of the first ``rounds`` rounds; then who is at fault."""
        plan = pairs.circle(self.nodes)
        self.planned = len(plan)
        for disjoint in plan[:rounds]:
            sets = [pair for pair in disjoint if not self.out.keys() & set(pair)]
            found = self._run("pair", sets)
            self.done += 1
            if found and all(one.trouble == "unfit" for one in found):
                return  # a build, a log, memory: no further pair would say more
            self._settle(found)
        self._second_pass()
        self.faults += blame.faults(self.active, self.matrix)

    def _run(self, kind: str, sets: Sequence[Sequence[str]]) -> list[Judged]:
        found = self.measure.round("retest" if kind == "retest" else "pair", sets)
        for one in found:
            self.matrix.add(one)
            for node in one.collective.nodes:
                if one.trouble == "unfit":
                    self.unfit[node] = one
        return found

    def _settle(self, found: Sequence[Judged]) -> None:
        """Who of a pair that hung or broke it is: each with a sound partner, at once.

        One that does so again is out, so that its deadline isn't waited for in every round.
        """
        for one in found:
            for node in one.on_sockets:  # its log says so: nothing is to be found out
                self._exclude(node, one, one.measurement.why)
        stopped = [one for one in found if one.trouble in ("hung", "broken") and not one.on_sockets]
        if not stopped:
            return
        bad = {node for one in stopped for node in one.collective.nodes}
        sound = [node for node in self._sound(found) if node not in bad]
        tests = pairs.partnered([n for n in self.nodes if n in bad], sound, self.matrix)
        again = {pair[1]: one for pair, one in zip(tests, self._run("retest", tests), strict=True)}
        for one in stopped:
            ends = one.collective.nodes
            for node in ends:
                if node in again and again[node].trouble in ("hung", "broken"):
                    partner = again[node].collective.nodes[0]
                    word = blame.said([again[node]])
                    text = f"{node} is {word} with {' and '.join(_other(ends, node))}, and again "
                    text += f"with {partner}, which is sound{blame.why([again[node]])}"
                    self._exclude(node, again[node], text)
            for node in ends:
                other = _other(ends, node)[0]
                cleared = other in again and other not in self.out
                if node not in again and node not in self.out and other not in self.out:
                    text = f"{node} is {blame.said([one])} with {other}{blame.why([one])}"
                    if not cleared:
                        text += "; no sound partner was left to tell them apart"
                        self._exclude(other, one, text)
                    self._exclude(node, one, text)

    def _exclude(self, node: str, one: Judged, text: str) -> None:
        if node in self.out:
            return
        self.out[node] = text
        self.measure.tell(f"{node} is out of the further rounds: {text}")
        remedy = (
            "see the node's other findings, the journal and dmesg; "
            "run all_reduce_perf on it alone (nccl.loop)"
        )
        if one.on_sockets:
            remedy = (
                "see fabric.hcas and fabric.peermem; NCCL_IB_DISABLE and NCCL_IB_HCA in "
                "/etc/rackpin/nccl.env and /etc/nccl.conf; ibv_devinfo as the engine's user"
            )
        self.faults.append(Fault("node", (node,), text, Outcome.FAIL, remedy))

    def _sound(self, found: Sequence[Judged]) -> list[str]:
        """Nodes of pairs that ran well: of this round first."""
        now = [node for one in found if one.good for node in one.collective.nodes]
        before = [
            node
            for node in self.active
            if any(not self.matrix.bad(one) for one in self.matrix.partners(node).values())
        ]
        return list(dict.fromkeys([*now, *before]))

    def _second_pass(self) -> None:
        """Suspects with sound partners, then bad pairs by themselves: two rounds at most."""
        again, sound, twice = pairs.suspects(self.active, self.matrix)
        self._run("retest", pairs.partnered(again, sound, self.matrix))
        self._run("retest", twice)

    def whole(self) -> None:
        """All that are sound together; when that fails, the smallest part of it that does."""
        left: set[str] = set()
        for fault in self.faults:  # of a pair one is enough
            left |= set(fault.nodes[1:] if fault.kind == "pair" else fault.nodes)
        self.took = [node for node in self.active if node not in left]
        if len(self.took) < 2:
            return
        (self.together,) = self.measure.round("fleet", [self.took])
        if not self.together.good and self.together.trouble != "unfit":
            self.search = bisect(self.took, lambda sets: self.measure.round("bisect", sets))

    def burn(self, seconds: float, clock: Callable[[], float]) -> None:
        """The whole again and again, for that long, as long as it runs to its end."""
        end = clock() + seconds
        while self.together is not None and self.together.good:
            (one,) = self.measure.round("fleet", [self.took])
            self.repeats.append(one)
            if not one.good or (clock() >= end and len(self.repeats) >= LEAST_REPEATS):
                return

    @property
    def drift(self) -> float | None:
        """The last third's median speed as a part of the first third's."""
        speeds = [s for one in self.repeats if (s := one.measurement.busbw_gb_s) is not None]
        third = len(speeds) // 3
        return median(speeds[-third:]) / median(speeds[:third]) if third else None


def _other(ends: Sequence[str], node: str) -> list[str]:
    return [one for one in ends if one != node]
