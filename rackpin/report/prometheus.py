"""A report as a Prometheus textfile: what the newest run said, for alerts and dashboards.

Values are in base units (seconds, bytes per second), as Prometheus names ask for. The number of
series grows with nodes × checks; pairs of nodes, which grow with its square, are told by node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from rackpin.findings import SEVERITY, Finding, Measurement, Outcome, Report
from rackpin.report.files import commit
from rackpin.report.shape import presentable
from rackpin.report.verdict import FLEET, STATES, by_node, judge, state_of

GB = 1e9  # nccl-tests counts 10^9 bytes a second
NAME = "rackpin.prom"  # in a textfile collector's directory
_BUSBW = {"busbw_gb_s": "busbw", "busbw_expected_gb_s": "busbw_expected"}
Sample = tuple[Mapping[str, str], float]


def write_textfile(report: Report, path: Path) -> Path:
    """Write ``path``, or ``rackpin.prom`` in it when it is a directory; whole or not at all.

    Readable by everyone, as a collector runs as another user. Raises :class:`ReportError`.
    """
    place = path / NAME if path.is_dir() else path
    commit({place: render(presentable(report)).encode()}, mode=0o644)
    return place


def render(report: Report) -> str:
    """The text of a cleaned report (:func:`shape.presentable`)."""
    lines: list[str] = []
    for name, help_text, samples in _families(report):
        if samples:
            lines += [f"# HELP rackpin_{name} {help_text}", f"# TYPE rackpin_{name} gauge"]
            lines += [f"rackpin_{name}{_labels(labels)} {value!r}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(report: Report) -> Iterator[tuple[str, str, list[Sample]]]:
    fleet = {"fleet": report.fleet}
    about = {"run": report.run, "deploy": report.deploy, "level": report.level,
             "stack": report.stack, "lock": report.lock}  # fmt: skip
    yield "run_info", "The run that the other values are of.", [({**fleet, **about}, 1.0)]
    yield "run_timestamp_seconds", "When the run started.", _time(report, fleet)
    yield "run_duration_seconds", "How long the run took.", [(fleet, report.seconds)]
    yield (
        "run_partial",
        "1: it ended early, not everything was asked.",
        [(fleet, float(report.partial))],
    )
    yield "fleet_ready", "1: the report is READY.", [(fleet, float(judge(report).ready))]
    yield from _nodes(report)
    yield from _bandwidth(report)
    yield from _instances(report)
    counts = Counter(one.node for one in report.outliers)
    yield (
        "node_outliers",
        "Values that differ from the siblings' of the same SKU.",
        [({**fleet, "node": node}, float(count)) for node, count in counts.items()],
    )


def _time(report: Report, fleet: Mapping[str, str]) -> list[Sample]:
    try:
        started = datetime.fromisoformat(report.started)
    except ValueError:
        return []  # a time that can't be read is no time
    return [(fleet, (started if started.tzinfo else started.replace(tzinfo=UTC)).timestamp())]


def _nodes(report: Report) -> Iterator[tuple[str, str, list[Sample]]]:
    grouped = by_node(report)
    states: list[Sample] = []
    ready: list[Sample] = []
    listed = {node.name: state_of(node.state, grouped[node.name]) for node in report.nodes}
    for name, state in listed.items():
        here = {"fleet": report.fleet, "node": name}
        ready.append((here, float(state == "ready")))
        states += [({**here, "state": one}, float(one == state)) for one in STATES]
    yield "node_ready", "1: the node may serve.", ready
    yield "node_state", "1 for the state that the node is in.", states
    checks: list[Sample] = []
    findings: list[Sample] = []
    for node, found in grouped.items():
        here = {"fleet": report.fleet, "node": node}
        counts = Counter(one.outcome for one in found)
        checks += [({**here, "outcome": one}, float(counts[one])) for one in Outcome]
        findings += [
            ({**here, "check": one.check, "outcome": one.outcome,
              "required": str(one.required).lower()}, 1.0)
            for one in _worst(found)
        ]  # fmt: skip
    yield "node_checks", "Findings of the node by outcome.", checks
    yield "finding", "The worst outcome of a check on a node.", findings


def _worst(found: list[Finding]) -> list[Finding]:
    """One finding a check, as a series may be there only once; a required one of equals."""
    ranked = sorted(found, key=lambda f: (-SEVERITY.index(f.outcome), f.required))
    return list({finding.check: finding for finding in ranked}.values())


def _bandwidth(report: Report) -> Iterator[tuple[str, str, list[Sample]]]:
    """By finding and by measurement; of a check that answered twice, the lower value."""
    taken: dict[tuple[str, str], Mapping[str, float]] = {}
    for finding in report.findings:
        key, value = (finding.node, finding.check), finding.metrics.get("busbw_gb_s")
        if value is not None and (key not in taken or value < taken[key]["busbw_gb_s"]):
            taken[key] = finding.metrics
    for metric, name in _BUSBW.items():
        yield (
            f"{name}_bytes_per_second",
            f"Bus bandwidth of a collective: {metric}.",
            [
                ({"fleet": report.fleet, "node": node, "check": check}, metrics[metric] * GB)
                for (node, check), metrics in taken.items()
                if metric in metrics
            ],
        )
    lowest = _lowest(report)
    for name, field in (("", "busbw_gb_s"), ("_expected", "expected_gb_s")):
        yield (
            f"measured_lowest_busbw{name}_bytes_per_second",
            "Of the collectives of this kind that a node took part in, the slowest one.",
            [
                ({"fleet": report.fleet, "node": node, "kind": kind, "library": library},
                 getattr(one, field) * GB)
                for (node, kind, library), one in lowest.items()
                if getattr(one, field) is not None
            ],
        )  # fmt: skip
    made = Counter((one.kind, one.library, one.outcome) for one in report.measurements)
    yield "measurements", "Collectives over several nodes by outcome.", [
        ({"fleet": report.fleet, "kind": kind, "library": library, "outcome": outcome},
         float(count))
        for (kind, library, outcome), count in made.items()
    ]  # fmt: skip


def _lowest(report: Report) -> dict[tuple[str, str, str], Measurement]:
    """By node (``fleet`` for all at once), kind and library; bisections prove, not measure."""
    lowest: dict[tuple[str, str, str], Measurement] = {}
    for one in report.measurements:
        if one.busbw_gb_s is None or one.kind in ("retest", "bisect"):
            continue
        for node in [FLEET] if one.kind == "fleet" else one.nodes:
            key = (node, one.kind, one.library)
            least = lowest[key].busbw_gb_s if key in lowest else None
            if least is None or one.busbw_gb_s < least:
                lowest[key] = one
    return lowest


def _instances(report: Report) -> Iterator[tuple[str, str, list[Sample]]]:
    named = {one.name: one for one in report.instances}  # a name that is there twice counts once
    here = {name: {"fleet": report.fleet, "instance": name} for name in named}
    yield (
        "instance_serving",
        "1: the smoke generation was answered well.",
        [(here[name], float(one.state == "serving")) for name, one in named.items()],
    )
    yield (
        "instance_ttft_seconds",
        "Time to the first token.",
        [(here[name], one.ttft_s) for name, one in named.items() if one.ttft_s is not None],
    )
    yield (
        "instance_output_tokens_per_second",
        "Output tokens per second.",
        [
            (here[name], one.tokens_per_s)
            for name, one in named.items()
            if one.tokens_per_s is not None
        ],
    )


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    return f"{{{pairs}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
