"""``rackpin sbom``: the CycloneDX document of a lock or of an image."""

from __future__ import annotations

from pathlib import Path

import click

from rackpin.image.engine import ImageError
from rackpin.options import BadInput
from rackpin.stack.lock import load_stack
from rackpin.stack.pins import StackError


@click.command("sbom")
@click.argument("stack", required=False)
@click.option("--image", metavar="REF", help="What is really in this local image, not the lock.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: stdout."
)
def sbom_command(stack: str | None, image: str | None, output: Path | None) -> None:
    """Write the CycloneDX SBOM of STACK's lock, or of an image with --image."""
    from rackpin import sbom  # late: the library takes a moment

    if (stack is None) == (image is None):
        raise click.UsageError("give STACK or --image REF, one of them")
    try:
        text = sbom.of_image(image) if image else sbom.of_lock(load_stack(str(stack)).lock)
    except StackError as error:
        raise BadInput(str(error)) from None
    except ImageError as error:
        raise click.ClickException(str(error)) from None
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
