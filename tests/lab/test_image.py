"""The image of the stack cpu-lab: really built, really run, asked as a client would ask it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackpin.checks import probe
from rackpin.image import runline
from rackpin.inventory import ROOT, Fleet, FleetConfig, Instance, Node
from rackpin.lab import description
from rackpin.lab.base import ensure_base
from rackpin.lab.services import MAKE_MODEL
from rackpin.stack import wheelhouse
from rackpin.stack.lock import Lock, load_stack
from rackpin.stack.serve import Server, serve_background, stop_background
from rackpin.stages import image as stage
from tests.lab import docker as engines

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(3600)]

BUILD_S = 2400
HEALTHY_S = 900
ADDRESS, PORT = "127.0.0.1", 18123
KEY = "sk-image-test-0123456789abcdef"
PYTHON = "/opt/rackpin/current/bin/python"


def sh(*argv: str, timeout: float = 120, stdin: str | None = None) -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def lock() -> Lock:
    return load_stack("cpu-lab").lock


@pytest.fixture(scope="module")
def docker_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An engine with the lab's base in it as the image ``debian:bookworm-lab``."""
    if lack := engines.missing():
        pytest.skip(lack)
    base = ensure_base(description.read(ROOT / "lab" / "lab.yaml", "image"), print)
    directory = tmp_path_factory.mktemp("docker") / "engine"
    with engines.engine(directory) as socket, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", socket)
        tar = subprocess.Popen(["tar", "-C", str(base), "-c", "."], stdout=subprocess.PIPE)
        subprocess.run(
            ["docker", "import", "-", "debian:bookworm-lab"],
            stdin=tar.stdout, check=True, timeout=300, capture_output=True,
        )  # fmt: skip
        assert tar.wait(timeout=60) == 0
        yield directory
    assert "docker" not in sh("nft", "list", "ruleset").lower() + sh("ip", "-o", "link")
    assert not directory.exists()
    assert engines.processes_of(directory) == []
    assert str(directory) not in Path("/proc/self/mounts").read_text()


@pytest.fixture(scope="module")
def tag(docker_host: Path, lock: Lock) -> str:
    """The image, built twice: the second time nothing is done again."""
    wheelhouse.build(load_stack("cpu-lab"), say=print)
    argv = [str(Path(sys.executable).parent / "rackpin"), "image", "build", "cpu-lab"]
    argv += ["--base", "debian:bookworm-lab"]
    said = sh(*argv, timeout=BUILD_S)
    print(said)
    name, digest = said.split()[:2]
    assert name == f"rackpin/cpu-lab:{lock.short}"
    assert sh(*argv, timeout=BUILD_S).split()[:2] == [name, digest]
    names = sh("docker", "image", "ls", "--format", "{{.Repository}}").split()
    assert sorted(names) == ["debian", "rackpin/cpu-lab"]
    return name


def in_image(tag: str, *argv: str, stdin: str | None = None) -> str:
    program, *rest = argv
    options = ["--rm", "-i", "--network", "none", "--entrypoint", program]
    return sh("docker", "run", *options, tag, *rest, stdin=stdin)


def test_the_image_says_what_it_is(tag: str, lock: Lock) -> None:
    config = json.loads(sh("docker", "image", "inspect", tag))[0]["Config"]
    assert config["Labels"]["rackpin.lock"] == lock.digest
    assert config["Labels"]["rackpin.stack"] == "cpu-lab"
    base = json.loads(sh("docker", "image", "inspect", "debian:bookworm-lab"))[0]
    assert config["Labels"]["org.opencontainers.image.base.digest"] == base["Id"]
    assert config["User"] == "rackpin"
    env = dict(entry.split("=", 1) for entry in config["Env"])
    assert env.items() >= stage.environment(lock).items()
    assert not {"VLLM_API_KEY", "http_proxy", "RACKPIN_STACK"} & env.keys()
    assert config["Healthcheck"]["Test"][-1] == "--once"


def test_the_image_holds_exactly_the_lock(tag: str, lock: Lock) -> None:
    found = json.loads(in_image(tag, PYTHON, "-I", "-", stdin=probe.source("versions")))
    assert found["dists"] == lock.dists
    said = in_image(tag, "sh", "-c", "id -un; ldconfig -p; ls /rackpin; dpkg-query -W")
    assert said.startswith("rackpin\n")
    assert "libibverbs.so.1" in said and "librdmacm.so.1" in said
    assert "libcuda" not in said and "libnvidia" not in said and "nvidia" not in said
    lists = "ls -A /var/lib/apt/lists /opt/rackpin /rackpin; test ! -w /opt/rackpin/current/bin"
    left = in_image(tag, "sh", "-c", lists).split()
    assert "tools" not in left and not [name for name in left if name.endswith("Packages")]


def test_the_sbom_of_the_image_names_what_is_in_it(tag: str, lock: Lock, tmp_path: Path) -> None:
    from rackpin.cli import main

    file = tmp_path / "bom.json"
    done = CliRunner().invoke(main, ["sbom", "--image", tag, "-o", str(file)])
    assert done.exit_code == 0, done.output
    purls = [part["purl"] for part in json.loads(file.read_text())["components"]]
    assert f"pkg:pypi/ray@{lock.version_of('ray')}" in purls
    assert any(purl.startswith("pkg:deb/debian/libibverbs1@") for purl in purls)


