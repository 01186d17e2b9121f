"""Toolkit, host NCCL and nccl-tests on a bare host, from packages made here with NVIDIA's names.

The compiler in them is a stand-in that calls gcc; apt, the linker, alternatives and make are real.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rackpin.inventory import ROOT
from rackpin.stack.pins import load_pins
from tests.lab.fleet import FleetLab, booted, changes
from tests.unit.test_nccl_build import MAIN, MAKEFILE, archive, nccl

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1800)]
NAME = "test-cuda"
HOST = "head1"
STACK = "test-cuda"
VERSION = 21903  # what the stand-in's ncclGetVersion says; its exit status is the low byte
LAB = f"""
name: {NAME}
base: {{ suite: bookworm }}
hosts:
  - {{ name: {HOST}, groups: [head], sku: lab-cpu, hardware: h100-sxm-8, faults: [no-cards] }}
"""
PINS = """
driver: {version: 535.261.03, branch: "535", flavour: closed, source: debian}
cuda: {version: 12.2.2}
nccl:
  host: {version: 2.19.3, cuda: "12.2"}
nccl_tests: {version: "1.0", commit: %s, sha256: %s}
"""
NVCC = """#!/bin/sh
flags=
for word in $NVCC_APPEND_FLAGS; do
  [ "$word" = -Xlinker ] || flags="$flags -Wl,$word"
