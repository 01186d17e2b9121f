"""One collective: how it is called, and every way in which its answer isn't one."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackpin.checks.base import Output
from rackpin.findings import Outcome
from rackpin.inventory import Fleet
from rackpin.lab.hardware import nccl, presets
from rackpin.parse import nccl_log
from rackpin.skus import load_sku
from rackpin.verify import launch, mpi, nccl_command, nccl_run
from rackpin.verify.launch import Session
from rackpin.verify.nccl_run import Collective, Judged, judge
from tests.unit.nccl_fabric import Fabric, fleet_of

PASS, WARN, FAIL, NOT_RUN = Outcome.PASS, Outcome.WARN, Outcome.FAIL, Outcome.NOT_RUN
SKU = load_sku("h100-sxm-8")
PAIR = Collective("pair", ("gpu01", "gpu02"), SKU, 8, number=3)
SESSION = Session({"gpu01": "10.8.0.2", "gpu02": "10.8.0.3"}, 600, 22122, token="0123456789ab")
COMMAND = nccl_command.command(PAIR, SESSION)


@pytest.fixture(scope="module")
def answered() -> Output:
    """What a sound pair answers."""
    config = Fleet.model_construct(config=None, nodes={})  # type: ignore[arg-type]
    fabric = Fabric(fleet_of(config, 2))
    return fabric({"gpu01": [COMMAND]})["gpu01"]["nccl.run"]


def altered(output: Output, old: str, new: str) -> Judged:
    assert re.search(old, output.stdout), f"{old!r} is not in the sample"
    return judge(PAIR, COMMAND, replace(output, stdout=re.sub(old, new, output.stdout)))


def test_a_sound_pair(answered: Output) -> None:
    found = judge(PAIR, COMMAND, answered)
    one = found.measurement
    assert (one.outcome, one.why, one.size_bytes) == (PASS, "", 8 * 2**30)
    assert one.transport == "IB, GDRDMA, 8 HCAs, NVLS"
    assert one.busbw_gb_s == pytest.approx(372.5, abs=0.2)
    assert (one.expected_gb_s, one.warn_below_gb_s, one.fail_below_gb_s) == (375, 356, 330)


@pytest.mark.parametrize(
    ("old", "new", "trouble", "outcome", "named"),
    [
        (r"372\.5\d(  +0  )", r"340.00\1", "slow", WARN, "340 GB/s"),
        (r"372\.5\d(  +0  )", r"300.00\1", "slow", FAIL, "330 the least"),
        (r"(372\.5\d  +)0(  )", r"\g<1>7\2", "wrong", FAIL, "wrong elements"),
        (r"(372\.5\d  +)0(  )", r"\1N/A\2", "unfit", NOT_RUN, "was not checked"),
        ("8589934592 ", "4294967296 ", "broken", FAIL, "row of 8589934592 bytes is missing"),
        (r"(372\.5\d  +)0(  )", r"\1x\2", "broken", FAIL, "row of 8589934592 bytes is missing"),
        ("# Using devices", "# Reducing maxBytes to 4294967296 due to memory limitation", "unfit",
         NOT_RUN, "memory allows 4294967296"),
        ("Avg bus bandwidth.*", "", "unfit", NOT_RUN, ""),
        (r"\|#  Rank 15 .*\n", "", "broken", FAIL, "over 15 of 16 cards"),
        (r"(## status\n\|)0", r"\g<1>124", "hung", FAIL, "not done within"),
        (r"(## status\n\|)0", r"\g<1>1", "broken", FAIL, "status 1"),
        (r"(## status\n\|)0", r"\1", "broken", FAIL, "status None"),
        ("NET/IB/7/GDRDMA", "NET/IB/6/GDRDMA", "way", FAIL, "gpu01 uses 7 of 8 HCAs"),
        ("/GDRDMA", "", "way", FAIL, "without GPUDirect RDMA"),
        (r"NET/IB/\d/GDRDMA", "NET/Socket/0", "way", FAIL, "by sockets"),
        ("mlx5_3:1/IB ", "mlx5_3:1/RoCE ", "way", FAIL, "IB, RoCE, not IB"),
        ("support is available", "support is not available", "way", FAIL, "no NVLS"),
        (r"(## log gpu02\n)(\|.*\n)+", r"\1", "unfit", NOT_RUN, "no NCCL log of it"),
        (r"\|NCCL end\n\n## end", "\n## end", "unfit", NOT_RUN, "gpu02's data: its NCCL log"),
        ("## end\n", "", "hung", FAIL, "not whole"),
        (r"(?s)## rows.*## errors", "## rows\n|Segmentation fault\n## errors", "broken", FAIL,
         "Segmentation fault"),
        (r"(?s)## rows.*## errors", "## rows\n|hello\n## errors", "unfit", NOT_RUN, "not told"),
        (r"\|[^\n]*nThread", "|# nccl-tests version 2.17 nccl-headers=22807 nccl-library=22807\n"
         "|# Collective test starting: all_gather_perf\n|# nThread", "broken", FAIL, "all_gather"),
    ],
)  # fmt: skip
def test_lies(
    answered: Output, old: str, new: str, trouble: str, outcome: Outcome, named: str
) -> None:
    found = altered(answered, old, new)
    assert (found.trouble, found.measurement.outcome) == (trouble, outcome), found.measurement.why
    assert named in found.measurement.why


def test_two_faults_at_once_are_both_named(answered: Output) -> None:
    text = re.sub(r"372\.5\d( +)0(  )", r"100.00\g<1>9\2", answered.stdout)
    text = text.replace("/GDRDMA", "")
    why = judge(PAIR, COMMAND, replace(answered, stdout=text)).measurement.why
    assert "the least" in why and "wrong elements" in why and "GPUDirect" in why


def test_a_timeout_on_sockets_says_why(answered: Output) -> None:
    text = re.sub(r"NET/IB/\d/GDRDMA", "NET/Socket/0", answered.stdout)
    text = re.sub(r"(## status\n\|)0", r"\g<1>124", text)
    found = judge(PAIR, COMMAND, replace(answered, stdout=text))
    assert found.trouble == "hung" and found.on_sockets == ("gpu01", "gpu02")


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        (Output(rc=None), FAIL),
        (Output(rc=124, seconds=90), FAIL),
        (Output(rc=127, stderr="systemd-run: not found"), NOT_RUN),
        (Output(rc=0), FAIL),
        (Output(rc=0, stdout="## status\n|0\n## end\n", truncated=True), NOT_RUN),
    ],
)
def test_silence_is_never_a_pass(output: Output, outcome: Outcome) -> None:
    found = judge(PAIR, COMMAND, output)
    assert found.measurement.outcome is outcome and found.measurement.why


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_cut_answer_never_passes(answered: Output, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, answered.stdout.index("## end")))
    found = judge(PAIR, COMMAND, replace(answered, stdout=answered.stdout[:end]))
    assert found.measurement.outcome in (FAIL, NOT_RUN)


def test_the_deadline_grows_with_size_and_count() -> None:
    loop = Collective("loop", ("gpu01",), SKU, 8)
    many = Collective("fleet", tuple(f"gpu{n}" for n in range(64)), SKU, 8)
    unknown = Collective("pair", ("a", "b"), load_sku("l40s-8"), 8)
    assert PAIR.deadline_s < many.deadline_s < PAIR.deadline_s + 70
    assert 60 < PAIR.deadline_s < 70 and 90 < loop.deadline_s < 110
    assert unknown.size == nccl_run.UNJUDGED_SIZE and unknown.deadline_s > 100
    assert COMMAND.deadline_s > PAIR.deadline_s + launch.LOG_S


def test_the_command_line_says_what_the_figure_is_for() -> None:
    line = next(one for one in COMMAND.stdin.splitlines() if one.startswith("timeout"))
    assert f"timeout -k 5 {PAIR.deadline_s} mpirun --allow-run-as-root -np 2" in line
    assert "--host 10.8.0.2:1,10.8.0.3:1 --map-by ppr:1:node" in line
    assert "oob_tcp_if_include 10.8.0.2/31" in line
    wanted = "/opt/rackpin/nccl-tests/engine/all_reduce_perf -b 8589934592 -e 8589934592 -g 8"
    assert f"NCCL_ALGO=RING {wanted} -n 10 -w 2 -c 1 >" in line
    loop = nccl_command.command(Collective("loop", ("gpu01",), SKU, 8, "host"), SESSION)
    assert "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NVLS_ENABLE=0" in loop.stdin
    assert "mpirun" not in loop.stdin and "/nccl-tests/host/" in loop.stdin
    assert "LimitMEMLOCK=infinity" in loop.shell and "RuntimeMaxSec=" in loop.shell
    assert "RuntimeDirectory=" in loop.shell and "RuntimeDirectory=" not in COMMAND.shell


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (["10.9.0.11", "10.9.0.13"], "10.9.0.8/29"),
        (["10.9.0.11"], "10.9.0.11/32"),
        (["10.1.0.1", "10.200.0.1"], "10.0.0.0/8"),
        (["fd00::1", "10.1.0.1"], None),
    ],
)
def test_the_network_that_holds_all(addresses: list[str], network: str | None) -> None:
    assert mpi.subnet(addresses) == network


def test_shell_texts_are_shell() -> None:
    program = PAIR.program
    for command in (
        COMMAND,
        launch.prepare(SESSION, "gpu01", program),
        launch.clear(SESSION),
        launch.clean(SESSION),
    ):
        for text in (command.shell, command.stdin):
            done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, ""), text
    server = launch.prepare(SESSION, "gpu01", program).stdin
    assert "$" not in server, "systemd would expand it"


def test_the_digest_keeps_each_thing_once(tmp_path: Path) -> None:
    """The node's own script over a whole log, read again as the whole one is."""
    node = presets.node("gpu01", "h100-sxm-8")
    text = nccl.log([node, node], 0, 8, {})
    (tmp_path / "log.3.gpu01.77").write_text(text * 20)
    (tmp_path / "log.4.gpu01.77").write_text("another run's")
    (tmp_path / "digest").write_text(nccl_command.DIGEST)
    command = ["sh", str(tmp_path / "digest"), "3"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    short, whole = nccl_log.read(said), nccl_log.read(text)
    assert len(said) < nccl_command.LOG_LEAST and said.endswith("NCCL end\n")
    for name in ("transports", "hcas", "nvls", "network", "nccl_version"):
        assert getattr(short, name) == getattr(whole, name), name
    assert not list(tmp_path.glob("log.3.*")) and list(tmp_path.glob("log.4.*"))


def test_a_rank_has_the_node_s_settings_and_ours_win(tmp_path: Path) -> None:
    settings_file = tmp_path / "nccl.env"
    settings_file.write_text("# ours\nNCCL_IB_HCA==mlx5_0:1,mlx5_1:1\nNCCL_ALGO=Tree\nX=$(id)\n")
    script = nccl_command.RANK.replace("/etc/rackpin/nccl.env", str(settings_file))
    (tmp_path / "rank").write_text(script)
    command = ["sh", str(tmp_path / "rank"), "3", "NCCL_ALGO=RING", shutil.which("env") or "env"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1" in said and "NCCL_ALGO=RING" in said
    assert "X=$(id)" in said, "nothing of it is executed"
    assert f"NCCL_DEBUG_FILE={tmp_path}/log.3.%h.%p" in said


def test_no_private_key_is_in_any_command() -> None:
    key = launch.Prepared("ssh-ed25519 " + "A" * 68, "ssh-ed25519 " + "B" * 68)
    trust = launch.trust(SESSION, "gpu01", {"gpu01": key, "gpu02": key}, nccl_command.FILES)
    assert 'restrict,from="10.8.0.3" ssh-ed25519 BBB' in trust.stdin
    assert "[10.8.0.3]:22122 ssh-ed25519 AAA" in trust.stdin
    assert "10.8.0.2" not in trust.stdin, "nobody lets itself in"
    assert "StrictHostKeyChecking yes" in trust.stdin
    for command in (COMMAND, trust, launch.prepare(SESSION, "gpu01", "x")):
        assert "PRIVATE KEY" not in command.shell + command.stdin
