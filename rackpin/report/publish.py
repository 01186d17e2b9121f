"""Where a finished run's report goes: its directory, and Prometheus where the site wants it."""

from __future__ import annotations

from pathlib import Path

from rackpin.findings import Report
from rackpin.inventory import FleetConfig
from rackpin.report.history import prune
from rackpin.report.prometheus import write_textfile
from rackpin.report.store import Written, write


def publish(report: Report, directory: Path, config: FleetConfig) -> Written:
    """Write all forms, and drop the oldest runs. Raises ``ReportError``."""
    written = write(report, directory)
    if config.metrics_file:
        write_textfile(report, Path(config.metrics_file).expanduser())
    prune(directory, config.reports_kept)
    return written
