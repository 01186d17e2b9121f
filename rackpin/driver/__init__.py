"""The GPU driver on a node: what is found, what is wrong with it, when a reboot is due.

``state`` is what the survey finds, ``want`` what the lock asks for, ``decide`` compares them,
``scripts`` is what a node runs. Nothing here connects.
"""
