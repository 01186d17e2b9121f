"""nccl-tests are built once, from the pinned bytes, against one NCCL and no other.

With a stand-in for nvcc and the source everywhere; with the real ones where this machine has them:
``RACKPIN_NCCL_TESTS`` names the pinned .tar.gz, ``RACKPIN_NCCL`` a wheel's nvidia/nccl directory.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rackpin.desired import Target
from rackpin.facts import Packages, Paths, PathState
from rackpin.nccltests.build import HOST_LIBRARY, Build, builds, script
from rackpin.operations_nccl import tests_built as built  # pytest would take it for a test
from rackpin.requests import requests
from rackpin.stack.content import Lock
from rackpin.stack.hostpins import CudaPin, NcclHostPin, NcclPins
from rackpin.stack.items import Host, Reason, Source, Unresolved
from rackpin.stack.lock import load_stack
from rackpin.stages import nccl as stage
from tests.unit.fabric_samples import Tree, h100
from tests.unit.shell import sh
from tests.unit.test_operations import commands

STACK = "cuda12.2-vllm0.4.2"
# As nccl-tests' own: nvcc links, with what NVCC_APPEND_FLAGS adds; BUILDDIR gets the programs.
MAKEFILE = """
all:
\tmkdir -p $(BUILDDIR)
\t$(CUDA_HOME)/bin/nvcc -o $(BUILDDIR)/all_reduce_perf main.c -I$(NCCL_HOME)/include \\
\t  -L$(NCCL_HOME)/lib -lnccl
"""
MAIN = '#include "nccl.h"\nint main(void) { return ncclGetVersion(); }\n'
NVCC = """#!/bin/sh
echo run >>{log}
flags=
for word in $NVCC_APPEND_FLAGS; do
  [ "$word" = -Xlinker ] || flags="$flags -Wl,$word"
done
exec gcc "$@" $flags
"""


def archive(files: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"nccl-tests-abc/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


def nccl(place: Path, version: int) -> Path:
    """A NCCL as its wheel lays it out: headers, and a library without the linker's name."""
    (place / "include").mkdir(parents=True)
    (place / "lib").mkdir()
    (place / "include/nccl.h").write_text("int ncclGetVersion(void);\n")
    code = place / "nccl.c"
    code.write_text(f"int ncclGetVersion(void) {{ return {version}; }}\n")
    library = place / "lib/libnccl.so.2"
    flags = ["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", str(library)]
    subprocess.run(["gcc", *flags, str(code)], check=True, timeout=60)
    return place


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Build]:
    """A toolkit, a NCCL of version 7 and the source, served on this machine."""
    if not (shutil.which("gcc") and shutil.which("make")):
        pytest.skip("needs gcc and make to build the stand-in")
    served = tmp_path / "served"
    served.mkdir()
    data = archive({"Makefile": MAKEFILE, "main.c": MAIN})
    (served / "source.tar.gz").write_bytes(data)
    compiler = tmp_path / "cuda/bin/nvcc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(NVCC.format(log=tmp_path / "compiled"))
    compiler.chmod(0o755)
    home = nccl(tmp_path / "nccl", 7)
    source = Source(version="1", commit="a" * 40, url="x", sha256=hashlib.sha256(data).hexdigest())
    with serving(served) as url:
        yield Build(
            kind="engine",
            source=source,
            url=f"{url}/source.tar.gz",
            cuda=str(tmp_path / "cuda"),
            nccl=str(home),
            library=str(home / "lib/libnccl.so.2"),
            version="7",
            root=str(tmp_path / "built"),
        )


