"""The shell programs of a host print just what :func:`answer` says, to the last byte and code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackpin.lab.hardware import nccl
from rackpin.lab.hardware.answer import BOOTED, answer
from rackpin.lab.hardware.parts import Hangs
from rackpin.parse.kinds import reader
from tests.unit.hardware_host import PID, ask, put, timeless
from tests.unit.hardware_samples import NEW, broken

CALLS = """
nvidia-smi
nvidia-smi -i 1
nvidia-smi -i 1,0
nvidia-smi -L
nvidia-smi -q
nvidia-smi -q -x -i 0
nvidia-smi -q -d ECC,ROW_REMAPPER
nvidia-smi --query-remapped-rows=gpu_name,gpu_serial,remapped_rows.pending --format=csv
nvidia-smi topo -m
nvidia-smi topo -mp
nvidia-smi topo -p2p r
nvidia-smi nvlink -s -i 1
nvidia-smi nvlink -e
nvidia-smi --version
nvidia-smi --query-gpu=index,name,timestamp,memory.total,clocks.gr,fabric.state --format=csv
nvidia-smi --query-gpu=index,temperature.gpu,power.draw --format=csv,noheader,nounits --id=1
ibstat
ibstat -l
ibstat mlx5_1
ibstat mlx5_1 1
ibstatus
ibv_devinfo
ibv_devinfo -d mlx5_0
rdma link
ibdev2netdev
show_gids
lspci
lspci -nn
lspci -v -d 15b3:1021
lspci -vvv -s 3b:00.0
lspci -d 10de:
lspci -k
dmesg
dmesg -T
modinfo nvidia
modinfo -F version nvidia
mokutil --sb-state
mokutil --test-key /var/lib/dkms/mok.pub
systemd-detect-virt
dcgmi discovery -l
dcgmi diag -r 1
dcgmi health -c
all_reduce_perf
all_reduce_perf -b 8 -e 8G -f 2 -g 8
all_reduce_perf -b8 -e 1M -i 128K -g 2 -c 0 -n 5 -w 3
all_reduce_perf -g 9
""".strip().splitlines()

# misuse, and what hangs on no fault: asked of the first node only
MORE = """
nvidia-smi -i 77
nvidia-smi -q -d NOPE
nvidia-smi -pm 1
nvidia-smi -h
nvidia-smi --nope
nvidia-smi -i
nvidia-smi --query-gpu index,bogus --format=csv
nvidia-smi --query-gpu=index
nvidia-smi --query-gpu=index --format=csv,nothing
nvidia-smi --query-gpu=index -L --format=csv
nvidia-smi --query-compute-apps=pid,used_memory --format=csv
nvidia-smi --query-gpu=index --query-compute-apps=pid --format=csv
ibstat nope
ibv_devinfo -d nope
rdma foo
lspci -Z
lspci foo
lspci -Dnd 15b3:
lspci -nnvv
dcgmi -v
dcgmi foo bar
all_reduce_perf -b 1x
all_reduce_perf -b
all_reduce_perf -g two
all_reduce_perf -g 0
all_reduce_perf -b 0 -e 8 -f 2 -g 2
all_reduce_perf -q 1
all_reduce_perf -b 8 -e 1G -f 8 -g 1 -d half -o max
all_reduce_perf -d float8
all_reduce_perf -b 1.5M -e 0 -g 2
all_reduce_perf --minbytes=1G --maxbytes 128G --stepfactor=2 -g 2 -T 300
ibstat -p
ibv_devinfo -l
lsmod
ibv_devices
""".strip().splitlines()

NODES = [
    ("h100-sxm-8", []),
    ("h100-sxm-8", ["gpu-missing", "fm-off", "nvlink-down", "hca-down", "hca-ethernet=mlx5_1"]),
    ("h100-sxm-8", [NEW, "wrong-data", "mig-on=1", "remap-pending", "hot=0"]),
    ("a100-sxm-8", ["fm-mismatch", "hca-order", "hca-renamed"]),
    ("a100-pcie-4", ["slow-link", "pcie-x8"]),
    ("l40s-8", ["gsp-timeout", "off-bus=1"]),
    ("l40s-8", ["library-mismatch"]),
    ("rtx4090-2", [NEW]),
    ("rtx4090-2", ["nouveau", "secure-boot"]),
    ("a100-sxm-8", ["no-cards", "acs-on"]),
    ("h100-sxm-8", ["not-installed"]),
]


@pytest.mark.parametrize(("preset", "faults"), NODES, ids=lambda value: str(value))
def test_a_host_says_what_the_function_says(preset: str, faults: list[str], tmp_path: Path) -> None:
    node = broken(preset, *faults)
    put(node, tmp_path)
    programs = {path.name for path in (tmp_path / "current" / "bin").iterdir()}
    for call in CALLS if faults else CALLS + MORE:
        argv = call.split()
        wanted = answer(node, argv)
        if wanted.code == 127:
            assert argv[0] not in programs, f"{call}: there should be no such program"
        else:
            assert timeless(ask(tmp_path, argv)) == timeless(wanted), call


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "VERSION"},
        {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
        {
            "OMPI_COMM_WORLD_SIZE": "16",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
            "RACKPIN_LAB_HOSTS": "a,b",
        },
        {
            "OMPI_COMM_WORLD_SIZE": "16",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
            "OMPI_COMM_WORLD_RANK": "8",
        },
        {"OMPI_COMM_WORLD_SIZE": "32", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
    ],
    ids=lambda env: ",".join(env),
)
def test_all_reduce_perf_under_mpirun(env: dict[str, str], tmp_path: Path) -> None:
    node = broken("h100-sxm-8", "slow-link", NEW)
    put(node, tmp_path)
    call = ["all_reduce_perf", "-b", "1G", "-e", "8G", "-f", "2"]
    wanted = answer(node, call, env)
    assert ask(tmp_path, call, env) == wanted
    assert (wanted.stdout == "") == ("OMPI_COMM_WORLD_RANK" in env)


LOOP = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}


@pytest.mark.parametrize("env", [{}, LOOP], ids=["inside", "loop"])
@pytest.mark.parametrize("fault", ["", "sockets", "no-gdr", "hca-down", "fm-off"])
def test_nccl_s_log_lies_in_a_file_apart(env: dict[str, str], fault: str, tmp_path: Path) -> None:
    node = broken("h100-sxm-8", fault)
    put(node, tmp_path)
    env = {**env, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{tmp_path}/log.%p"}
    call = ["all_reduce_perf", "-b", "8G", "-e", "8G", "-g", "8"]
    assert ask(tmp_path, call, env) == answer(node, call, env)
    wanted = nccl.log([node], 0, 8, env)
    assert (tmp_path / f"log.{PID}").read_text() == wanted
    log = reader("nccl-log")(wanted)
    by_net = bool(env.get("NCCL_P2P_DISABLE"))
    assert (log.nccl_version, log.init_complete) == ("2.19.3+cuda12.2", True)
    assert log.network == ("Socket" if fault == "sockets" else "IB")
    assert log.nvls is (fault != "fm-off") and log.nranks == 8
    assert len(log.hcas) == {"sockets": 0, "hca-down": 7}.get(fault, 8)
    assert log.gdr is (None if not by_net else fault not in ("sockets", "no-gdr"))


def test_the_loop_through_the_hcas_has_their_bandwidth() -> None:
    call = ["all_reduce_perf", "-b", "8G", "-e", "8G", "-g", "8"]
    for preset, faults, low, high in (
        ("h100-sxm-8", [], 46, 49),
        ("h100-sxm-8", ["hca-down"], 22, 26),
        ("h100-sxm-8", ["sockets"], 0.9, 1.2),
        ("a100-sxm-8", [], 11.5, 12.5),
    ):
        said = answer(broken(preset, *faults), call, LOOP).stdout
        assert low < reader("nccl-tests")(said).peak_busbw < high


def test_a_hung_rank_ends_by_kill_only(tmp_path: Path) -> None:
    node = broken("h100-sxm-8", "rank-hang")
    put(node, tmp_path)
    with pytest.raises(Hangs):
        answer(broken("h100-sxm-8"), ["all_reduce_perf"], with_nodes=[node])
    program = str(tmp_path / "current" / "bin" / "all_reduce_perf")
    done = subprocess.run(["timeout", "-k", "0.3", "0.3", program], timeout=10, check=False)
    assert done.returncode == -9


def test_the_time_is_that_of_the_call(tmp_path: Path) -> None:
    node = broken("rtx4090-2")
    put(node, tmp_path)
    first = ask(tmp_path, ["nvidia-smi"]).stdout.splitlines()[0]
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d 20\d\d {7}", first)
    said = answer(node, ["nvidia-smi"], now=BOOTED).stdout.splitlines()[0]
    assert said == "Mon Jan  5 06:00:00 2026" + " " * 7


def test_a_hanging_nvidia_smi_ends_by_kill_only(tmp_path: Path) -> None:
    node = broken("rtx4090-2", "hang")
    put(node, tmp_path)
    with pytest.raises(Hangs):
        answer(node, ["nvidia-smi", "-L"])
    assert answer(node, ["lspci"]).code == 0, "only nvidia-smi hangs"
    program = str(tmp_path / "current" / "bin" / "nvidia-smi")
    done = subprocess.run(["timeout", "-k", "0.3", "0.3", program], timeout=10, check=False)
    assert done.returncode == -9, "ended by SIGKILL after SIGTERM did nothing"


WORDS = st.sampled_from(
    [
        *("nvidia-smi", "lspci", "ibstat", "ibv_devinfo", "rdma", "dmesg", "modinfo", "dcgmi"),
        *(
            "all_reduce_perf",
            "-i",
            "0",
            "1,2",
            "-q",
            "-x",
            "-d",
            "ECC",
            "-L",
            "topo",
            "-m",
            "nvlink",
        ),
        *("-s", "-e", "--query-gpu=index,name", "--query-gpu", "--format=csv", "--format", "csv"),
        *("-nn", "-vv", "-k", "10de:", "mlx5_0", "-F", "version", "nvidia", "link", "diag", "-r"),
        *(
            "-b",
            "8",
            "1M",
            "-g",
            "2",
            "-c",
            "-f",
            "--minbytes",
            "=",
            "",
            " ",
            "*",
            "a\\tb",
            "--",
            "-",
        ),
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(words=st.lists(WORDS, max_size=6), data=st.data())
def test_any_words_at_all_are_answered_alike(
    words: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.getbasetemp() / "any"
    node = broken("l40s-8", "hca-down")
    if not home.exists():
        put(node, home)
    programs = sorted(path.name for path in (home / "current" / "bin").iterdir())
    tool = data.draw(st.sampled_from([p for p in programs if p != "nv-fabricmanager"]))
    if tool == "modinfo" and words[-1:] != ["nvidia"]:
        return  # the real modinfo's affair
    argv = [tool, *words]
    assert timeless(ask(home, argv)) == timeless(answer(node, argv)), argv
