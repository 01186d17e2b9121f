"""apt on a node: which repositories it trusts, by which key, and which versions it may take.

``keys`` reads signing keys, ``pins`` makes preferences and judges what apt makes of them,
``state`` is what the survey finds, ``scripts`` is what a node runs. Nothing here connects.
"""
