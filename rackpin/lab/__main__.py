"""`python -m rackpin.lab`."""

from rackpin.lab.cli import lab

lab(prog_name="rackpin lab")