done
exec gcc "$@" $flags
"""
POSTINST = """#!/bin/sh
update-alternatives --install /usr/local/cuda cuda /usr/local/cuda-12.2 122
"""


def deb(directory: Path, name: str, version: str, files: dict[str, Path], postinst: str) -> str:
    """Build one deb into ``directory``; its paragraph for the Packages file."""
    root = directory / "build" / name
    for path, source in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, root / path)
    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n"
        "Maintainer: a test <test@example.org>\nDescription: stand-in\n"
    )
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(control)
    if postinst:
        (root / "DEBIAN/postinst").write_text(postinst)
        (root / "DEBIAN/postinst").chmod(0o755)
    file = directory / f"{name}.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    data = file.read_bytes()
    size, digest = len(data), hashlib.sha256(data).hexdigest()
    return f"{control}Filename: ./{file.name}\nSize: {size}\nSHA256: {digest}\n"


def packages(directory: Path) -> None:
    """The three packages and their index."""
    home = nccl(directory / "nccl", VERSION)
    compiler = directory / "nvcc"
    compiler.write_text(NVCC)
    compiler.chmod(0o755)
    library = "usr/lib/x86_64-linux-gnu/libnccl.so.2"
    made = [
        deb(
            directory,
            "cuda-toolkit-12-2",
            "12.2.2-1",
            {"usr/local/cuda-12.2/bin/nvcc": compiler},
            POSTINST,
        ),
        deb(directory, "libnccl2", "2.19.3-1", {library: home / "lib/libnccl.so.2"}, ""),
        deb(
            directory,
            "libnccl-dev",
            "2.19.3-1",
            {"usr/include/nccl.h": home / "include/nccl.h"},
            "",
        ),
    ]
    (directory / "Packages").write_text("\n".join(made))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = Path(tmp_path_factory.mktemp("served"))
    packages(directory)
    (directory / "source.tar.gz").write_bytes(archive({"Makefile": MAKEFILE, "main.c": MAIN}))
    return directory


@pytest.fixture(scope="module")
def site(served: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    directory = Path(tmp_path_factory.mktemp("cuda"))
    (directory / "lab.yaml").write_text(LAB)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(served))
    stack = ROOT / "stacks" / STACK
    with booted(directory / "lab.yaml", NAME, directory) as lab:
        server = ThreadingHTTPServer((lab.lab.control_address, 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://{lab.lab.control_address}:{server.server_port}"
        try:
            write_stack(stack, served / "source.tar.gz", url)
            lab.feed(HOST, f"echo 'deb [trusted=yes] {url}/ ./' >/etc/apt/sources.list.d/own.list")
            yield lab
        finally:
            server.shutdown()
            server.server_close()
            shutil.rmtree(stack, ignore_errors=True)


def write_stack(stack: Path, source: Path, url: str) -> None:
    """cpu-lab with a toolkit, a host NCCL and nccl-tests beside it."""
    shutil.copytree(ROOT / "stacks" / "cpu-lab", stack)
    commit, sha256 = "c" * 40, hashlib.sha256(source.read_bytes()).hexdigest()
    pins = stack / "pins.yaml"
    text = pins.read_text().replace("name: cpu-lab", f"name: {STACK}")
    pins.write_text(text + PINS % (commit, sha256))
    file = stack / "lock" / "lock.json"
    lock = json.loads(file.read_text())
    lock["stack"] = STACK
    lock["pins_sha256"] = load_pins(stack).sha256
    lock["host"]["cuda"] = {"version": "12.2.2"}
    lock["host"]["nccl"]["host"] = {"version": "2.19.3", "cuda": "12.2"}
    lock["sources"]["nccl-tests"] = {
        "version": "1.0",
        "commit": commit,
        "url": f"{url}/source.tar.gz",
        "sha256": sha256,
        "size": source.stat().st_size,
    }
    roles = {"cuda-toolkit-12-2": "cuda", "libnccl2": "nccl", "libnccl-dev": "nccl"}
    lock["packages"]["debian-12"] += [
        {"name": name, "version": None, "role": role, "repository": "nvidia"}
        for name, role in roles.items()
    ]
    file.write_text(json.dumps(lock))
    for requirements in (stack / "lock").glob("python-*.txt"):
        requirements.write_text(requirements.read_text().replace("cpu-lab", STACK))


def test_cuda_and_nccl(site: FleetLab) -> None:
    stack = ("--data", f"stack={STACK}")
    for stage in ("cuda", "nccl"):
        assert changes(site.run(stage, *stack)) == [], "no card, nothing to do"
    site.faults(HOST)
    site.feed(HOST, "echo /usr/local/cuda/compat >/etc/ld.so.conf.d/000_other.conf")

    # -- the toolkit
    assert changes(site.run("cuda", *stack))
    assert site.ask(HOST, "bash -lc 'command -v nvcc; echo $CUDA_HOME'").split() == [
        "/usr/local/cuda-12.2/bin/nvcc",
        "/usr/local/cuda-12.2",
    ]
    assert site.ask(HOST, "readlink -f /usr/local/cuda") == "/usr/local/cuda-12.2"
    other = site.ask(HOST, "cat /etc/ld.so.conf.d/000_other.conf")
    assert other == "# switched off by rackpin: /usr/local/cuda/compat"
    again = site.run("cuda", *stack)
    assert changes(again) == []
    assert again.asked == {"executions": {HOST: 1}, "misses": 0}
    # somebody points the link elsewhere
    site.ask(HOST, "mkdir -p /opt/cuda-x && ln -sfn /opt/cuda-x /usr/local/cuda")
    assert changes(site.run("cuda", *stack)) == ["cuda: link"]
    assert site.ask(HOST, "readlink -f /usr/local/cuda") == "/usr/local/cuda-12.2"

    # -- nccl-tests: refused without their tools, then built, then left alone
    install = "apt-get -qq update && apt-get -qq -y --no-install-recommends install"
    site.ask(HOST, f"{install} gcc libc6-dev make python3 >/dev/null 2>&1", 600)
    first = site.run("nccl", *stack)
    assert changes(first)
    program = "/opt/rackpin/nccl-tests/host/all_reduce_perf"
    assert site.ask(HOST, f"{program}; echo $?") == str(VERSION % 256)
    loads = site.ask(HOST, f"ldd {program} | grep libnccl")
    assert "/usr/lib/x86_64-linux-gnu/libnccl.so.2" in loads
    assert "no NCCL" in first.text, "the engine's environment has none: said"
    second = site.run("nccl", *stack)
    assert changes(second) == []
    assert second.asked == {"executions": {HOST: 1}, "misses": 0}