class serving:
    """A directory on 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        handler = functools.partial(SimpleHTTPRequestHandler, directory=str(directory))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self) -> str:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def compiled(build: Build) -> int:
    log = Path(build.root).parent / "compiled"
    return len(log.read_text().split()) if log.exists() else 0


def test_it_is_built_once_and_loads_its_own_nccl(site: Build, tmp_path: Path) -> None:
    done = sh(script(site))
    assert (done.returncode, done.stdout) == (0, f"built: {site.place}\n"), done.stderr
    program = Path(site.link) / "all_reduce_perf"
    other = nccl(tmp_path / "other", 9)
    run = subprocess.run([str(program)], env={"LD_LIBRARY_PATH": f"{other}/lib"}, timeout=20)
    assert run.returncode == 7, "RPATH wins over LD_LIBRARY_PATH"
    again = sh(script(site))
    assert again.stdout == f"complete: {site.place}\n" and compiled(site) == 1
    assert sorted(p.name for p in Path(site.root).iterdir()) == sorted(
        [".lock", "engine", Path(site.place).name]
    )


def test_another_nccl_is_another_build_and_the_old_one_stays(site: Build, tmp_path: Path) -> None:
    assert sh(script(site)).returncode == 0
    newer = nccl(tmp_path / "newer", 8)
    moved = dataclasses.replace(
        site, nccl=str(newer), library=str(newer / "lib/libnccl.so.2"), version="8"
    )
    assert sh(script(moved)).returncode == 0
    assert subprocess.run([f"{site.link}/all_reduce_perf"], timeout=20).returncode == 8
    assert Path(site.mark).exists()
    back = sh(script(site))
    assert back.stdout.startswith("complete:") and compiled(site) == 2
    assert subprocess.run([f"{site.link}/all_reduce_perf"], timeout=20).returncode == 7


def leaves_nothing(build: Build, *words: str) -> None:
    done = sh(script(build))
    assert done.returncode != 0
    assert all(word in done.stderr for word in words), done.stderr
    left = [p.name for p in Path(build.root).iterdir() if p.name != ".lock"]
    assert left == [], "nothing half built"


def test_other_bytes_are_refused(site: Build) -> None:
    source = site.source.model_copy(update={"sha256": "0" * 64})
    leaves_nothing(dataclasses.replace(site, source=source), "expected sha256 000", "found")
    assert compiled(site) == 0


def test_what_is_missing_is_named(site: Build, tmp_path: Path) -> None:
    leaves_nothing(dataclasses.replace(site, cuda="/nowhere"), "/nowhere/bin/nvcc is missing")
    leaves_nothing(dataclasses.replace(site, library="/nowhere.so"), "/nowhere.so is missing")
    leaves_nothing(dataclasses.replace(site, nccl="/nowhere"), "nccl.h is missing")
    leaves_nothing(dataclasses.replace(site, url=site.url + "x"), "404", "bundle")


def test_a_failed_make_shows_its_end(site: Build, tmp_path: Path) -> None:
    data = archive({"Makefile": "all:\n\techo no such card >&2; exit 3\n"})
    (tmp_path / "served/source.tar.gz").write_bytes(data)
    source = site.source.model_copy(update={"sha256": hashlib.sha256(data).hexdigest()})
    leaves_nothing(dataclasses.replace(site, source=source), "no such card", "make failed")


def test_a_program_that_would_load_another_nccl_is_no_success(site: Build, tmp_path: Path) -> None:
    other = nccl(tmp_path / "other", 9)
    wrong = MAKEFILE.replace("-lnccl", f"{other}/lib/libnccl.so.2 -Wl,-rpath={other}/lib")
    data = archive({"Makefile": wrong, "main.c": MAIN})
    (tmp_path / "served/source.tar.gz").write_bytes(data)
    source = site.source.model_copy(update={"sha256": hashlib.sha256(data).hexdigest()})
    leaves_nothing(dataclasses.replace(site, source=source), f"would load {other}")


def test_a_half_built_one_is_built_again(site: Build) -> None:
    Path(site.place).mkdir(parents=True)
    (Path(site.place) / "all_reduce_perf").write_text("cut")
    assert sh(script(site)).stdout == f"built: {site.place}\n"
    assert subprocess.run([f"{site.link}/all_reduce_perf"], timeout=20).returncode == 7


@pytest.mark.slow
def test_the_real_source_with_the_real_compiler(tmp_path: Path) -> None:
    """Against the engine's NCCL; a run ends at the missing driver and says which NCCL it loaded."""
    given = {name: os.environ.get(name, "") for name in ("RACKPIN_NCCL_TESTS", "RACKPIN_NCCL")}
    if missing := [name for name, value in given.items() if not value]:
        pytest.skip(f"not given: {', '.join(missing)}")
    if not Path("/usr/local/cuda/bin/nvcc").exists():
        pytest.skip("no nvcc on this machine")
    archive_file, home = Path(given["RACKPIN_NCCL_TESTS"]), Path(given["RACKPIN_NCCL"])
    served = tmp_path / "served"
    served.mkdir()
    shutil.copy(archive_file, served / "source.tar.gz")
    source = load_stack(STACK).lock.require_source("nccl-tests")
    with serving(served) as url:
        build = Build(
            kind="engine",
            source=source,
            url=f"{url}/source.tar.gz",
            cuda="/usr/local/cuda",
            nccl=str(home),
            library=str(home / "lib/libnccl.so.2"),
            version="2.19.3",
            gencode="-gencode=arch=compute_90,code=sm_90",
            root=str(tmp_path / "built"),
        )
        done = subprocess.run(
            ["sh", "-s"], input=script(build), capture_output=True, text=True, timeout=1800
        )
    assert done.returncode == 0, done.stderr
    program = f"{build.link}/all_reduce_perf"
    run = subprocess.run([program, "-b", "8"], capture_output=True, text=True, timeout=60)
    said = run.stdout + run.stderr
    assert "nccl-headers=21903 nccl-library=21903" in said, said
    assert Path(f"{build.link}/sendrecv_perf").exists()


