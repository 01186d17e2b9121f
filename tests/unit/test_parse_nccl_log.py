"""The reader of NCCL logs: every dialect, and never more than the text says."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rackpin.cli import main
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nccl_log import read
from tests.unit.texts import grows_gently, spoiled

IB = """\
n1:7:7 [0] NCCL INFO Bootstrap: Using bond0:10.1.0.7<0>
n1:7:7 [0] NCCL INFO cudaDriverVersion 12080
n1:7:7 [0] NCCL INFO NCCL version 2.26.2+cuda12.8
n1:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB bond0:10.1.0.7<0>
n1:7:9 [0] NCCL INFO Using network IB
n1:7:9 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank 0 nranks 16 busId 19000 - Init START
n1:7:9 [0] NCCL INFO NVLS multicast support is available on dev 0
n1:7:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 7[7] via P2P/CUMEM
n1:7:9 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank 0 nranks 16 busId 19000 - Init COMPLETE
"""
OLD = """\
n1:7:7 [0] INFO NET : Using interface eno1:10.1.0.7<0>
n1:7:7 [0] INFO Using internal Network Socket
NCCL version 2.2.13+cuda9.0
n1:7:9 [0] INFO comm 0x1 rank 0 nranks 2

n1:7:9 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out
"""


@given(spoiled(IB))
@settings(max_examples=40)
def test_a_modern_log_in_any_dress(text: str) -> None:
    log = read(text)
    assert log.nccl_version == "2.26.2+cuda12.8"
    assert (log.cuda_driver, log.network, log.bootstrap_interface) == (12080, "IB", "bond0")
    assert log.hcas == ("mlx5_0:1/IB", "mlx5_3:1/IB")
    assert (log.gdr, log.nranks, log.init_complete, log.nvls) == (True, 16, True, True)
    assert set(log.transports) == {"NET/IB/0/GDRDMA", "P2P/CUMEM"}
    assert log.errors == ()


def test_the_oldest_dialect() -> None:
    log = read(OLD)
    assert (log.nccl_version, log.network, log.nranks) == ("2.2.13+cuda9.0", "Socket", 2)
    assert log.interfaces == ("eno1",) and log.bootstrap_interface is None
    assert log.errors == ("Call to connect failed : Connection timed out (include/socket.h:360)",)
    assert log.init_complete is None and log.gdr is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "misc/ibvwrap.cc:213 (wrap_ibv_reg_mr) NCCL WARN\nCall to ibv_reg_mr failed\n",
            "Call to ibv_reg_mr failed (misc/ibvwrap.cc:213)",
        ),
        (
            "a:1:2 [0] net.cc:9 NCCL WARN Got completion, len\n0, vendor err 129\n",
            "Got completion, len 0, vendor err 129 (net.cc:9)",
        ),
        (
            "Last error:\nBootstrap : no socket interface found\nNCCL WARN x\n",
            "Last error: Bootstrap : no socket interface found",
        ),
    ],
)
def test_wrapped_errors_are_put_together(text: str, error: str) -> None:
    assert read(text).errors[0] == error


def test_advice_is_no_error() -> None:
    log = read('a:1:2 [0] init.cc:1 NCCL WARN Missing "iommu=pt" from kernel command line\n')
    assert log.errors == () and len(log.warnings) == 1


def test_gdr_off_within_one_host_is_no_error_and_between_hosts_is() -> None:
    start = (
        "ncclCommInitRank comm 0x1 rank {} nranks 2 cudaDev {} busId 1 commId 0x2 - Init START\n"
    )
    off = "n1:7:9 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n"
    here = "n1:7:9 [0] NCCL INFO " + start.format(0, 0) + off
    other = "NCCL INFO " + start.format(1, 1)
    assert read(here + "n1:7:8 [1] " + other).errors == ()
    assert read(here + "n2:7:8 [1] " + other).errors == ("GPU Direct RDMA disabled for mlx5_0",)
    assert read(here).gdr is False


def test_builds_that_differ_between_hosts() -> None:
    two = (
        "n1:1:1 [0] NCCL INFO NCCL version 2.22.3+cuda12.4\n"
        "n2:1:1 [0] NCCL INFO NCCL version 2.19.3+cuda12.3\n"
    )
    assert "different-builds" in read(two).derived
    assert read(two.replace("2.19.3+cuda12.3", "2.22.3+cuda12.4")).derived == {}


@given(st.integers(min_value=0, max_value=len(IB)))
@settings(max_examples=200, deadline=None)
def test_a_cut_log_never_lies(end: int) -> None:
    whole = read(IB)
    try:
        log = read(IB[:end])
    except NotThisKind:
        return
    for name in ("nccl_version", "cuda_driver", "network", "bootstrap_interface", "nranks"):
        assert getattr(log, name) in (None, getattr(whole, name)), name
    assert set(log.hcas) <= set(whole.hcas)
    assert set(log.transports) <= set(whole.transports)
    assert log.gdr in (None, True) and log.init_complete in (None, True)
    assert log.errors == ()


@given(st.text())
def test_garbage_is_refused_or_read_empty(text: str) -> None:
    try:
        log = read(text)
    except NotThisKind:
        return
    assert "NCCL" in text or "WARN" in text or log.errors


def test_it_is_linear() -> None:
    assert grows_gently(read, IB)
    assert grows_gently(read, "x" * 5000 + "\n" + "a:1:2 [0] NCCL INFO " + "via " * 800 + "\n")


def test_the_command_says_why_it_refuses() -> None:
    refused = CliRunner().invoke(
        main, ["parse", "nccl-log", "-", "--json"], input="Filesystem 1K\n"
    )
    assert refused.exit_code == 1
    assert "no line of NCCL" in json.loads(refused.output)["errors"][0]
    read_ = CliRunner().invoke(main, ["parse", "nccl-log", "-", "--json"], input=IB)
    assert read_.exit_code == 0 and json.loads(read_.output)["hcas"] == [
        "mlx5_0:1/IB",
        "mlx5_3:1/IB",
    ]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (
            "a:1:1 [0] NCCL INFO RCCL version 2.18.3+hip6.0 HEAD:2f6d59e",
            "nccl_version",
            "2.18.3+hip6.0",
        ),
        ("RCCL version : 2.22.3-develop:abc", "nccl_version", "2.22.3"),
        ("DistBackendError: internal error, NCCL version 2.21.5", "nccl_version", "2.21.5"),
        ("INFO 01-01 10:00:00 [pynccl.py:63] vLLM is using nccl==2.27.3", "nccl_version", "2.27.3"),
        ("a:1:1 [0] NCCL INFO Bootstrap : Using [0]ib0:10.0.0.1<0>", "bootstrap_interface", "ib0"),
        (
            "a:1:1 [0] NCCL INFO NET/IB: GPU Direct RDMA Enabled for GPU 0[15000] / HCA 0",
            "gdr",
            True,
        ),
        ("a:1:1 [0] NCCL INFO Using network AWS Libfabric", "network", "AWS Libfabric"),
        ("a:1:1 [0] NCCL INFO NVLS multicast support is not available on dev 0", "nvls", False),
        ("gn26: Test NCCL failure common.cu:959 'internal error'", "nccl_version", None),
    ],
)
def test_dialects(line: str, name: str, value: object) -> None:
    assert getattr(read(line + "\n"), name) == value


def test_a_warning_may_name_a_function_in_place_of_a_file() -> None:
    log = read(
        "a:1:2 [0] ncclResult_t nccl_net_ofi_init_v6(ncclDebugLogger_t):162 NCCL WARN NET/OFI "
        "Initializing plugin failed\n"
    )
    assert log.errors == ("NET/OFI Initializing plugin failed",)


def test_sockets_without_gdr_are_no_error() -> None:
    log = read(
        "a:1:1 [0] NCCL INFO Using network Socket\n"
        "a:1:1 [0] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'\n"
        "a:1:1 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0\n"
    )
    assert (log.network, log.gdr, log.nranks, log.errors) == ("Socket", False, 16, ())
