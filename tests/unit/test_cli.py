"""The command line: every command can be had, and none is imported before it is asked for."""

import click
from click.testing import CliRunner

from rackpin.cli import COMMANDS, main


def test_every_command_is_there_and_says_what_it_does() -> None:
    told = CliRunner().invoke(main, ["--help"])
    assert told.exit_code == 0
    with click.Context(main) as context:
        for name in COMMANDS:
            command = main.get_command(context, name)
            assert command is not None and command.name == name
            assert command.get_short_help_str()
            assert f"\n  {name} " in told.output


def test_an_unknown_command_is_bad_usage() -> None:
    assert CliRunner().invoke(main, ["lockk"]).exit_code == 2
