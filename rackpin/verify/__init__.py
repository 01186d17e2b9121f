"""Verify: which questions, to which nodes, in which order; no connection of its own."""
