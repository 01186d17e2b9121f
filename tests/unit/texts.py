"""What happens to outputs on their way: ways to spoil a text, and a look at how time grows."""

from __future__ import annotations

import time
from collections.abc import Callable

from hypothesis import strategies as st

BANNERS = [
    "Warning: Permanently added '10.0.0.1' (ED25519) to the list of known hosts.\n",
    "[sudo] password for user: \n",
    "root@gpu01:~# ./run\n",
    "Welcome to Ubuntu 22.04.4 LTS (GNU/Linux 5.15.0-1 x86_64)\n\n",
]


def spoiled(text: str) -> st.SearchStrategy[str]:
    """The text with other line ends, colours, banners, a prefix on each line, or twice: all of
    them leave its meaning."""
    ways: list[Callable[[str], str]] = [
        lambda t: t,
        lambda t: t.replace("\n", "\r\n"),
        lambda t: "".join(f"\x1b[32m{line}\x1b[0m\n" for line in t.split("\n")),
        lambda t: "".join(f"(EngineCore_DP0 pid=7) {line}\n" for line in t.split("\n")),
        lambda t: "".join(f"[1,3]<stdout>:{line}\n" for line in t.split("\n")),
        lambda t: "".join(f"2025-05-26T18:00:25.881Z {line}   \n" for line in t.split("\n")),
        lambda t: t + t,
        *(lambda t, banner=banner: banner + t for banner in BANNERS),  # type: ignore[misc]
    ]
    return st.sampled_from(ways).map(lambda way: way(text))


def grows_gently(work: Callable[[str], object], text: str) -> bool:
    """Whether ten times the text takes less than twenty times the processor's time."""

    def taken(times: int) -> float:
        whole = text * times
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            work(whole)
            best = min(best, time.process_time() - began)
        return best

    size = max(1, 30_000 // len(text))
    return taken(size * 10) < 20 * max(taken(size), 0.01)
