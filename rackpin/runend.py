"""The last word of a pyinfra run: report, summary, and an exit code that tells the truth."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyinfra import logger
from pyinfra.api.state import StateStage
from rich.console import Console

from rackpin import report as reports
from rackpin.runlog import CONNECT, RunLog


def close(run: RunLog) -> None:
    """Last word of the process: report, summary, and an exit code that tells the truth."""
    if run.state.current_stage < StateStage.Execute and not all_unreachable(run):
        return  # only planned, or refused before anything was touched: nothing to report
    if not run.expects_verify:
        for note in run.notes:  # a run that verifies has them in its summary
            print(f"Note: {note}", file=sys.stderr)
        print_counts(run)
        if run.interrupted:
            os._exit(130)
        return
    document = run.finish()
    written = reports.publish(document, run.report_dir(), run.fleet.config)
    console = Console(stderr=True)
    reports.terminal(document, console)
    print_counts(run)
    logger.info("Report: %s", written.html)
    sys.stdout.flush()
    sys.stderr.flush()
    if run.interrupted:
        os._exit(130)  # pyinfra itself would say 0 after Ctrl-C
    if not document.ready:
        os._exit(1)


def all_unreachable(run: RunLog) -> bool:
    return all(log.failed and log.stage == CONNECT for log in run.nodes.values())


def print_counts(run: RunLog) -> None:
    """SSH commands per node on one line; in RACKPIN_COUNTS, a file, all counts of the run."""
    counts = {host.name: host.connector.executions for host in run.state.inventory}
    misses = sum(host.connector.misses for host in run.state.inventory)
    text = " ".join(f"{name}={count}" for name, count in counts.items())
    print(f"Remote executions: {text} (facts outside the survey: {misses})", file=sys.stderr)
    if path := os.environ.get("RACKPIN_COUNTS"):
        traffic = {host.name: host.connector.traffic for host in run.state.inventory}
        document = {
            "executions": counts,
            "misses": misses,
            "operations": len(run.state.get_op_order()),
            "sent": {name: sent for name, (sent, _) in traffic.items()},
            "received": {name: received for name, (_, received) in traffic.items()},
            "working_s": {
                host.name: {stage: round(s, 3) for stage, s in host.connector.working.items()}
                for host in run.state.inventory
            },
        }
        Path(path).write_text(json.dumps(document))
