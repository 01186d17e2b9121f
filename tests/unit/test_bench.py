"""The parts of the benchmarks that need no host: ratios, recaps, the relay, the page."""

from __future__ import annotations

import socket
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.bench import ansible, measure, page, relay, steps, work


def ended(text: str, code: int = 0) -> measure.Ended:
    return measure.Ended(code, text, 1.0, 0.5, 50.0, 0.1)


def run(tool: str, nodes: int, wall: float, kind: str = "no-op", **more: Any) -> dict[str, Any]:
    return measure.Measured("compare", tool, kind, nodes, wall, wall / 2, 80.0, 0.1, more).as_json()


def test_cpu_and_memory_of_a_child_are_its_own(tmp_path: Path) -> None:
    burn = "import time; x = bytearray(200_000_000); e = time.process_time() + 0.3\n"
    burn += "while time.process_time() < e: pass"
    found = measure.run([sys.executable, "-c", burn], {}, tmp_path, 60)
    assert found.code == 0 and 0.3 <= found.cpu_s < 3 and 190 < found.rss_mb < 400
    with pytest.raises(measure.BenchError, match="did not end within"):
        measure.run(["sleep", "30"], {}, tmp_path, 0.3)


def test_ratios_are_of_the_same_nodes() -> None:
    runs = [run("rackpin", 9, 4.0, page.WHOLE), run("rackpin", 8, 2.0, page.SAME)]
    runs += [run("ansible", 8, 70.0, operations=44)]
    runs += [run("stock", 32, 9.0, operations=44)]  # rackpin's over 32 is missing
    same, whole = page.ratios(runs)
    assert (same["tool"], same["wall"], same["wanted"]) == ("ansible", 35.0, 30.0)
    assert (whole["tool"], whole["wall"], whole["wanted"]) == ("ansible", 17.5, None)


@pytest.mark.parametrize(
    ("tool", "text", "good"),
    [
        ("ansible", "n1 : ok=2  changed=0  unreachable=0  failed=0\n", True),
        ("ansible", "n1 : ok=2  changed=1  unreachable=0  failed=0\n", False),
        ("ansible", "n1 : ok=1  changed=0  unreachable=0  failed=0\n", False),
        ("ansible", "nothing at all", False),
        ("stock", "--> Starting operation: a\n--> Starting operation: b\n", True),
        ("stock", "--> Starting operation: a\n", False),
        ("stock", "--> Starting operation: a\n    [n1] Success\n--> Starting operation: b", False),
    ],
)
def test_a_run_that_changes_or_misses_something_is_no_comparison(
    tool: str, text: str, good: bool
) -> None:
    if good:
        steps.check_nothing_changed(tool, 1, 2, ended(text))
    else:
        with pytest.raises(measure.BenchError):
            steps.check_nothing_changed(tool, 1, 2, ended(text))
    with pytest.raises(measure.BenchError, match="ended with 4"):
        steps.check_nothing_changed(tool, 1, 2, ended(text, 4))


def test_ansible_has_a_task_for_each_operation() -> None:
    wanted = work.work()
    assert len(ansible.tasks(wanted)) == wanted.operations > 40


def test_the_relay_adds_a_round_trip() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            with server.accept()[0] as there:
                while data := there.recv(100):
                    there.sendall(data)

        threading.Thread(target=echo, daemon=True).start()
        with (
            relay.slower("127.0.0.1", server.getsockname()[1], 0.2) as port,
            socket.create_connection(("127.0.0.1", port), timeout=10) as ours,
        ):
            ours.sendall(b"first")
            assert ours.recv(100) == b"first"
            began = time.monotonic()
            ours.sendall(b"second")
            assert ours.recv(100) == b"second"
            assert time.monotonic() - began >= 0.2


def test_the_page_stands_alone_and_says_what_is_not_met() -> None:
    runs = [run("rackpin", 8, 2.0, page.SAME), run("ansible", 8, 40.0, operations=44)]
    text = page.render(
        {"at": "<now>", "machine": measure_machine(), "versions": {}, "measurements": runs}
    )
    assert "&lt;now&gt;" in text and "not met" in text and text.count("<svg") == 6
    links: list[str] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend(value or "" for name, value in attrs if name in ("src", "href"))

    Links().feed(text)
    assert links == [] and "url(" not in text


def measure_machine() -> dict[str, Any]:
    return {"cpus": 2, "kernel": "6.1", "load": 0.1}