# -- what is built ---------------------------------------------------------------------------------
@pytest.fixture
def gpu_lock(lock: Lock) -> Lock:
    """The lab's lock with what a stack for cards has."""
    real = load_stack(STACK).lock
    return lock.but(
        host=Host(
            cuda=CudaPin(version="12.2.2"),
            nccl=NcclPins(host=NcclHostPin(version="2.19.3", cuda="12.2")),
        ),
        sources=real.sources,
        packages={lock.os[0].key: real.packages["ubuntu-22.04"]},
    )


def test_a_stack_for_cards_has_both_builds() -> None:
    lock = load_stack(STACK).lock
    (host, engine), notes = builds(lock, "ubuntu-22.04", None)
    assert not notes and host.library == HOST_LIBRARY and host.cuda == "/usr/local/cuda-12.2"
    assert engine.library.endswith("/site-packages/nvidia/nccl/lib/libnccl.so.2")
    assert (host.version, engine.version) == ("2.19.3", "2.19.3")
    assert host.url.startswith("https://github.com/") and host.digest != engine.digest
    (offline, _), _ = builds(lock, "ubuntu-22.04", "http://10.0.0.5:8901/")
    assert offline.url == (
        f"http://10.0.0.5:8901/files/nccl-tests-{offline.source.commit[:12]}.tar.gz"
    )
    assert offline.digest == host.digest, "where it is fetched from makes no other program"


def test_what_can_not_be_built_is_said(lock: Lock, gpu_lock: Lock) -> None:
    assert builds(lock, "debian-12", None) == ([], ["the lock has no source of nccl-tests"])
    assert "no CUDA toolkit" in builds(gpu_lock.but(host=Host()), "debian-12", None)[1][0]
    (only,), notes = builds(gpu_lock, "debian-12", None)
    assert only.kind == "host" and "no NCCL" in notes[0]
    unresolved = Unresolved(wanted="nccl-tests", unresolved=Reason(reason="not to be had here"))
    none, why = builds(gpu_lock.but(sources={"nccl-tests": unresolved}), "debian-12", None)
    assert none == [] and "not to be had here" in why[0]


def test_the_survey_knows_what_the_stage_will_ask(
    target: Target, gpu_lock: Lock, tmp_path: Path
) -> None:
    before = dataclasses.replace(target, lock=gpu_lock)
    after = dataclasses.replace(before, fabric=h100(Tree(tmp_path)).look())
    wish = stage.desired(after)
    assert wish.packages == ("libnccl-dev", "libnccl2", "libopenmpi-dev", "openmpi-bin")
    asked = requests(before)
    assert (Paths, {"paths": wish.paths}) in asked
    assert (Packages, {"names": wish.packages}) in asked


def test_nothing_is_done_where_it_is_built(target: Target, gpu_lock: Lock) -> None:
    here = dataclasses.replace(target, lock=gpu_lock)
    (build,), _ = stage.tests(here)
    wish = stage.desired(here)
    done = {
        build.mark: PathState("file"),
        build.link: PathState("link", target=build.place.rpartition("/")[2]),
    }
    assert commands(built, {Paths: done}, build=build, stage=wish) == []
    (command,) = commands(built, {Paths: {}}, build=build, stage=wish)
    assert command.connector_arguments["_stdin"] == script(build)
    elsewhere = done | {build.link: PathState("link", target="host-000000000000")}
    assert len(commands(built, {Paths: elsewhere}, build=build, stage=wish)) == 1
