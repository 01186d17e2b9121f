"""What a vLLM engine logged of its last start: sizes it was told, groups it formed, KV cache.

Versions say it in different words: 0.4 counts GPU blocks and has no line for the groups; V1
engines (0.8 and later) count tokens, and each rank says its place in the world.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rackpin.parse.kinds import NotThisKind
from rackpin.parse.loglines import lines

_START = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v([^)\s]{1,40})\) with config: ")
_SIZE = re.compile(r"\b(tensor|pipeline|data)_parallel_size=(\d{1,5})\b")
_WORLD = re.compile(r"\bworld_size=(\d{1,6}) rank=(\d{1,6}) local_rank=\d+ .*?backend=(\S+)")
_RANK = re.compile(r"^rank (\d{1,6}) in world size (\d{1,6}) is assigned as (.{0,200})")
_PLACE = re.compile(r"\b(TP|PP) rank (\d{1,6})")
_BLOCKS = re.compile(r"# (?:GPU|CPU|cuda|cpu|rocm|hpu|xpu) blocks: (\d{1,12}), # CPU blocks: \d+")
_TOKENS = re.compile(r"\bKV cache size: ([\d,]{1,20}) tokens")
_TIMES = re.compile(r"Maximum concurrency for ([\d,]{1,20}) tokens per request: (\d+(?:\.\d+)?)x")
_NCCL = re.compile(r"\bvLLM is using nccl==(\d+(?:\.\d+)*)")

# What of a long log these lines are: extended regular expression, for ``grep -E`` on a node.
TELLING = (
    r"Initializing an? (V[0-9] )?LLM engine|world_size=[0-9]+ rank="
    r"|in world size [0-9]+ is assigned|# CPU blocks: |KV cache size: |Maximum concurrency for "
    r"|is using nccl=="
)


@dataclass(frozen=True)
class EngineLog:
    """The last start in a log. What the log doesn't say is None or empty.

    ``tp`` and ``pp`` are the configured sizes; ``worlds`` the world sizes that ranks formed;
    ``ranks`` who said so (Ray drops repeated lines of workers, so there may be fewer);
    ``kv_blocks`` or ``kv_tokens``: the smallest that was logged.
    """

    version: str
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    worlds: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    tp_ranks: frozenset[int] = frozenset()
    pp_ranks: frozenset[int] = frozenset()
    backends: frozenset[str] = frozenset()  # "nccl", "gloo"
    kv_blocks: int | None = None
    kv_tokens: int | None = None
    request_tokens: int | None = None  # the model length that concurrency was counted for
    concurrency: float | None = None
    nccl: frozenset[str] = frozenset()
    shown: tuple[str, ...] = field(default=(), compare=False)  # the lines that told it

    @property
    def kv_told(self) -> bool:
        return self.kv_blocks is not None or self.kv_tokens is not None


def read(text: str) -> EngineLog:
    """The last start in the text. NotThisKind when no engine of vLLM says its configuration."""
    told = list(lines(text))
    starts = [n for n, line in enumerate(told) if _START.search(line.text)]
    if not starts:
        raise NotThisKind("no line says with which configuration an engine was initialized")
    begin = starts[-1]
    head = _START.search(told[begin].text)
    assert head is not None  # it is one of the lines that matched
    sizes = {name: int(size) for name, size in reversed(_SIZE.findall(told[begin].text))}
    seen: dict[str, set[int]] = {key: set() for key in ("worlds", "ranks", "TP", "PP")}
    backends: set[str] = set()
    nccl: set[str] = set()
    blocks: list[int] = []
    tokens: list[int] = []
    times: list[tuple[int, float]] = []
    shown = [f"{head[0]}… {' '.join(m[0] for m in _SIZE.finditer(told[begin].text))}"]
    for line in told[begin + 1 :]:
        tells = True
        if match := _WORLD.search(line.text):
            seen["worlds"].add(int(match[1]))
            seen["ranks"].add(int(match[2]))
            backends.add(match[3])
        elif match := _RANK.search(line.text):
            seen["worlds"].add(int(match[2]))
            seen["ranks"].add(int(match[1]))
            for group, number in _PLACE.findall(match[3]):
                seen[group].add(int(number))
        elif match := _NCCL.search(line.text):
            nccl.add(match[1])
        else:  # newer versions say the last two in one line
            tells = False
            if match := _BLOCKS.search(line.text):
                blocks.append(int(match[1]))
                tells = True
            if match := _TOKENS.search(line.text):
                tokens.append(_number(match[1]))
                tells = True
            if match := _TIMES.search(line.text):
                times.append((_number(match[1]), float(match[2])))
                tells = True
        if tells:
            shown.append(line.shown[:300])
    return EngineLog(
        version=head[1],
        tp=sizes.get("tensor"),
        pp=sizes.get("pipeline"),
        dp=sizes.get("data"),
        worlds=frozenset(seen["worlds"]),
        ranks=frozenset(seen["ranks"]),
        tp_ranks=frozenset(seen["TP"]),
        pp_ranks=frozenset(seen["PP"]),
        backends=frozenset(backends),
        kv_blocks=min(blocks, default=None),
        kv_tokens=min(tokens, default=None),
        request_tokens=times[0][0] if times else None,
        concurrency=min((factor for _, factor in times), default=None),
        nccl=frozenset(nccl),
        shown=tuple(shown),
    )


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)
