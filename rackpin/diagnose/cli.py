"""``rackpin diagnose LOG…|-``: what is wrong, by the known failures, and what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

import click

from rackpin.diagnose.engine import Finding, diagnose, unknown_errors


@click.command("diagnose")
@click.argument("logs", metavar="LOG...", type=click.File("rb"), nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON list on one line.")
def diagnose_command(logs: Sequence[IO[bytes]], as_json: bool) -> None:
    """Read LOGs of one failure (- is standard input) and name its cause, evidence and remedy.

    Logs of all nodes given together are judged together. Exit 0 when nothing known was found
    (that does not prove that nothing is wrong), 1 with findings, 2 for bad usage.
    """
    texts = [
        (getattr(log, "name", "-"), log.read().decode("utf-8", errors="replace")) for log in logs
    ]
    findings = diagnose(texts)
    if as_json:
        click.echo(json.dumps([as_data(finding) for finding in findings], ensure_ascii=False))
    elif findings:
        click.echo("\n\n".join(shown(at, finding) for at, finding in enumerate(findings, 1)))
    else:
        click.echo(nothing([text for _, text in texts]))
    raise SystemExit(1 if findings else 0)


def as_data(finding: Finding) -> dict[str, Any]:
    """A finding as the JSON has it."""
    return {
        "cause": finding.cause,
        "evidence": finding.evidence,
        "remedy": finding.remedy,
        "rule": finding.rule,
        "confidence": finding.confidence,
        "kind": finding.kind,
        "file": finding.file,
        "line": finding.line,
        "details": finding.details,
        "source": finding.source,
    }


def shown(at: int, finding: Finding) -> str:
    """A finding for people."""
    evidence = finding.evidence.replace("\n", "\n     ")
    return (
        f"{at}. {finding.cause}\n"
        f"   {finding.file}:{finding.line}:\n     {evidence}\n"
        f"   To do: {finding.remedy}\n"
        f"   ({finding.kind}, confidence {finding.confidence}, rule {finding.rule})"
    )


def nothing(texts: Sequence[str]) -> str:
    """What to say without findings: unknown stays unknown."""
    if errors := unknown_errors(texts):
        last = errors[-1]
        return (
            f"Unknown: {len(errors)} lines look like errors and no rule knows them. The last one, "
            f"line {last.number}:\n  {last.shown}"
        )
    return "Nothing known was found, and no line looks like an error."
