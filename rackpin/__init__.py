"""Rackpin: bare GPU hosts to a serving fleet that stays exactly as pinned, and proves it."""

import gc
import os
import sys

# pyinfra's command turns it off, for the sake of deploy files; rackpin's modules would be compiled
# anew by each run, which takes half a second.
if not os.environ.get("PYTHONDONTWRITEBYTECODE"):
    sys.dont_write_bytecode = False

# Collecting garbage takes a tenth of a run that makes some hundred thousand objects and ends.
gc.set_threshold(50_000, 20, 20)

__version__ = "0.1.0"
