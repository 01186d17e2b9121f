"""The image without Docker: what its Dockerfile gets, its build and run lines, its SBOM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from rackpin import layout, sbom
from rackpin.cli import main
from rackpin.desired import Target
from rackpin.image import build, context, engine, runline
from rackpin.image.engine import ImageError
from rackpin.inventory import ROOT, Fleet
from rackpin.stack.lock import Lock
from rackpin.stack.packages import image_names
from rackpin.stages import base, image

PER_NODE = {"VLLM_HOST_IP", "RAY_ADDRESS", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}


# -- the stages in image mode -------------------------------------------------------------
def test_wish_is_the_hosts_without_kernel_units_and_secrets(target: Target, lock: Lock) -> None:
    wish = image.desired(image.target(lock, "http://127.0.0.1:1"))
    host = base.desired(target)
    assert not wish.units and not wish.triggers
    assert set(host.packages) - set(wish.packages) == {"chrony"}, "time is the host's"
    assert {"libibverbs1", "ibverbs-providers"} <= set(wish.packages)
    assert not any(file.secret for file in wish.files)
    assert all(file.path.startswith((layout.LIB, layout.STATE)) for file in wish.files)
    assert f"{layout.LIB}/vllm-ready" in [file.path for file in wish.files]


def test_environment_is_the_hosts_without_what_is_a_nodes_own(target: Target, lock: Lock) -> None:
    host = base.node_env(target.fleet, target.node, "eth0")
    env = image.environment(lock)
    assert host.keys() - env.keys() == PER_NODE
    assert all(env[key] == value for key, value in host.items() if key not in PER_NODE)
    assert "NVIDIA_VISIBLE_DEVICES" in env


def test_os_release() -> None:
    assert image.os_release('NAME=x\nID=ubuntu\nVERSION_ID="22.04"\n') == ("ubuntu", "22.04")
    assert image.os_release("") == ("", "")


# -- Dockerfile and build -----------------------------------------------------------------
def test_dockerfile_gets_the_stack_at_its_mark(lock: Lock) -> None:
    text = context.dockerfile(lock)
    assert f'LABEL rackpin.lock="{lock.digest}"\n' in text
    assert 'ENV HF_HUB_OFFLINE="1"\n' in text
    assert text.index("ENV HF_HUB_OFFLINE") > text.index("RUN ")
    assert text == context.dockerfile(lock)
    assert "API_KEY" not in text
    assert "USER rackpin\n" in text and "HEALTHCHECK" in text


def test_dockerfile_without_its_mark_is_refused(lock: Lock, tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM scratch\n")
    with pytest.raises(ImageError, match="exactly once"):
        context.dockerfile(lock, file)


def test_values_are_taken_literally(lock: Lock) -> None:
    assert context._word('a "b" $c \\') == '"a \\"b\\" \\$c \\\\"'
    with pytest.raises(ImageError, match="line break"):
        context._word("a\nb")


def test_build_arguments(lock: Lock) -> None:
    start = build.Base("debian@sha256:" + "a" * 64, "sha256:" + "a" * 64)
    environ = {"http_proxy": "http://proxy:3128", "SECRET": "x"}
    argv = build.build_argv(lock, start, Path("/t/url"), Path("/t/c"), "x/y:z", environ)
    assert argv[:3] == ["build", "--network", "host"]
    given = [argv[i + 1] for i, word in enumerate(argv) if word == "--build-arg"]
    assert given == [
        f"BASE={start.ref}",
        f"BASE_DIGEST={start.digest}",
        f"STACK={lock.stack}",
        "http_proxy=http://proxy:3128",
    ]
    declared = (ROOT / "Dockerfile").read_text()
    assert all(f"\nARG {arg.split('=')[0]}\n" in declared for arg in given[:3])
    assert argv[-3:] == ["--tag", "x/y:z", "/t/c"]


def test_base_by_digest_is_taken_as_it_is() -> None:
    ref = "docker.io/library/debian@sha256:" + "b" * 64
    assert build.resolve_base(ref) == build.Base(ref, "sha256:" + "b" * 64)


def inspected(monkeypatch: pytest.MonkeyPatch, **image: object) -> list[tuple[str, ...]]:
    calls: list[tuple[str, ...]] = []

    def docker(*argv: str, **_: object) -> str:
        calls.append(argv)
        if argv[:2] == ("image", "inspect") and not image:
            raise ImageError("No such image")
        return json.dumps([image])

    monkeypatch.setattr(build, "docker", docker)
    return calls


def test_a_tag_is_replaced_by_what_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    by_digest = "debian@sha256:" + "c" * 64
    inspected(monkeypatch, Id="sha256:" + "d" * 64, RepoDigests=[by_digest], RepoTags=["debian:12"])
    assert build.resolve_base("debian:12") == build.Base(by_digest, "sha256:" + "c" * 64)


def test_an_imported_base_goes_by_its_content(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = "sha256:" + "e" * 64
    calls = inspected(monkeypatch, Id=digest, RepoDigests=[], RepoTags=["debian:lab"])
    found = build.resolve_base("debian:lab")
    assert found == build.Base("rackpin-base:" + "e" * 64, digest, made_tag=True)
    assert calls[-1] == ("image", "tag", digest, found.ref)


def test_a_base_that_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    inspected(monkeypatch)
    with pytest.raises(ImageError, match="docker pull debian:12"):
        build.resolve_base("debian:12")


def fake_docker(folder: Path, version: str, buildx: bool) -> None:
    folder.mkdir()
    file = folder / "docker"
    plugin = "echo buildx 0.1" if buildx else "exit 1"
    file.write_text(
        f'#!/bin/sh\ncase "$1" in buildx) {plugin};; *) echo "Docker version {version}, build x";; '
        "esac\n"
    )
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "buildx", "more"),
    [("20.10.24+dfsg1", False, {"DOCKER_BUILDKIT": "1"}), ("28.2.2", True, {})],
)
def test_a_docker_with_buildkit_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, buildx: bool, more: dict
) -> None:
    fake_docker(tmp_path / "a", "28.2.2", False)
    fake_docker(tmp_path / "b", version, buildx)
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/b:/usr/sbin")
    engine.builder.cache_clear()
    try:
        assert engine.builder() == (f"{tmp_path}/b/docker", more)
        monkeypatch.setenv("PATH", f"{tmp_path}/a")
        engine.builder.cache_clear()
        with pytest.raises(ImageError, match="has no BuildKit"):
            engine.builder()
    finally:
        engine.builder.cache_clear()


# -- the run line -------------------------------------------------------------------------
def with_sku(fleet: Fleet, sku: str) -> Fleet:
    nodes = {name: node.model_copy(update={"sku": sku}) for name, node in fleet.nodes.items()}
    return fleet.model_copy(update={"nodes": nodes})


def line(fleet: Fleet, **options: bool) -> str:
    return runline.text(runline.words(fleet, fleet.config.instances[1], "x:1", **options))


def test_run_line_on_gpu_hosts(fleet: Fleet) -> None:
    text = line(with_sku(fleet, "h100-sxm-8"))
    for part in (
        "--gpus all", "--device /dev/infiniband", "--cap-add IPC_LOCK", "--ulimit memlock=-1",
        "--shm-size 8g", "--network host", "--pids-limit -1",
        "--env-file /etc/rackpin/vllm/one.env", "--env VLLM_HOST_IP=10.9.0.13",
        "--env RACKPIN_URL=http://10.9.0.13:8000",
        "--mount type=bind,src=/srv/models/tiny,dst=/srv/models/tiny,readonly",
    ):  # fmt: skip
        assert part in text
    assert text.index("x:1") < text.index("--model=/srv/models/tiny")
    assert "sk-test" not in text and "RAY_ADDRESS" not in text and "--privileged" not in text
    assert "/dev/infiniband" not in line(with_sku(fleet, "h100-sxm-8"), rdma=False)


def test_run_line_without_gpu_and_with_what_the_host_can_give(fleet: Fleet) -> None:
    limits = fleet.config.limits.model_copy(
        update={"observed_memlock_min": 8388608, "observed_nofile_min": 20000}
    )
    config = fleet.config.model_copy(update={"limits": limits})
    text = line(fleet.model_copy(update={"config": config}))
    assert "--gpus" not in text and "infiniband" not in text
    assert "--ulimit memlock=8388608" in text and "--ulimit nofile=20000" in text


def test_an_engine_over_nodes_is_no_single_container(fleet: Fleet) -> None:
    with pytest.raises(ImageError, match="over 2 nodes"):
        runline.words(fleet, fleet.config.instances[0], "x:1")


def test_engines_are_picked_by_name(fleet: Fleet) -> None:
    file = Path("inventories/x.py")
    assert [i.name for i in runline.pick(fleet, "cpu-lab", ("one",), file)] == ["one"]
    assert len(runline.pick(fleet, "cpu-lab", (), file)) == 2
    with pytest.raises(ImageError, match=r"no engine three; it has two, one"):
        runline.pick(fleet, "cpu-lab", ("three",), file)
    with pytest.raises(ImageError, match="its stack is cpu-lab, not other"):
        runline.pick(fleet, "other", (), file)


def test_the_page_shows_every_flag_of_the_table() -> None:
    page = (ROOT / "docs" / "image.md").read_text()
    for row in base.data("image.yaml")["run"]:
        assert f"`{row['flags'].partition('{')[0]}" in page, row["flags"]
        assert row["why"] and row["source"]
    for name in image_names("debian-12"):
        assert f"`{name}`" in page


# -- SBOM ---------------------------------------------------------------------------------
def test_sbom_of_a_lock_is_valid_whole_and_always_the_same(lock: Lock) -> None:
    text = sbom.of_lock(lock)
    assert text == sbom.of_lock(lock)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    parts = {part["name"]: part for part in document["components"]}
    for wheel in lock.files:
        assert parts[wheel.name]["version"] == wheel.version
        assert parts[wheel.name]["hashes"] == [{"alg": "SHA-256", "content": wheel.sha256}]
    assert parts["libnuma1"]["purl"].startswith("pkg:deb/debian/libnuma1")
    assert {"name": "rackpin:lock", "value": lock.digest} in document["metadata"]["component"][
        "properties"
    ]


def test_sbom_of_an_image_says_what_the_image_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"Labels": {"rackpin.lock": "1"}}
    wheels = {"python": "3.11.2", "dists": {"ray": "2.60.0"}}
    system = {"os": "debian", "release": "12", "debs": [["libibverbs1", "44.0-2", "amd64"]]}

    def docker(*argv: str, **_: object) -> str:
        if argv[:2] == ("image", "inspect"):
            return json.dumps([{"Id": "sha256:1", "Config": config}])
        assert "none" in argv and "--read-only" in argv
        return f"{json.dumps(wheels)}\n{json.dumps(system)}"

    monkeypatch.setattr(sbom, "docker", docker)
    text = sbom.of_image("x:1")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    purls = {part["purl"] for part in json.loads(text)["components"]}
    deb = "pkg:deb/debian/libibverbs1@44.0-2?arch=amd64&distro=debian-12"
    assert purls == {"pkg:pypi/ray@2.60.0", deb}


def test_an_unreadable_answer_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sbom, "docker", lambda *argv, **_: "nonsense")
    with pytest.raises(ImageError, match="can't be read"):
        sbom.look("x:1")


def test_sbom_command_wants_one_thing(tmp_path: Path) -> None:
    run = CliRunner()
    assert run.invoke(main, ["sbom"]).exit_code == 2
    assert run.invoke(main, ["sbom", "cpu-lab", "--image", "x"]).exit_code == 2
    assert "known: cpu-lab" in run.invoke(main, ["sbom", "nothing"]).output
    file = tmp_path / "bom.json"
    assert run.invoke(main, ["sbom", "cpu-lab", "-o", str(file)]).exit_code == 0
    assert json.loads(file.read_text())["bomFormat"] == "CycloneDX"
