"""Locking for real, with uv, from a small index on this machine: no network at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackpin.stack import debs, registry, uvtool
from rackpin.stack.items import Image, Reason, Unresolved
from rackpin.stack.lock import Lock, load_stack, write_lock
from rackpin.stack.lock_cli import lock_command
from rackpin.stack.model import StackError
from rackpin.stack.resolve import resolve
from tests.unit.index_server import Index, serve

PINS = """\
name: tiny
summary: a stack for tests
os: [{id: ubuntu, version: "22.04"}]
driver: {version: 535.129.03, branch: "535", flavour: closed, source: nvidia, fabric_manager: true}
nccl: {engine: {distribution: nvidia-nccl-cu12, version: 2.19.3, override: true}}
python: "3.10"
engine: {distribution: alpha, version: "1.0", module: alpha}
dists: {torch: {version: 2.3.0}}
exclude_newer: 2024-05-20
uv: "1.0"
debs: {ubuntu-22.04: [python3]}
images: {base: {ref: "ubuntu:22.04"}}
exclude: [{name: downloader, why: it fetches things when it is built}]
nccl_tests: {version: 2.19.6, commit: a0b82b2260cf5152b9f8c061bbf7eaf0ba096432, sha256: SHA}
""".replace("SHA", "a" * 64)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    found, server = serve(tmp_path_factory.mktemp("index"))
    found.add("uv", "1.0", uploaded="2026-01-01")
    found.add("alpha", "1.0", "torch==2.3.0", "beta>=1", "downloader")
    found.add("torch", "2.3.0", "nvidia-nccl-cu12==2.20.5")
    for version in ("2.19.3", "2.20.5"):
        found.add("nvidia-nccl-cu12", version, tag="py3-none-manylinux1_x86_64")
    found.add("beta", "1.0", "gamma")
    found.add("beta", "1.1", "gamma", uploaded="2024-05-20")
    found.add("beta", "2.0", "delta", uploaded="2024-05-21")
    found.add("gamma", "1.0")
    found.add("gamma", "1.1", uploaded="2024-06-01")
    found.add("delta", "1.0")
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def root(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stacks; uv sees the index and nothing else, and no registry answers."""
    nothing: dict[str, list[str]] = {"find-links": [], "index-url": []}
    monkeypatch.setattr(uvtool, "pip_settings", lambda: nothing)
    monkeypatch.setattr(registry, "DOCKER_HUB", "127.0.0.1:9")
    no_answer = Unresolved(wanted="ubuntu-22.04", unresolved=Reason(reason="no answer from x"))
    monkeypatch.setattr(debs, "closure", lambda *_: no_answer)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}simple/")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("UV_FIND_LINKS", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    put(tmp_path / "stacks", PINS)
    return tmp_path / "stacks"


def put(root: Path, text: str) -> None:
    (root / "tiny").mkdir(parents=True, exist_ok=True)
    (root / "tiny" / "pins.yaml").write_text(text, encoding="utf-8")


def lock(root: Path, *update: str) -> Lock:
    _, new, _ = resolve("tiny", root, update)
    write_lock(new, root)
    return new


def test_same_inputs_give_the_same_bytes(root: Path, tmp_path: Path) -> None:
    first = lock(root)
    files = {f.name: f.read_bytes() for f in (root / "tiny" / "lock").iterdir()}
    again = tmp_path / "elsewhere"
    put(again, PINS)
    lock(again)
    assert {f.name: f.read_bytes() for f in (again / "tiny" / "lock").iterdir()} == files
    assert lock(root).digest == first.digest, "locking again changes nothing"
    assert {f.name: f.read_bytes() for f in (root / "tiny" / "lock").iterdir()} == files
    assert load_stack("tiny", root).lock == first


def test_override_exclusion_and_day_are_kept(root: Path) -> None:
    found = lock(root)
    assert found.dists == {
        "alpha": "1.0", "beta": "1.1", "gamma": "1.0", "nvidia-nccl-cu12": "2.19.3",
        "torch": "2.3.0",
    }  # fmt: skip
    assert found.uv.version == "1.0", "the installer doesn't belong to that day"
    assert all(w.url is None for w in found.files), "the index is nobody else's"
    assert found.host.fabric_manager == "535.129.03"
    assert found.require_source("nccl-tests").url.endswith(
        "a0b82b2260cf5152b9f8c061bbf7eaf0ba096432.tar.gz"
    )
    names = {p.name: p.version for p in found.packages["ubuntu-22.04"]}
    assert names == {
        "nvidia-driver-535": "535.129.03-0ubuntu1",
        "nvidia-fabricmanager-535": "535.129.03-1",
        "python3": None,
        "chrony": None,
        "nginx": None,
        "libibverbs1": None,
        "ibverbs-providers": None,
        "librdmacm1": None,
    }
    assert sorted(found.unresolved) == ["debs_closure.ubuntu-22.04", "images.base"]


