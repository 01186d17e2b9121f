"""``rackpin …``: what pyinfra has no verb for. Changes go through ``pyinfra INVENTORY DEPLOY``.

Exit codes: 0 done, 1 the answer is no (not ready, problems found), 2 bad input or usage.
"""

from __future__ import annotations

import click

from rackpin import __version__
from rackpin.image.cli import image
from rackpin.inventory_cli import inventory
from rackpin.lab.cli import lab
from rackpin.report.cli import report
from rackpin.sbom_cli import sbom_command
from rackpin.stack.cli import lock_command, wheelhouse_command


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Bare GPU hosts to a serving fleet that stays exactly as pinned, and proves it."""


for command in (image, inventory, lab, lock_command, report, sbom_command, wheelhouse_command):
    main.add_command(command)
