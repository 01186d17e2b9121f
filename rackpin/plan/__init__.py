"""What split of a model over cards starts, how much memory each part takes, and what it serves.

The arithmetic is pure: a model's ``config.json``, a card, a split and an engine's version in, an
answer with reasons out. Every constant stands in ``rackpin/data/plan/*.yaml`` with its source.
"""
