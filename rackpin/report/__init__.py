"""Findings of one run as JSON, JUnit XML, HTML and a terminal summary."""

from rackpin.report.files import ReportError
from rackpin.report.publish import publish
from rackpin.report.store import Written, load, write
from rackpin.report.summary import terminal
from rackpin.report.verdict import Verdict, judge

__all__ = ["ReportError", "Verdict", "Written", "judge", "load", "publish", "terminal", "write"]
