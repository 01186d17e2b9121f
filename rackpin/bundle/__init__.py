"""Everything of a lock in one directory, for sites without another way out.

``build`` fetches and proves, ``verify`` reads every byte again, ``serve`` gives it to nodes.
"""
