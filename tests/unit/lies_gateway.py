"""Lies of a gateway: it answers, and not what it should."""

from __future__ import annotations

from tests.unit.lies import Lie, first, lie, pattern, two

GATE, UP, SAID = "gateway.gate", "gateway.upstreams", "gateway.answers"

LIES: dict[str, tuple[Lie, ...]] = {
    "gateway": (
        # Everybody gets in, and all else is as it should be.
        first(GATE, '"none": 401', '"none": 200', "without the key"),
        # An older configuration answers; the files are the new ones.
        pattern(GATE, "configuration [0-9a-f]{12}", "configuration 0123456789ab", "not in force"),
        two(lie(GATE, '"/two/invocations": 404', '"/two/invocations": 200', "/two/invocations"),
            first(GATE, '"wrong": 401', '"wrong": 500', "with a wrong key")),
        two(lie(GATE, '"ActiveState": "active"', '"ActiveState": "failed"', "is failed"),
            first(GATE, " 600 root", " 644 root", "mode and owner 644 root")),
    ),
    "gateway.upstreams": (
        lie(UP, '"one": [200', '"one": [503', "one: one (10.9.0.13:8000): 503"),
        two(lie(UP, '"one": [200, "0.003 s"]', '"one": [0, "no answer within 5 s"]', "no answer"),
            lie(UP, '"two": [200', '"two": [404', "10.9.0.11:8000): 404")),
    ),
    "gateway.answers": (
        # Another program's engine, or the wrong upstream.
        first(SAID, '"model": "two"', '"model": "one"', "one answers, not two"),
        two(first(SAID, '"tokens": 4', '"tokens": 0', "usage says 0 tokens"),
            lie(SAID, '"model": "one"', '"model": "x"', "x answers, not one")),
    ),
}  # fmt: skip
