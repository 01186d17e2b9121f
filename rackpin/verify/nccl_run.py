"""One collective: what is run, for how long at most, and what its answer says.

all_reduce_perf over one node or several, one process a node over all its cards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rackpin.checks import allreduce
from rackpin.checks.base import Command, Output, cut, mask, one_line, unseen
from rackpin.findings import Measurement, Outcome
from rackpin.nccltests.build import ROOT, Kind
from rackpin.skus import Figure, Sku
from rackpin.verify import transport

UNJUDGED_SIZE = 2**30  # bytes, where no figure names a size: fits any card, and only compares
START_S = 60.0  # mpirun, CUDA on eight cards one after the other, NCCL's rings
START_EACH_S = 1.0  # for every further node
SLOWEST = 4.0  # so much slower than what fails is as good as hung
UNKNOWN_GB_S = 0.5  # without a figure: half of a 10 Gb/s link
RINGS = {"NCCL_ALGO": "RING"}  # a tree between two nodes tells more than the wire gives
LOOP = {
    **RINGS,
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
}

# What became of a run. ``slow``, ``wrong`` (data), ``way`` (the wrong one): it ran to its end;
# ``broken``: it failed; ``hung``: not within its deadline; ``unfit``: says nothing of hardware.
Trouble = Literal["", "slow", "wrong", "way", "broken", "hung", "unfit"]
RunKind = Literal["loop", "pair", "retest", "bisect", "fleet"]


@dataclass(frozen=True)
class Collective:
    """``gpus`` of each node; ``nodes``: the launcher first; ``number`` names its files."""

    kind: RunKind
    nodes: tuple[str, ...]
    sku: Sku
    gpus: int
    library: Kind = "engine"
    round: int = 0
    number: int = 0

    @property
    def _at(self) -> tuple[Figure, int] | None:
        return self.sku.at(self.sku.nic_loop if self.kind == "loop" else self.sku.internode)

    @property
    def figure(self) -> Figure | None:
        return self._at[0] if self._at else None

    @property
    def size(self) -> int:
        """Bytes: the size the figure is for."""
        return self._at[1] if self._at else UNJUDGED_SIZE

    @property
    def ranks(self) -> int:
        return self.gpus * len(self.nodes)

    @property
    def environment(self) -> dict[str, str]:
        return LOOP if self.kind == "loop" else RINGS

    @property
    def program(self) -> str:
        return f"{ROOT}/{self.library}/{allreduce.TOOL}"

    @property
    def deadline_s(self) -> int:
        """For the run itself: its start, and iterations far slower than any that counts."""
        floor = self.figure.fail_below / SLOWEST if self.figure else UNKNOWN_GB_S
        moved = 2 * (self.ranks - 1) / self.ranks * self.size / 1e9
        each = 2 * (allreduce.ITERATIONS + allreduce.WARMUP) + 2  # both halves, and the checks
        start = START_S + START_EACH_S * (len(self.nodes) - 1)
        return int(start + each * moved / floor) + 1


@dataclass(frozen=True)
class Judged:
    """A measurement, why it is no pass, and what each node's log says of the way."""

    collective: Collective
    measurement: Measurement
    trouble: Trouble = ""
    faults: tuple[str, ...] = ()
    remedy: str = ""
    evidence: str = ""
    on_sockets: tuple[str, ...] = ()  # nodes whose log says so, where the SKU has a fabric
    ways: Mapping[str, str] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """It ran to its end and gave what doesn't fail, be it slower than it should be."""
        return self.measurement.outcome is not Outcome.FAIL and self.trouble in ("", "slow")


def parts(text: str) -> dict[str, str]:
    """The sections of a run's answer, by title; a line of theirs begins with a bar."""
    found: dict[str, str] = {}
    title = ""
    for line in text.splitlines():
        if line.startswith("## "):
            title = line[3:].strip()
            found[title] = ""
        elif title and line.startswith("|"):
            found[title] += line[1:] + "\n"
    return found


