"""Log lines lose what launchers, loggers and terminals put around them, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpin.parse.loglines import ends_whole, line, lines

MESSAGE = "ValueError: No available memory for the cache blocks."
PREFIXES = [
    "(EngineCore_DP0 pid=7) ",
    "(RayWorkerWrapper pid=7, ip=10.0.0.2) ",
    "(VllmWorker rank=1 pid=88) ",
    "(Worker_PP0_TP0) ",
    "[1,0]<stdout>:",
    "[rank0]: ",
    "vllm-1  | ",
    "[vllm]            | ",
    "2025-05-26 18:00:25,881 ",
    "2025-05-26T18:00:25.881Z ",
    "2025-05-26T18:00:25+0800 host-1 kernel: ",
    "Apr  7 23:03:57 host vllm[88]: ",
    "[  142.082028] ",
    "[Sun Feb 23 16:24:18 2025] ",
    "[Feb 25 2025 13:59:45] ",
    "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ",
    "6,3964,206764307,-;",
    "\x1b[36m(APIServer pid=3)\x1b[0m ",
    "[33m(autoscaler +21m12s)[0m ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_taken_off(prefix: str) -> None:
    assert lines(prefix + MESSAGE)[0].text == MESSAGE


@given(st.lists(st.sampled_from(PREFIXES), max_size=4))
def test_prefixes_are_taken_off_in_any_order(prefixes: list[str]) -> None:
    assert lines("".join(prefixes) + MESSAGE)[0].text == MESSAGE


@pytest.mark.parametrize(
    ("shown", "level", "text"),
    [
        ("ERROR 07-27 04:34:14 [core.py:1269] x failed", "ERROR", "x failed"),
        ("(A pid=1) WARNING 07-27 04:34:14 [core.py:9] x", "WARN", "x"),
        ("2025-05-26 18:00:25,881 WARNING utils.py:1591 -- x", "WARN", "x"),
        ("INFO 10-29 09:01:12 pynccl.py:63] x", "INFO", "x"),
        ("[rank1]:[E101 10:00:00.000000001 ProcessGroupNCCL.cpp:685] x", "ERROR", "x"),
        ("ERROR: no such thing", "", "ERROR: no such thing"),
    ],
)
def test_a_loggers_level_is_read(shown: str, level: str, text: str) -> None:
    read = line(1, shown)
    assert (read.level, read.text) == (level, text)


def test_numbers_are_those_of_the_text() -> None:
    read = lines("a\r\n\r\nb\rc\n")
    assert [(entry.number, entry.text) for entry in read] == [
        (1, "a"),
        (2, ""),
        (3, "b"),
        (4, "c"),
        (5, ""),
    ]
    assert ends_whole("a\n") and not ends_whole("a")


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    for entry in lines(text):
        assert entry.text in entry.shown or not entry.text