def test_a_new_pin_moves_only_what_hangs_on_it(root: Path, index: Index) -> None:
    before = lock(root)
    put(root, PINS.replace("535.129.03", "535.183.01"))
    after = lock(root)
    assert after.env_name == before.env_name and after.wheels == before.wheels
    assert after.sources == before.sources
    put(root, PINS.replace("2024-05-20", "2024-05-30"))
    assert lock(root).wheels == before.wheels, "what the pins still allow stays"
    old, new, why = resolve("tiny", root, ("beta",))
    assert old and new.dists["beta"] == "2.0" and "gamma" not in new.dists
    assert new.dists["delta"] == "1.0" and why["delta"] == ["beta"]
    with pytest.raises(StackError, match=r"--update betta: not in the lock"):
        resolve("tiny", root, ("betta",))


def test_the_command_says_what_moved_and_why(root: Path) -> None:
    run = CliRunner()
    first = run.invoke(lock_command, ["tiny", "--stacks", str(root)])
    assert first.exit_code == 0, first.output
    assert "unresolved: images.base (ubuntu:22.04): registry 127.0.0.1:9" in first.output
    assert "error(s)" in first.output, "what `rackpin check` says of it"
    again = run.invoke(lock_command, ["tiny", "--stacks", str(root)])
    assert again.output.startswith("tiny: unchanged, ")
    put(root, PINS.replace("2024-05-20", "2024-05-30"))
    moved = run.invoke(lock_command, ["tiny", "--stacks", str(root), "--update", "beta"])
    assert "  beta 1.1 → 2.0  (--update)" in moved.output
    assert "  delta – → 1.0  (for beta)" in moved.output
    assert "  gamma 1.0 → –  (nothing asks for it any more)" in moved.output


def test_nccl_that_torch_does_not_want_is_explained(root: Path) -> None:
    put(root, PINS.replace(", override: true", ""))
    with pytest.raises(StackError, match=r"nccl.engine: torch asks for another nvidia-nccl-cu12"):
        resolve("tiny", root)
    put(root, PINS.replace("nvidia-nccl-cu12", "nvidia-nccl-cu13"))
    with pytest.raises(StackError, match=r"nccl.engine: the engine gets no nvidia-nccl-cu13"):
        resolve("tiny", root)


def test_an_os_with_another_python_gets_a_lock_of_its_own(root: Path, index: Index) -> None:
    both = 'version: "22.04"}, {id: debian, version: "12", python: "3.11"}'
    text = PINS.replace('version: "22.04"}', both)
    text = text.replace("[python3]}", "[python3], debian-12: []}")
    put(root, text)
    found = lock(root)
    assert found.pythons == ["3.10", "3.11"]
    assert found.for_python("3.11").dists == found.dists
    names = {f.name for f in (root / "tiny" / "lock").iterdir()}
    assert names == {"lock.json", "python-3.10-x86_64.txt", "python-3.11-x86_64.txt"}


def test_a_closure_of_debs_is_kept_until_the_packages_change(root: Path) -> None:
    found = lock(root)
    deb = {
        "name": "python3", "version": "3.10.6", "architecture": "amd64", "size": 1,
        "filename": "pool/p.deb", "sha256": "a" * 64, "repository": "ubuntu",
    }  # fmt: skip
    data = found.model_dump() | {"debs_closure": {"ubuntu-22.04": {"debs": [deb]}}}
    write_lock(Lock.model_validate(data), root)
    assert lock(root).require_debs("ubuntu-22.04").debs[0].name == "python3"
    put(root, PINS.replace("535.129.03", "535.183.01"))
    assert isinstance(lock(root).debs_closure["ubuntu-22.04"], Unresolved)


def test_a_digest_in_the_pins_needs_no_registry(root: Path) -> None:
    digest = "sha256:" + "d" * 64
    put(root, PINS.replace('"ubuntu:22.04"}', f'"ubuntu:22.04", digest: "{digest}"}}'))
    image = lock(root).images["base"]
    assert isinstance(image, Image) and image.pull == f"ubuntu@{digest}"
