"""``rackpin parse KIND FILE|-``: what rackpin reads in a tool's output."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import IO, Any

import click

from rackpin.parse.kinds import KINDS, NotThisKind, reader


@click.command("parse")
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("file", type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on one line.")
def parse_command(kind: str, file: IO[bytes], as_json: bool) -> None:
    """Read FILE (- is standard input) as an output of KIND and print what it says.

    Exit 0 when the text was understood, an error that the tool itself reports included;
    1 when it is not an output of that kind or is cut so that nothing certain can be said.
    """
    text = file.read().decode("utf-8", errors="replace")
    understood, answer = 0, {}
    try:
        answer = asdict(reader(kind)(text))
    except NotThisKind as why:
        understood, answer = 1, {"errors": [str(why)]}
    click.echo(shown(answer, as_json))
    raise SystemExit(understood)


def shown(answer: dict[str, Any], as_json: bool) -> str:
    """The answer as text: compact for programs, indented for people."""
    return json.dumps(answer, ensure_ascii=False, indent=None if as_json else 2)
