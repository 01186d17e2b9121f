"""The gateway: which engines answer for which name, and how nginx is told without a dropped stream.

Requests come in at ``/NAME/v1/…``, NAME being an engine's ``served_name``: nginx can't read the
model out of a request's body. With one name in the fleet ``/v1/…`` is the same.
"""
