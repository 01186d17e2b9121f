"""Recorded NCCL logs: what the reader says of each against what its index expects."""

from __future__ import annotations

import re

import pytest

from rackpin.diagnose.engine import diagnose
from rackpin.parse.nccl_log import NcclLog, read
from tests.recorded.corpus import Sample, needs_corpus, samples

pytestmark = needs_corpus

# (sample, key) where the text says something else than its index.
WRONG = {
    ("007.txt", "transports"): "the index cuts 'NET/AWS Libfabric/0' at its blank",
}
# words of the index → what the first error must say
ERRORS = {
    "network AWS Libfabric not found": r"network AWS Libfabric not found",
    "error 12 vendor err 129": r"error 12, .*vendor err 129",
    "NVLS": r"Cuda failure 1 'invalid argument' \(transport/nvls\.cc",
    "IB completion status 12": r"status=12 .*vendor err 129",
    "/dev/shm": r"No space left on device|failed to extend /dev/shm",
    "shared memory segment vanished": r"No such file or directory",
    "ibv_reg_mr": r"Call to ibv_reg_mr",
    "no usable IP interface": r"Socket creation failed",
    "connect timed out": r"Connection timed out",
    "connect: No route to host": r"No route to host",
    "connection refused later": r"loopback",
    "connect: Connection refused": r"Connection refused",
    "GDR disabled": r"GPU Direct RDMA disabled for mlx5_0, mlx5_1",
    "internal error at init": r"different NCCL builds",
    "connect: Software caused": r"Software caused connection abort",
    "Connection closed by remote peer": r"Connection closed by remote peer",
}


def seen(log: NcclLog, key: str) -> object:
    """The reading in the words of the index."""
    gdr = {True: "used (GDRDMA in channel lines)", False: "Disabled", None: "absent"}
    values: dict[str, object] = {
        "nccl": log.nccl_version or "?",
        "cudaDriver": str(log.cuda_driver),
        "bootstrap_if": log.bootstrap_interface,
        "network": log.network,
        "ib_devs": ",".join(log.hcas),
        "gdr": gdr[log.gdr],
        "nranks": str(log.nranks),
        "init_complete": "yes" if log.init_complete else "not shown",
        "transports": set(log.transports),
    }
    return values[key]


@pytest.mark.parametrize("sample", samples("nccl-log"), ids=str)
def test_reads_what_the_index_says(sample: Sample) -> None:
    log = read(sample.text)
    checked = 0
    for key, value in sample.expect.items():
        if (sample.file, key) in WRONG or key in ("error", "cause", "fix"):
            continue
        if key == "ib_devs" and value.startswith(("?", "none")):
            assert log.hcas == ()
            assert log.no_ib_device is value.startswith("none")
        elif key == "transports":
            assert seen(log, key) == set(value.split(","))
        elif not key.startswith("status 5"):  # the tail of another key's text
            assert seen(log, key) == value, key
        checked += 1
    assert checked


@pytest.mark.parametrize("sample", samples("nccl-log"), ids=str)
def test_the_first_error_is_the_one_of_the_index(sample: Sample) -> None:
    error = sample.expect["error"]
    log = read(sample.text)
    if error == "none":
        assert log.errors == ()
        return
    pattern = next(said for words, said in ERRORS.items() if words in error)
    assert re.search(pattern, log.errors[0])


@pytest.mark.parametrize("sample", samples("nccl-log"), ids=str)
def test_diagnose_finds_errors_and_only_those(sample: Sample) -> None:
    findings = diagnose([(sample.file, sample.text)])
    wrong = sample.expect["error"] != "none" or "cause" in sample.expect
    assert bool(findings) == wrong
