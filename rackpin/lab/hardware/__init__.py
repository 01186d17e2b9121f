"""Simulated hardware of lab hosts, and of nodes without a host.

``presets.node`` makes a node of a preset, a name and faults; ``answer.answer`` says what a command
prints on it; ``tree.tree`` is the same as files and programs for a host without Python, which
``place.put`` writes onto its disk.
"""