def judge(one: Collective, asked: Command, output: Output) -> Judged:
    """What the run says. Anything but a whole, checked run at the size, the right way, is no pass.

    Never raises for what the text holds.
    """
    said = parts(output.stdout)
    if output.truncated:
        why = f"the answer of {len(one.nodes)} nodes is longer than is kept"
        return _unfit(one, output, why, "run it over fewer nodes at a time", said)
    if output.rc is None or output.timed_out or "end" not in said:
        if output.rc == 127:
            return _unfit(one, output, one_line(output.stderr, 200), BUILD)
        said_so = one_line(output.stderr, 200)
        why = unseen(asked, output) or f"its answer is not whole (status {output.rc}): {said_so}"
        return _judged(one, output, "hung", [why], said)
    status = said.get("status", "").strip()
    rc = int(status) if status.isdigit() else None
    wrong_way = transport.look(one.sku, one.kind, one.nodes, said)
    if rc in (124, 137):
        why = f"not done within {one.deadline_s} s"
        return _judged(one, output, "hung", [*wrong_way.faults, why], said, wrong_way)
    text = f"{said.get('rows', '')}\n{said.get('errors', '')}"
    missing = f"{one.program}" in text and ("not there" in text or "No such file" in text)
    if rc == 127 or missing:
        return _unfit(one, output, f"it could not start: {one_line(text, 200)}", BUILD, said)
    told = allreduce.judge(
        text, rc, gpus=one.gpus, ranks=one.ranks, size=one.size, figure=one.figure
    )
    if told.apart and not told.wrong:
        return _unfit(one, output, told.untold[0], MPI, said)
    if told.shrunk and not told.faults:
        return _unfit(one, output, told.untold[0], MEMORY, said)
    faults = [*wrong_way.faults, *told.faults]
    untold = [*told.untold, *wrong_way.untold]
    if untold and not faults:
        return _unfit(one, output, f"not told: {'; '.join(untold)}", AGAIN, said, told.speed)
    trouble: Trouble = ""
    if told.wrong:
        trouble = "wrong"
    elif told.broken:
        trouble = "broken"
    elif wrong_way.faults:
        trouble = "way"
    elif faults or told.worries:
        trouble = "slow"
    outcome = Outcome.FAIL if faults else Outcome.WARN if told.worries else Outcome.PASS
    listed = [*faults, *told.worries]
    if not listed and one.figure is None:
        outcome, listed = Outcome.NOT_RUN, [f"no figure is recorded for {one.sku.name}"]
    return _judged(one, output, trouble, listed, said, wrong_way, outcome, told.speed)


MPI = "build nccl-tests with MPI: libopenmpi-dev among the stack's debs, then deploys/nccl.py"
BUILD = "build nccl-tests on these nodes: pyinfra INVENTORY deploys/nccl.py -y"
MEMORY = "end what holds the cards' memory (nvidia-smi), or give the SKU a figure of a smaller size"
AGAIN = "run it again; when it stays so, look at the evidence and try the command on the node"


def _unfit(
    one: Collective,
    output: Output,
    why: str,
    remedy: str,
    said: Mapping[str, str] | None = None,
    speed: float | None = None,
) -> Judged:
    found = _judged(one, output, "unfit", [why], said or {}, None, Outcome.NOT_RUN, speed)
    return Judged(**{**found.__dict__, "remedy": remedy})


def _judged(
    one: Collective,
    output: Output,
    trouble: Trouble,
    faults: list[str],
    said: Mapping[str, str],
    way: transport.Ways | None = None,
    outcome: Outcome = Outcome.FAIL,
    speed: float | None = None,
) -> Judged:
    figure = one.figure
    measurement = Measurement(
        kind=one.kind,
        nodes=list(one.nodes),
        round=one.round,
        library=one.library,
        size_bytes=one.size,
        busbw_gb_s=speed,
        expected_gb_s=figure.expected if figure else None,
        warn_below_gb_s=figure.warn_below if figure else None,
        fail_below_gb_s=figure.fail_below if figure else None,
        transport=way.text if way else "",
        outcome=outcome,
        why=mask(one_line("; ".join(faults), 400)),
        seconds=output.seconds or None,
    )
    shown = "\n".join(said.get(part, "").strip() for part in ("rows", "errors")).strip()
    return Judged(
        one,
        measurement,
        trouble,
        tuple(faults),
        evidence=mask(cut(shown or output.stderr or output.stdout)),
        on_sockets=tuple(way.on_sockets) if way else (),
        ways=way.by_node if way else {},
    )
