"""Serial numbers, UUIDs and GUIDs: made from a node's name, so they stay and no two are alike."""

from __future__ import annotations

import hashlib

MELLANOX = 0xB83FD2  # one of the vendor's address blocks (IEEE OUI)


def _digest(*words: object) -> bytes:
    return hashlib.sha256("/".join(map(str, words)).encode()).digest()


def gpu_uuid(*words: object) -> str:
    """As nvidia-smi shows it: GPU-8-4-4-4-12."""
    return f"GPU-{uuid('gpu', *words)}"


def uuid(*words: object) -> str:
    text = _digest(*words).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


def serial(*words: object) -> str:
    """Thirteen digits, as on the board's label."""
    return f"165{int.from_bytes(_digest('serial', *words)[:6]) % 10**10:010d}"


def guid(*words: object) -> int:
    """64 bits, the vendor's block first; the same with a hole in the middle is the port's MAC."""
    low = int.from_bytes(_digest("guid", *words)[:3])
    return MELLANOX << 40 | 0x0300 << 24 | low


def number(limit: int, *words: object) -> int:
    return int.from_bytes(_digest("number", *words)[:4]) % limit
