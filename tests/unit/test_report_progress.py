"""The live lines of a running verify: on a terminal, in a log, and when it is interrupted."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from rackpin.report.progress import GROUPS, TROUBLES, Progress

from .report_samples import HOSTILE, finding

NAMES = [f"gpu-{number:03d}" for number in range(1, 65)]
NODES = {name: ["workers", "gpu"] for name in NAMES} | {"gpu-001": ["head"]}
SHOW = """
import sys, time
from rackpin.report.progress import Progress
from tests.unit.report_samples import finding
from tests.unit.test_report_progress import NODES
with Progress(NODES) as progress:
    progress.tell("survey: 64 nodes answered")
    progress.phase("node checks", 64)
    for number, name in enumerate(NODES):
        time.sleep(0.03)
        bad = [finding(name, "gpu.xid", "fail", "XID 79 " * 20)] if number % 4 == 0 else []
        progress.node_done(name, [finding(name, "gpu.count"), *bad])
"""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain(width: int = 80) -> tuple[Console, io.StringIO]:
    made = io.StringIO()
    return Console(file=made, width=width, force_terminal=False, color_system=None), made


def shown(progress: Progress, width: int = 80, height: int = 24) -> list[str]:
    made = io.StringIO()
    console = Console(file=made, width=width, height=height, color_system=None)
    progress._console = console
    console.print(progress._shown())
    return made.getvalue().splitlines()


def test_a_log_gets_lines_only_of_what_is_news() -> None:
    console, made = plain()
    clock = Clock()
    with Progress(NODES, console, clock) as progress:
        progress.tell("survey: 64 nodes answered")
        progress.phase("node checks", 64)
        for number, name in enumerate(NAMES):
            clock.now += 0.5
            outcome = "fail" if number == 7 else "pass"
            progress.node_done(name, [finding(name, "gpu.xid", outcome, "XID 79")])
    lines = made.getvalue().splitlines()
    assert lines[:3] == [
        "survey: 64 nodes answered", "node checks: 64 to do", "✕ gpu-008 gpu.xid: XID 79",
    ]  # fmt: skip
    assert lines[3].startswith("node checks: 20 of 64 done after 10 s; waiting for gpu-[021-064]")
    assert lines[-2] == "node checks: 64 of 64 done after 32 s"
    assert lines[-1] == "asked after 32 s: node checks: 64 of 64 done; ✕ 1  ✓ 63"
    assert len(lines) == 8 and "\x1b" not in made.getvalue()


def test_what_keeps_a_node_out_is_told_and_an_optional_not_run_is_not() -> None:
    console, made = plain()
    with Progress({"a": [], "b": [], "c": []}, console) as progress:
        progress.phase("node checks", 3)
        progress.node_done("a", [finding("a", "x.y", "not_run", "no answer")])
        progress.node_done("b", [finding("b", "x.y", "not_run", "no tool", required=False)])
        bad = [finding("c", f"x.{k}", "fail", "bad") for k in range(3)]
        progress.node_done("c", [finding("c", "x.y", "warn", "odd"), *bad])
    text = made.getvalue()
    assert "? a x.y: no answer\n" in text and "no tool" not in text
    assert "✕ c x.0: bad (and 2 more)" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_live_part_fits_its_window(width: int) -> None:
    groups = {name: [f"rack-{number % 12}"] for number, name in enumerate(NAMES)}
    progress = Progress(groups)
    progress.phase("node checks", 64)
    for name in NAMES[:40]:
        progress.node_done(name, [finding(name, "gpu.xid", "fail", "XID 79 " * 50)])
    lines = shown(progress, width)
    assert len(lines) <= 1 + GROUPS + TROUBLES and max(map(len, lines)) <= width
    assert "node checks: 40 of" in lines[0]
    assert lines[1].split()[:4] == ["rack-4", "3", "of", "5"]
    assert "and 7 more groups" in lines[GROUPS]
    assert lines[-1].startswith("… and 36 nodes before with trouble")


def test_who_is_waited_for_is_told_by_group() -> None:
    progress = Progress(NODES)
    progress.phase("node checks", 64)
    for name in NAMES[1:40]:
        progress.node_done(name, [])
    assert [line.split() for line in shown(progress)[1:]] == [
        ["workers", "39", "of", "63", "waiting", "for", "gpu-[041-064]"],
        ["head", "0", "of", "1", "waiting", "for", "gpu-001"],
    ]
    progress.phase("pairs, round 1", 32)
    progress.node_done("gpu-001 – gpu-064", [])
    assert len(shown(progress)) == 1 and "pairs, round 1: 1 of 32 done" in shown(progress)[0]


def test_no_text_acts_on_the_terminal() -> None:
    console, made = plain(200)
    with Progress({HOSTILE: [HOSTILE]}, console) as progress:
        progress.tell(HOSTILE)
        progress.phase(HOSTILE, 1)
        live = "\n".join(shown(progress, 300))
        progress._console = console
        progress.node_done(HOSTILE, [finding(HOSTILE, HOSTILE, "fail", HOSTILE)])
    for text in (made.getvalue(), live):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
        assert "[red]markup[/red]" in text


def test_an_error_goes_on_its_way() -> None:
    console, made = plain()
    with pytest.raises(ValueError, match="boom"), Progress(NODES, console) as progress:
        progress.phase("node checks", 64)
        raise ValueError("boom")
    assert made.getvalue().splitlines()[-1].startswith("stopped after")


@pytest.fixture
def terminal() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A program that shows progress on a real terminal of 80 × 24, and that terminal."""
    own, its = pty.openpty()
    os.environ.pop("NO_COLOR", None)
    child = subprocess.Popen(
        [sys.executable, "-c", SHOW],
        stdin=its, stdout=its, stderr=its, start_new_session=True, close_fds=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
    )  # fmt: skip
    os.close(its)
    yield child, own
    if child.poll() is None:
        child.kill()
    child.wait()
    os.close(own)


def read_until(fd: int, wanted: bytes, seconds: float = 30.0) -> bytes:
    """What the terminal got until ``wanted`` came, or the program closed it."""
    got, until = b"", time.monotonic() + seconds
    while not re.search(wanted, got) and time.monotonic() < until:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                got += os.read(fd, 65536)
            except OSError:  # the other end is closed
                break
    return got


def test_an_interrupt_gives_the_terminal_back(
    terminal: tuple[subprocess.Popen[bytes], int],
) -> None:
    child, fd = terminal
    before = read_until(fd, rb"node checks: \d\d? of 64 done")
    assert b"\x1b[?25l" in before, "the cursor is hidden while lines move"
    os.killpg(child.pid, signal.SIGINT)
    after = read_until(fd, rb"KeyboardInterrupt")
    assert child.wait(10) != 0
    assert b"\x1b[?25h" in after and b"interrupted after" in after
    assert re.search(rb"node checks: \d+ of 64 done", after)


def test_at_the_end_only_what_was_told_stays(
    terminal: tuple[subprocess.Popen[bytes], int],
) -> None:
    child, fd = terminal
    got = read_until(fd, rb"asked after")
    assert child.wait(10) == 0
    assert b"survey: 64 nodes answered" in got and b"\x1b[?25h" in got
    assert b"64 of 64 done" in got
