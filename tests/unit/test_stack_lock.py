"""Lock: same inputs give the same bytes, and what doesn't fit together is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from rackpin.stack.choose import choose_wheel
from rackpin.stack.hostpins import DriverPin
from rackpin.stack.items import Host, Image, Reason, Unresolved
from rackpin.stack.lock import (
    Lock,
    Wheel,
    load_stack,
    read_any_lock,
    render_json,
    render_requirements,
    stack_names,
    write_lock,
)
from rackpin.stack.pins import Pins, StackError, load_pins
from rackpin.stack.uvtool import project

PINS = """\
name: tiny
summary: a stack for tests
os: [{id: debian, version: "12"}, {id: ubuntu, version: "24.04"}]
python: "3.11"
engine: {distribution: alpha, version: 1.0, module: alpha}
dists: {torch: {version: 2.0+cpu}}
uv: 0.13.9
debs: {debian-12: [python3], ubuntu-24.04: [python3.11]}
exclude: [{name: beta, why: it is only a test}]
extra_index: [{url: "https://download.pytorch.org/whl/cpu", packages: [torch]}]
""".replace("1.0,", '"1.0",')


def wheel(name: str, version: str, digit: str = "a") -> Wheel:
    return Wheel(
        name=name,
        version=version,
        filename=f"{name}-{version}-py3-none-any.whl",
        sha256=digit * 64,
        size=10,
    )


def make_lock(pins: Pins, *wheels: Wheel) -> Lock:
    return Lock(
        stack=pins.name,
        pins_sha256=pins.sha256,
        os=pins.os,
        arch=pins.arch,
        python=pins.python,
        engine=pins.engine,
        debs=pins.debs,
        wheels=list(wheels),
        uv=wheel("uv", "0.13.9"),
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "pins.yaml").write_text(PINS, encoding="utf-8")
    pins = load_pins(tmp_path / "tiny")
    write_lock(make_lock(pins, wheel("alpha", "1.0"), wheel("torch", "2.0+cpu")), tmp_path)
    return tmp_path


def test_round_trip_keeps_digest_and_bytes(root: Path) -> None:
    lock = load_stack("tiny", root).lock
    directory = root / "tiny" / "lock"
    before = {file.name: file.read_bytes() for file in directory.iterdir()}
    assert set(before) == {"lock.json", "python-3.11-x86_64.txt"}
    write_lock(lock, root)
    assert {file.name: file.read_bytes() for file in directory.iterdir()} == before
    assert Lock.model_validate_json(render_json(lock)).digest == lock.digest
    assert len(lock.digest) == 64
    assert lock.env_name == f"tiny-{lock.env_digest[:12]}"


def test_digest_follows_the_content(root: Path) -> None:
    stack = load_stack("tiny", root)
    other = make_lock(stack.pins, wheel("alpha", "1.0"), wheel("torch", "2.0+cpu", "b"))
    assert other.digest != stack.lock.digest


def test_only_what_is_in_it_names_the_environment(root: Path) -> None:
    lock = load_stack("tiny", root).lock
    driver = DriverPin(version="535.129.03", branch="535", flavour="closed", source="nvidia")
    moved = lock.model_copy(update={"host": Host(driver=driver), "pins_sha256": "0" * 64})
    other = Lock.model_validate(moved.model_dump())
    assert other.digest != lock.digest
    assert other.env_name == lock.env_name, "a driver must not rebuild environments"
    assert lock.for_python("3.11") is lock


def test_the_lock_has_a_line_for_each_item(root: Path) -> None:
    text = render_json(load_stack("tiny", root).lock)
    (line,) = [line for line in text.splitlines() if '"torch"' in line]
    assert json.loads(line.rstrip(","))["version"] == "2.0+cpu"
    assert max(text.count("\n"), 60) == 60, "few lines: one for each item and group"


def test_another_python_has_its_own_wheels_and_file(root: Path) -> None:
    old = load_stack("tiny", root).lock
    lock = old.but(other_wheels={"3.12": [wheel("alpha", "1.0")]})
    directory = write_lock(lock, root)
    assert load_stack("tiny", root).lock == lock
    view = lock.for_python("3.12")
    assert (view.python, view.dists) == ("3.12", {"alpha": "1.0"})
    assert view.env_digest not in (lock.env_digest, old.env_digest)
    assert len([f for f in lock.files if f.name == "alpha"]) == 1, "each file once"
    with pytest.raises(StackError, match=r"no wheels for Python 3.13, only for 3.11, 3.12"):
        lock.for_python("3.13")
    (directory / "python-3.12-x86_64.txt").unlink()
    with pytest.raises(StackError, match=r"python-3.12-x86_64.txt: missing"):
        load_stack("tiny", root)
    (directory / "python-3.9-x86_64.txt").touch()
    write_lock(old, root)
    assert {f.name for f in directory.iterdir()} == {"lock.json", "python-3.11-x86_64.txt"}


def test_what_is_unresolved_loads_and_is_refused_when_needed(root: Path) -> None:
    reason = Reason(reason="the registry could not be reached")
    missing = Unresolved(wanted="ubuntu:22.04", unresolved=reason)
    good = Image(ref="localhost:5000/a/b:1", digest="sha256:" + "a" * 64)
    old = load_stack("tiny", root).lock
    lock = old.but(images={"base": missing, "good": good}, debs_closure={"debian-12": missing})
    write_lock(lock, root)
    found = load_stack("tiny", root).lock
    assert sorted(found.unresolved) == ["debs_closure.debian-12", "images.base"]
    assert found.require_image("good").pull == "localhost:5000/a/b@sha256:" + "a" * 64
    for ask in (lambda: found.require_image("base"), lambda: found.require_debs("debian-12")):
        with pytest.raises(StackError, match=r"lock.json: .*unresolved \(ubuntu:22.04\): the reg"):
            ask()
    with pytest.raises(StackError, match=r"sources.nccl-tests: not in the lock \(it has none\)"):
        found.require_source("nccl-tests")


def test_engine_environment_names_files_of_the_environment(root: Path) -> None:
    old = load_stack("tiny", root).lock
    lock = old.but(engine_env={"A_PATH": "{site_packages}/x.so", "B": "0"})
    place = "/opt/rackpin/current/lib/python3.11/site-packages/x.so"
    assert lock.engine_environment("/opt/rackpin/current") == {"A_PATH": place, "B": "0"}


def test_a_lock_of_the_first_schema_can_still_be_compared(root: Path) -> None:
    file = root / "tiny" / "lock" / "lock.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    new = {"engine_env", "host", "packages", "debs_closure", "sources", "images", "other_wheels"}
    first = {key: value for key, value in data.items() if key not in new}
    file.write_text(json.dumps({**first, "schema_version": 1}), encoding="utf-8")
    with pytest.raises(StackError, match=r"schema_version: .*2"):
        load_stack("tiny", root)
    assert read_any_lock(file, "").dists == {"alpha": "1.0", "torch": "2.0+cpu"}


def test_requirements_have_one_hash_each(root: Path) -> None:
    lines = render_requirements(load_stack("tiny", root).lock).splitlines()
    assert lines[1:] == [
        f"alpha==1.0 --hash=sha256:{'a' * 64}",
        f"torch==2.0+cpu --hash=sha256:{'a' * 64}",
    ]


def drop_lock(root: Path) -> None:
    (root / "tiny" / "lock" / "lock.json").unlink()


def drop_requirements(root: Path) -> None:
    (root / "tiny" / "lock" / "python-3.11-x86_64.txt").unlink()


def change_pins(root: Path) -> None:
    (root / "tiny" / "pins.yaml").write_text(PINS.replace("2.0+cpu", "2.1+cpu"), encoding="utf-8")


def change_requirements(root: Path) -> None:
    file = root / "tiny" / "lock" / "python-3.11-x86_64.txt"
    file.write_text(file.read_text(encoding="utf-8").replace("==1.0", "==1.1"), encoding="utf-8")


def change_lock(root: Path) -> None:
    file = root / "tiny" / "lock" / "lock.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    data["wheels"][0]["sha256"] = "b" * 64
    file.write_text(json.dumps(data), encoding="utf-8")


def cut_lock(root: Path) -> None:
    file = root / "tiny" / "lock" / "lock.json"
    file.write_text(file.read_text(encoding="utf-8")[:-20], encoding="utf-8")


def add_key(root: Path) -> None:
    file = root / "tiny" / "lock" / "lock.json"
    file.write_text(file.read_text(encoding="utf-8").replace("{", '{"x": 1,', 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (drop_lock, "lock.json: missing"),
        (drop_requirements, "python-3.11-x86_64.txt: missing"),
        (change_pins, "pins_sha256: the lock was made from other pins"),
        (change_requirements, "differs from lock.json"),
        (change_lock, "differs from lock.json"),
        (cut_lock, "lock.json: 1 mistake"),
        (add_key, "x: unknown key"),
    ],
)
def test_what_does_not_fit_is_refused(root: Path, spoil: Callable[[Path], None], told: str) -> None:
    spoil(root)
    with pytest.raises(StackError) as caught:
        load_stack("tiny", root)
    assert told in str(caught.value)
    assert "rackpin lock tiny" in str(caught.value)


def test_os_and_names_are_looked_up_with_a_way_out(root: Path) -> None:
    lock = load_stack("tiny", root).lock
    assert lock.require_os("ubuntu", "24.04").key == "ubuntu-24.04"
    with pytest.raises(StackError, match=r"debian 12, ubuntu 24.04, not for ubuntu 22.04"):
        lock.require_os("ubuntu", "22.04")
    assert lock.version_of("Torch") == "2.0+cpu"
    with pytest.raises(StackError, match=r"lock has no ray"):
        lock.version_of("ray")


def package(*filenames: str) -> dict[str, object]:
    base = "https://files.pythonhosted.org/packages/"
    wheels = [{"url": base + name, "size": 5, "hashes": {"sha256": "c" * 64}} for name in filenames]
    return {"name": "Some_Name", "version": "1", "wheels": wheels}


def test_the_best_fitting_wheel_is_chosen(root: Path) -> None:
    pins = load_stack("tiny", root).pins
    plain = "some_name-1-py3-none-any.whl"
    fits = "some_name-1-cp311-cp311-manylinux_2_28_x86_64.whl"
    too_new = "some_name-1-cp311-cp311-manylinux_2_39_x86_64.whl"  # debian 12 has glibc 2.36
    other = "some_name-1-cp312-cp312-manylinux_2_28_x86_64.whl"
    found = choose_wheel(pins, package(plain, too_new, other, fits), {})
    assert (found.filename, found.name) == (fits, "some-name")
    assert choose_wheel(pins, package(plain, too_new), {}).filename == plain
    with pytest.raises(StackError, match=r"some-name 1 has no wheel for Python 3.11"):
        choose_wheel(pins, package(too_new, other), {})


def test_a_mirror_never_gets_into_the_lock(root: Path) -> None:
    pins = load_stack("tiny", root).pins
    entry = package("some_name-1-py3-none-any.whl")
    wheels = entry["wheels"]
    assert isinstance(wheels, list)
    wheels[0]["url"] = "https://mirror.example/some_name-1-py3-none-any.whl"
    assert choose_wheel(pins, entry, {}).url is None
    public = "https://files.pythonhosted.org/packages/some_name-1-py3-none-any.whl"
    before = wheel("some-name", "1", "c").model_copy(update={"url": public})
    assert choose_wheel(pins, entry, {"some-name": before}).url == public


def test_an_index_without_sizes_or_hashes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = load_stack("tiny", root).pins
    entry = package("some_name-1-py3-none-any.whl")
    wheels = entry["wheels"]
    assert isinstance(wheels, list)
    del wheels[0]["size"]
    answers = [httpx.Response(200, headers={"Content-Length": "77"}), httpx.Response(404)]
    request = httpx.Request("HEAD", "https://files.pythonhosted.org/")
    for answer in answers:
        answer.request = request
    monkeypatch.setattr(httpx, "head", lambda url, **_: answers.pop(0))
    assert choose_wheel(pins, entry, {}).size == 77
    with pytest.raises(StackError, match=r"its size can't be had"):
        choose_wheel(pins, entry, {})
    del wheels[0]["hashes"]
    with pytest.raises(StackError, match=r"gives no sha256"):
        choose_wheel(pins, entry, {})


def test_the_extra_index_is_asked_only_for_what_is_not_here(root: Path, tmp_path: Path) -> None:
    pins = load_stack("tiny", root).pins
    assert 'torch = { index = "extra-0" }' in project(pins, [])
    (tmp_path / "torch-2.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    assert "torch = {" not in project(pins, [str(tmp_path)])
    assert "beta ; python_version < '0'" in project(pins, [])


def test_every_committed_lock_fits_its_pins() -> None:
    for name in stack_names():
        lock = load_stack(name).lock
        names = [w.name for w in lock.wheels]
        assert names == sorted(set(names))
        assert not set(names) & {e.name for e in load_stack(name).pins.exclude}
        assert all(w.url or w.builder for w in lock.files), "somebody without a mirror needs it"
