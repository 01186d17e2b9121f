"""What happens to a tool's output on its way, for the property tests of all readers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from rackpin.parse.kinds import NotThisKind


def _each(prefix: str) -> Callable[[str], str]:
    return lambda text: "".join(prefix + line for line in text.splitlines(keepends=True))


# None of these changes what a text says.
HARMLESS: dict[str, Callable[[str], str]] = {
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "mark": lambda text: "\ufeff" + text,
    "colours": lambda text: text.replace("\n", "\x1b[0m\n\x1b[1;32m"),
    "trailing blanks": lambda text: text.replace("\n", "   \n"),
    "blank lines around": lambda text: f"\n\n{text}\n\n",
    "indented": _each("    "),
    "container log": _each("2026-03-01T10:20:30.123456789Z stdout F "),
    "timestamps": _each("[2026-03-01 10:20:30] "),
    "syslog": _each("Mar  1 10:20:30 gpu01 probe[77]: "),
    "mpirun": _each("[1,0]<stdout>:"),
    "mpirun 5": _each("[prterun-gpu01-9@1,0]<stdout>: "),
    "srun --label": _each("0: "),
    "pdsh": _each("gpu01: "),
    "docker compose": _each("probe-1  | "),
    "comment": _each("# "),
    "quoted": _each("> "),
    "stamped tags": lambda text: _each("2026-03-01T10:20:30Z ")(_each("[1,0]<stdout>:")(text)),
    "banner and prompts": lambda text: (
        "Warning: Permanently added 'gpu01' (ED25519) to the list of known hosts.\n"
        f"[sudo] password for ops: \nroot@gpu01:~# the-tool --of-this\n{text}root@gpu01:~# \n"
    ),
}

_WORDS = (
    "GPU0 GPU1 X NV12 SYS | +--- : # NIC0: 0-11 N/A ERR! 8 2 float sum -1 0.5 { [ ] } Port 1: "
    "CA 'mlx5_0' Link algbw busbw size count time <nvidia_smi_log> <gpu , Rank 0 on 25 GB/s CPU"
)
garbage = st.one_of(
    st.text(max_size=400),
    st.lists(st.sampled_from([*_WORDS.split(), "\n", "\t"]), max_size=80).map(" ".join),
)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """The text with a piece cut out of either end, and something odd put in the middle."""
    end = draw(st.integers(0, len(text)))
    start = draw(st.integers(0, end))
    kept = text[start:end] if draw(st.booleans()) else text[:end]
    at = draw(st.integers(0, len(kept)))
    return kept[:at] + draw(st.one_of(st.just(""), garbage)) + kept[at:]


def cuts(text: str) -> Iterator[str]:
    """The text ended at every place."""
    return (text[:end] for end in range(len(text)))


def reading(read: Callable[[str], Any], text: str) -> Any | None:
    """What the reader says, None when it says that it can't."""
    try:
        return read(text)
    except NotThisKind as why:
        assert str(why)
        return None


def agrees(part: Any, whole: Any, names: tuple[str, ...]) -> bool:
    """Whether each of these attributes is None, or what it is in the whole."""
    return all(getattr(part, name) in (None, getattr(whole, name)) for name in names)


def seconds(read: Callable[[str], Any], text: str) -> float:
    """The best of three runs, in processor time."""
    times = []
    for _ in range(3):
        start = time.process_time()
        reading(read, text)
        times.append(time.process_time() - start)
    return min(times)


def linear(read: Callable[[str], Any], text: str, short: int = 40_000) -> bool:
    """Whether ten times the text takes less than twenty times as long."""
    small = text * max(1, short // len(text))
    return seconds(read, small * 10) < 20 * max(seconds(read, small), 0.002)
