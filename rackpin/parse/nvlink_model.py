"""What is told of NVLinks and of peer access between GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field

STATUS, P2P = "nvlink", "topo -p2p"


@dataclass(frozen=True)
class Link:
    """One link: ``active`` None where only counters or capabilities are told, speed in GB/s."""

    link: int
    active: bool | None = None
    speed: int | float | None = None
    counters: dict[str, int] = field(default_factory=dict)
    capabilities: dict[str, bool] = field(default_factory=dict)
    remote: str | None = None


@dataclass(frozen=True)
class NvlinkGpu:
    """``active`` and ``inactive`` count links whose state is told, None when none's is.

    ``inactive`` is None, ``active`` 0 when the tool says only that all are inactive.
    ``speed_gbps``: GB/s of one link as printed, None when the links differ. ``complete``: False
    when a GPU of the same name lists more links or a ``...`` stands inside, None if nothing tells.
    """

    index: int | None  # None: its line is cut off
    name: str | None
    uuid: str | None = None
    active: int | None = None
    inactive: int | None = None
    speed_gbps: int | float | None = None
    links: tuple[Link, ...] = ()
    complete: bool | None = None
    message: str | None = None  # what the tool says instead of links


@dataclass(frozen=True)
class Nvlink:
    """``tool`` is ``nvlink``, ``nvlink -e``, ``-c`` or ``-R``, or ``topo -p2p``, which alone has
    ``matrix`` (state by row and column, in the order of ``gpus``) and ``pairs`` (pairs by state).
    """

    tool: str
    gpus: tuple[NvlinkGpu, ...] = ()
    matrix: tuple[tuple[str | None, ...], ...] | None = None
    pairs: dict[str, list[list[int]]] | None = None
    complete: bool | None = None
    error: str | None = None
    errors: tuple[str, ...] = ()
