"""JUnit XML for CI: a suite per node, a test case per finding; green only when ready."""

from __future__ import annotations

from collections import Counter

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from rackpin.findings import Finding, Report
from rackpin.report.nodes import NodeView, rows_of
from rackpin.report.tasks import stopped
from rackpin.report.verdict import EARLY, FLEET, NO_REASON, WORD, judge, kind_of


def render(report: Report) -> bytes:
    """The XML of a cleaned report (:func:`shape.presentable`), UTF-8.

    fail → failure; required not_run → error, so that CI isn't green; other not_run → skipped;
    warn → passed with ``system-out``; of a quarantined node all but a pass → skipped. A report
    that isn't ready never gives a green file.
    """
    xml = JUnitXml(f"rackpin {report.deploy} {report.fleet}")
    rows = rows_of(report)
    red = False
    suites = []
    for row in rows:
        suite = TestSuite(row.name)
        suite.timestamp = report.started
        suite.hostname = row.result.address if row.result and row.result.address else row.name
        for key in ("run", "level", "stack", "lock"):
            suite.add_property(key, getattr(report, key))
        cases = _cases(report, row)
        red = red or any(case.is_failure or case.is_error for case in cases)
        suite.add_testcases(cases)
        suites.append(suite)
    verdict = judge(report)
    said = []
    if report.partial:  # also beside failures: what is missing may be worse than what is there
        said.append(("report.partial", f"the run ended early, not everything was asked: {EARLY}"))
    if not verdict.ready and not red and not said:
        against = "; ".join(verdict.contradictions)
        said.append(("report.ready", f"{verdict.line}; {against}" if against else verdict.line))
    for name, text in said:
        case = TestCase(name, classname=f"{report.fleet}.{FLEET}", time=0.0)
        case.result = [Error(text, name)]
        suites.append(TestSuite("report"))
        suites[-1].add_testcase(case)
    for suite in suites:
        xml.add_testsuite(suite)
    xml.update_statistics()
    xml.time = report.seconds
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + bytes(xml.tostring()) + b"\n"


def _cases(report: Report, row: NodeView) -> list[TestCase]:
    classname = f"{report.fleet}.{row.name}"
    cases = []
    for task in stopped([row]):  # a node that was never reached has no finding that says so
        case = TestCase("node.state", classname=classname, time=0.0)
        result = Error(f"{task.label}: {task.found}", "node.state")
        result.text = f"do: {task.remedy}"
        case.result = [result]
        cases.append(case)
    if row.kept_out:
        case = TestCase("node.state", classname=classname, time=0.0)
        case.result = [Skipped(f"quarantined: {row.reason or NO_REASON}", "node.state")]
        cases.append(case)
    seen: Counter[str] = Counter()
    for finding in row.findings:
        seen[finding.check] += 1
        again = seen[finding.check]
        name = finding.check if again == 1 else f"{finding.check} [{again}]"
        cases.append(_case(finding, name, classname, row.kept_out))
    return cases


def _case(finding: Finding, name: str, classname: str, kept_out: bool) -> TestCase:
    case = TestCase(name, classname=classname, time=finding.evidence.seconds or 0.0)
    kind = kind_of(finding)
    if kept_out and kind != "pass":  # its owner knows; CI is about the nodes that should serve
        left_out = Skipped(f"quarantined node, {WORD[kind]}: {finding.summary}", finding.check)
        left_out.text = _details(finding)
        case.result = [left_out]
    elif kind == "warn":
        case.system_out = f"warn: {finding.summary}\n{_details(finding)}"
    elif kind != "pass":
        make = {"fail": Failure, "blocked": Error, "not_run": Skipped}[kind]
        result = make(finding.summary, finding.check)
        result.text = _details(finding)
        case.result = [result]
    return case


def _details(finding: Finding) -> str:
    lines = [
        f"{label}: {text}"
        for label, text in (
            ("expected", finding.expected),
            ("do", finding.remedy),
            ("source", finding.source),
            ("command", finding.evidence.command),
        )
        if text
    ]
    return "\n".join([*lines, finding.evidence.output])
