"""The one error of bad input to the planner."""

from __future__ import annotations


class PlanError(ValueError):
    """The input can't be planned with; the message names the file or option, the key, a remedy."""
