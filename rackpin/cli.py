"""``rackpin …``: what pyinfra has no verb for. Changes go through ``pyinfra INVENTORY DEPLOY``.

Exit codes: 0 done, 1 the answer is no (not ready, problems found), 2 bad input or usage.
``rackpin audit`` has its own: 2 drift, 3 could not look; ``rackpin roll`` has 3 for paused.
"""

from __future__ import annotations

from importlib import import_module

import click

from rackpin import __version__

# name → where the command is. Imported when it is used: some bring the whole of pyinfra, and
# `check` has to answer within a second.
COMMANDS = {
    "adopt": "rackpin.adopt.cli:adopt_command",
    "audit": "rackpin.audit.cli:audit",
    "bundle": "rackpin.bundle.cli:bundle_command",
    "check": "rackpin.compat.cli:check_command",
    "diagnose": "rackpin.diagnose.cli:diagnose_command",
    "diff": "rackpin.stack.lock_cli:diff_command",
    "drain": "rackpin.gateway.cli:drain_command",
    "image": "rackpin.image.cli:image",
    "inventory": "rackpin.inventory_cli:inventory",
    "lab": "rackpin.lab.cli:lab",
    "lock": "rackpin.stack.lock_cli:lock_command",
    "model": "rackpin.stack.lock_cli:model_command",
    "parse": "rackpin.parse.cli:parse_command",
    "plan": "rackpin.plan.cli:plan_command",
    "quarantine": "rackpin.fleet.cli:quarantine_command",
    "rebuild": "rackpin.rebuild.cli:rebuild_command",
    "report": "rackpin.report.cli:report",
    "roll": "rackpin.roll.cli:roll_command",
    "sbom": "rackpin.sbom_cli:sbom_command",
    "verify": "rackpin.verify.cli:verify_command",
    "wheelhouse": "rackpin.stack.cli:wheelhouse_command",
}


class LazyGroup(click.Group):
    """A group that imports a command when somebody asks for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=LazyGroup)
@click.version_option(__version__)
def main() -> None:
    """Bare GPU hosts to a serving fleet that stays exactly as pinned, and proves it."""