def complete(key: str) -> tuple[int, str]:
    body = {"model": "tiny", "prompt": "a b c", "max_tokens": 4, "temperature": 0}
    request = urllib.request.Request(
        f"http://{ADDRESS}:{PORT}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)["choices"][0]["text"]
    except urllib.error.HTTPError as error:
        return error.code, ""


def tiny_fleet(model: Path, key_file: Path) -> Fleet:
    """As the lab's inventory has its engine, on this very machine."""
    engine = Instance(
        name="tiny", nodes=["here"], model=str(model), served_name="tiny", port=PORT,
        max_model_len=256, api_key_file=str(key_file),
        args=["--enforce-eager", "--dtype=float32", "--max-num-seqs=8",
              "--kv-cache-memory-bytes=67108864"],
        env={"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    config = FleetConfig.model_validate(
        {
            "fleet": "image",
            "stack": "cpu-lab",
            "wheelhouse_url": "http://127.0.0.1:8900",
            "instances": [engine.model_dump()],
            # Docker refuses what this machine can't give
            "limits": {"observed_memlock_min": 8388608, "observed_nofile_min": 20000},
        }
    )
    node = Node(name="here", groups=["head"], address=ADDRESS, sku="lab-cpu", gpus=1)
    return Fleet(config=config, nodes={"here": node})


def test_a_container_serves_a_completion(tag: str, tmp_path: Path) -> None:
    """By the very line that `rackpin image run-line` prints; only the key's file is elsewhere."""
    model, secret = tmp_path / "model", tmp_path / "tiny.env"
    sh(sys.executable, str(MAKE_MODEL), str(model))
    tmp_path.chmod(0o755)
    for folder in (tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)  # the engine's user reads the model
    secret.write_text(f"VLLM_API_KEY={KEY}\n")
    secret.chmod(0o600)
    fleet = tiny_fleet(model, secret)
    groups = runline.words(fleet, fleet.config.instances[0], tag)
    argv = [word for group in groups for word in group]
    argv[argv.index("--env-file") + 1] = str(secret)
    assert "--privileged" not in argv and KEY not in " ".join(argv)
    container = sh(*argv)
    try:
        end = time.monotonic() + HEALTHY_S
        while (state := health(container)) != "healthy":
            log = subprocess.run(["docker", "logs", "--tail", "40", container],
                                 capture_output=True, text=True, timeout=60)  # fmt: skip
            running = sh("docker", "inspect", "--format", "{{.State.Running}}", container)
            assert running == "true", log.stdout + log.stderr
            assert time.monotonic() < end, f"{state}: {log.stdout}{log.stderr}"
            time.sleep(2)
        status, text = complete(KEY)
        assert status == 200 and text
        assert complete("wrong") == (401, "")
        assert KEY not in sh("docker", "logs", container)
        inside = ["docker", "exec", container]
        assert sh(*inside, "id", "-un") == "rackpin"
        assert KEY not in sh(*inside, "sh", "-c", "tr '\\0' ' ' </proc/[0-9]*/cmdline; ps aux || :")
        refused = subprocess.run(
            [*inside, "env", "VLLM_API_KEY=wrong", PYTHON,
             "/usr/local/lib/rackpin/vllm-ready", "--once"],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert refused.returncode == 1 and "HTTP 401" in refused.stderr
    finally:
        sh("docker", "rm", "--force", container)


def health(container: str) -> str:
    return sh("docker", "inspect", "--format", "{{.State.Health.Status}}", container)


def test_the_same_deploy_runs_from_outside(docker_host: Path, lock: Lock, tmp_path: Path) -> None:
    """pyinfra's own connector, on a bare container; the second time nothing is left to do."""
    house = wheelhouse.build(load_stack("cpu-lab"), say=print)
    with Server(house, ADDRESS, 0) as free:
        port = int(free.server_address[1])
    options = ["--detach", "--network", "host", "--init"]
    container = sh("docker", "run", *options, "debian:bookworm-lab", "sleep", "3000")
    serve_background(house, ADDRESS, port, tmp_path / "pid", tmp_path / "log")
    env = {
        **os.environ,
        "RACKPIN_STACK": "cpu-lab",
        "RACKPIN_IMAGE": f"@docker/{container}",
        "RACKPIN_WHEELHOUSE": f"http://{ADDRESS}:{port}",
    }
    try:
        for expected in ("] Success", "] No changes"):
            done = subprocess.run(
                [str(Path(sys.executable).parent / "pyinfra"), "-y", "inventories/image.py",
                 "deploys/image.py"],
                cwd=ROOT, env=env, capture_output=True, text=True, timeout=BUILD_S,
            )  # fmt: skip
            said = done.stdout + done.stderr
            assert done.returncode == 0, said
            assert expected in said
        assert "] Success" not in said, said
        inside = ["docker", "exec", "-i", "--user", "rackpin", container, PYTHON, "-I", "-"]
        found = json.loads(sh(*inside, stdin=probe.source("versions")))
        assert found["dists"] == lock.dists
    finally:
        stop_background(tmp_path / "pid")
        sh("docker", "rm", "--force", container)


def test_a_base_of_another_os_is_refused_before_any_change(docker_host: Path) -> None:
    options = ["--detach", "--network", "none", "--init"]
    container = sh("docker", "run", *options, "debian:bookworm-lab", "sleep", "600")
    env = {**os.environ, "RACKPIN_STACK": "cpu-lab", "RACKPIN_IMAGE": f"@docker/{container}"}
    try:
        other = "printf 'ID=debian\\nVERSION_ID=99\\n' > /etc/os-release"
        sh("docker", "exec", container, "sh", "-c", other)
        done = subprocess.run(
            [str(Path(sys.executable).parent / "pyinfra"), "-y", "inventories/image.py",
             "deploys/image.py"],
            cwd=ROOT, env=env, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode != 0
        assert "not for debian 99" in done.stdout + done.stderr
        gone = subprocess.run(["docker", "exec", container, "id", "rackpin"], capture_output=True)
        assert gone.returncode != 0
    finally:
        sh("docker", "rm", "--force", container)
