"""Rackpin: bare GPU hosts to a serving fleet that stays exactly as pinned, and proves it."""

__version__ = "0.1.0"
