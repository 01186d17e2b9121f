"""What others can reach or read: listening ports and keys."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackpin import layout
from rackpin.checks import listeners, secrets, sockets
from rackpin.checks.base import Context, sections
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.inventory import RayConfig
from rackpin.stack import share
from rackpin.stack.share import Transfers
from tests.unit import checks_samples as samples
from tests.unit.checks_samples import found, good, ok, replaced


@pytest.fixture
def ctx(target: Target) -> Context:
    return samples.context(target)


def with_line(ctx: Context, line: str) -> Finding:
    answer = samples.listening(f"{samples.text(ctx, 'ss.head1.txt')}LISTEN 0 128 {line}\n")
    return found(ctx, listeners.CHECK, listeners=answer)["listeners"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('0.0.0.0:9999 0.0.0.0:* users:(("nc",pid=4242,fd=3))', "0.0.0.0:9999 by nc[4242]"),
        ('[::]:9999 [::]:* users:(("nc",pid=4242,fd=3))', ":::9999 by nc[4242]"),
        ('10.9.0.11:11434 0.0.0.0:* users:(("ollama",pid=7,fd=3))', "ollama[7]"),
        ("*:2049 *:*", "no process"),
        ('*:8265 *:* users:(("ray",pid=812,fd=31))', "dashboard is open"),
        ('0.0.0.0:8265 0.0.0.0:* users:(("python3",pid=5,fd=3))', "not expected"),
        ('0.0.0.0:6384 0.0.0.0:* users:(("python3",pid=5,fd=3))', "holds the port of Ray"),
        ('0.0.0.0:10500 0.0.0.0:* users:(("python3",pid=5,fd=3))', "Ray's workers"),
        ('10.9.0.11:8000 0.0.0.0:* users:(("python3",pid=5,fd=3))', "engine two"),
        ('0.0.0.0:8000 0.0.0.0:* users:(("raylet",pid=901,fd=9))', "engine two"),
        ('10.9.0.11:22 0.0.0.0:* users:(("dropbear",pid=5,fd=3))', "ssh"),
    ],
)
def test_a_stranger_is_named(ctx: Context, line: str, words: str) -> None:
    finding = with_line(ctx, line)
    assert finding.outcome is Outcome.FAIL
    assert words in finding.summary


@pytest.mark.parametrize(
    "line",
    [
        '127.0.0.1:9999 0.0.0.0:* users:(("nc",pid=4242,fd=3))',
        '[::1]:9999 [::]:* users:(("nc",pid=4242,fd=3))',
        '127.0.0.54%lo:53 0.0.0.0:* users:(("systemd-resolve",pid=2,fd=3))',
        '*:22 *:* users:(("systemd",pid=1,fd=40))',
        '0.0.0.0:51234 0.0.0.0:* users:(("VLLM::EngineCor",pid=1440,fd=9))',
        '0.0.0.0:10002 0.0.0.0:* users:(("ray::IDLE",pid=901,fd=9))',
        '*:6382 *:* users:(("x",pid=5,fd=1),("raylet",pid=901,fd=9))',
    ],
)
def test_what_may_listen_passes(ctx: Context, line: str) -> None:
    assert with_line(ctx, line).outcome is Outcome.PASS


def test_ports_of_the_kernels_choice_are_counted_for_our_own_units(ctx: Context) -> None:
    finding = found(ctx, listeners.CHECK)["listeners"]
    assert finding.metrics == {"known_count": 7, "dynamic_count": 1}


def test_the_inventory_can_name_further_ports(ctx: Context) -> None:
    line = '0.0.0.0:9100 0.0.0.0:* users:(("node_exporter",pid=5,fd=3))'
    assert with_line(ctx, line).outcome is Outcome.FAIL
    assert with_line(samples.with_config(ctx, extra_listeners=[9100]), line).outcome == "pass"


def test_wheels_for_neighbours_are_served_by_their_unit_only(ctx: Context) -> None:
    line = '10.9.0.11:8902 0.0.0.0:* users:(("python3",pid=4242,fd=3))'
    assert with_line(ctx, line).outcome is Outcome.FAIL
    handing = samples.with_config(ctx, transfers=Transfers(neighbours=True))
    assert with_line(handing, line).outcome is Outcome.FAIL, "somebody else has the port"
    text = samples.listening(f"{samples.text(ctx, 'ss.head1.txt')}LISTEN 0 128 {line}\n").stdout
    own = text.replace("## second", f"4242/cgroup:0::/system.slice/{share.UNIT}\n## second")
    finding = found(handing, listeners.CHECK, listeners=ok(own))["listeners"]
    assert finding.outcome is Outcome.PASS and "8902" in finding.evidence.output


def test_the_dashboard_may_be_open_only_when_the_inventory_says_so(ctx: Context) -> None:
    line = '0.0.0.0:8265 0.0.0.0:* users:(("ray",pid=812,fd=31))'
    assert (
        with_line(samples.with_config(ctx, ray=RayConfig(dashboard_host="0.0.0.0")), line).outcome
        == "pass"
    )


def test_another_ssh_port(ctx: Context) -> None:
    moved = dataclasses.replace(ctx, extra={"ssh_port": "2222"})
    assert "0.0.0.0:22 by sshd" in found(moved, listeners.CHECK)["listeners"].summary


@pytest.mark.parametrize(
    "text",
    [
        "Netid State Recv-Q\n",
        "LISTEN 0 128 0.0.0.0:22\n",
        'LISTEN 0 128 nonsense 0.0.0.0:* users:(("sshd",pid=1,fd=3))\n',
        "LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\nLISTEN 0 128 0.0.0.0:9999 0.0.0.0:*\n",
    ],
)
def test_lines_that_cannot_be_read_are_not_run(ctx: Context, text: str) -> None:
    finding = found(ctx, listeners.CHECK, listeners=samples.listening(text))["listeners"]
    assert finding.outcome is Outcome.NOT_RUN


def test_what_comes_and_goes_while_we_look_is_not_judged(ctx: Context) -> None:
    steady = samples.text(ctx, "ss.head1.txt")
    passing = 'LISTEN 0 128 0.0.0.0:9999 0.0.0.0:* users:(("ray::Rank",pid=5555,fd=3))\n'
    for answer in (
        samples.listening(steady + passing, steady),
        samples.listening(steady, steady + passing),
    ):
        assert found(ctx, listeners.CHECK, listeners=answer)["listeners"].outcome == "pass"
    stayed = samples.listening(steady + passing)
    assert found(ctx, listeners.CHECK, listeners=stayed)["listeners"].outcome == "fail"


def test_ss_that_fails_the_second_time_is_not_run(ctx: Context) -> None:
    cut = ok(good(ctx)["listeners"].stdout.replace("## end", ""))
    assert found(ctx, listeners.CHECK, listeners=cut)["listeners"].outcome == "not_run"


@pytest.mark.skipif(shutil.which("ss") is None, reason="iproute2 is not installed")
def test_the_socket_command_reads_this_machine() -> None:
    done = subprocess.run(
        ["sh", "-c", sockets.COMMAND.shell], capture_output=True, text=True, timeout=30, check=False
    )
    assert {"first", "cgroup", "second", "end"} <= sections(done.stdout).keys()


# -- keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "check", "words"),
    [
        ("## ps\n", "## ps\n4711 python3\n", "secrets.ps", "python3[4711]"),
        ("## text\n", "## text\n/etc/systemd/system/x.service\n", "secrets.ps", "x.service"),
        ("two 0 0", "two 0 3", "secrets.ps", "journal of vllm@two"),
        ("two 0 0", "two 127 0", "secrets.ps", "could not be searched"),
        ("two 0 0", "two 0", "secrets.ps", "could not be searched"),
        ("600 root:root", "644 root:root", "secrets.files", "mode 644"),
        ("600 root:root", "600 rackpin:rackpin", "secrets.files", "rackpin:rackpin"),
        ("./two.env", "./three.env", "secrets.files", "two.env is missing"),
    ],
)
def test_a_leak_is_named(ctx: Context, old: str, new: str, check: str, words: str) -> None:
    output = replaced(good(ctx)["secrets"], old, new)
    finding = found(ctx, secrets.CHECK, secrets=output)[check]
    assert finding.outcome is Outcome.FAIL and words in finding.summary


@pytest.mark.parametrize("count", ["0", "", "x"])
def test_without_a_key_there_was_no_search(ctx: Context, count: str) -> None:
    output = replaced(good(ctx)["secrets"], "## keys\n1\n", f"## keys\n{count}\n")
    assert found(ctx, secrets.CHECK, secrets=output)["secrets.ps"].outcome == "not_run"


def test_the_search_finds_a_key_and_never_prints_it(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real script on this machine, with its own directory of env files."""
    key = "unit-test-key-0123456789"
    for name, mode in (("two", 0o600), ("odd", 0o644)):
        file = tmp_path / f"{name}.env"
        file.write_text(f"# a comment\nVLLM_API_KEY='{key}'\nEMPTY_KEY=\nSHORT_KEY=abc\n")
        file.chmod(mode)
    (tmp_path / "two.json").write_text(f'{{"oops": "{key}"}}')
    script = secrets.COMMAND.shell.replace(layout.INSTANCE_DIR, str(tmp_path))
    leak = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", key])
    try:
        time.sleep(0.3)
        done = subprocess.run(
            ["sh", "-s"], input=script, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        leak.kill()
        leak.wait()
    assert key not in done.stdout + done.stderr
    findings = found(ctx, secrets.CHECK, secrets=ok(done.stdout))
    assert f"[{leak.pid}]" in findings["secrets.ps"].summary
    assert "two.json" in findings["secrets.ps"].summary
    assert "odd.env is" in findings["secrets.files"].summary
