"""Rackpin: bare GPU hosts to a serving fleet that stays exactly as pinned, and proves it."""

import os
import sys

# pyinfra's command turns it off, for the sake of deploy files; rackpin's modules would be compiled
# anew by each run, which takes half a second.
if not os.environ.get("PYTHONDONTWRITEBYTECODE"):
    sys.dont_write_bytecode = False

__version__ = "0.1.0"
