"""The wheelhouse: proved files only, cheap to prove again, served without surprises."""

import hashlib
import http.client
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.stack import download, wheelhouse
from rackpin.stack.lock import Lock, Stack, Wheel, write_lock
from rackpin.stack.pins import LocalWheel, Pins, StackError, load_pins
from rackpin.stack.serve import Server, serve_background, stop_background

PINS = """\
name: NAME
summary: a stack for tests
os: [{id: debian, version: "12"}]
python: "3.11"
engine: {distribution: alpha, version: "1.0", module: alpha}
dists: {}
uv: "1.0"
debs: {debian-12: []}
"""


def locked(name: str, content: bytes, url: str | None) -> Wheel:
    return Wheel(
        name=name,
        version="1.0",
        filename=f"{name}-1.0-py3-none-any.whl",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        url=url,
    )


def make_stack(root: Path, name: str, *wheels: Wheel, local: tuple[LocalWheel, ...] = ()) -> Stack:
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "pins.yaml").write_text(PINS.replace("NAME", name), encoding="utf-8")
    pins: Pins = load_pins(root / name).model_copy(update={"local_wheels": list(local)})
    lock = Lock(
        stack=name,
        pins_sha256=pins.sha256,
        os=pins.os,
        arch=pins.arch,
        python=pins.python,
        engine=pins.engine,
        debs=pins.debs,
        wheels=[w for w in wheels if w.name != "uv"],
        uv=next(w for w in wheels if w.name == "uv"),
    )
    write_lock(lock, root)
    return Stack(pins, lock)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory and the URL it is served at, in place of a package index."""
    directory = tmp_path / "index"
    directory.mkdir()
    server = Server(directory, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield directory, f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def stack(tmp_path: Path, index: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Stack:
    monkeypatch.setattr(download, "pip_command", lambda: None)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    wheels = []
    for name in ("alpha", "beta", "uv"):
        wheels.append(locked(name, name.encode() * 1000, index[1] + f"{name}-1.0-py3-none-any.whl"))
        (index[0] / wheels[-1].filename).write_bytes(name.encode() * 1000)
    return make_stack(tmp_path / "stacks", "tiny", *wheels)


def build(stack: Stack, tmp_path: Path) -> list[str]:
    said: list[str] = []
    wheelhouse.build(stack, tmp_path / "house", tmp_path / "stacks", said.append)
    return said


def test_build_then_verify_reads_nothing_again(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = tmp_path / "house"
    assert [p.kind for p in wheelhouse.verify(stack.lock, house)] == ["missing"] * 3
    assert build(stack, tmp_path)[0].startswith("fetching 3 of 3")
    monkeypatch.setattr(wheelhouse, "sha256_of", lambda file: pytest.fail(f"read {file}"))
    assert wheelhouse.verify(stack.lock, house) == []
    assert "complete for" in build(stack, tmp_path)[0]
    assert not list(house.glob(".work-*"))


def test_a_changed_file_is_found_and_replaced(stack: Stack, tmp_path: Path) -> None:
    build(stack, tmp_path)
    file = tmp_path / "house" / "alpha-1.0-py3-none-any.whl"
    file.write_bytes(b"x" * file.stat().st_size)
    (problem,) = wheelhouse.verify(stack.lock, tmp_path / "house")
    assert problem.kind == "mismatch"
    assert problem.found in str(problem) and problem.expected in str(problem)
    assert build(stack, tmp_path)[0].startswith("replacing a damaged file: alpha-1.0")
    assert wheelhouse.verify(stack.lock, tmp_path / "house") == []


def test_damaged_stamps_cost_only_time(stack: Stack, tmp_path: Path) -> None:
    build(stack, tmp_path)
    (tmp_path / "house" / wheelhouse.STAMPS).write_text("{", encoding="utf-8")
    assert wheelhouse.verify(stack.lock, tmp_path / "house") == []


def test_wrong_and_absent_files_are_named_together(
    stack: Stack, index: tuple[Path, str], tmp_path: Path
) -> None:
    (index[0] / "alpha-1.0-py3-none-any.whl").write_bytes(b"y" * 5000)
    (index[0] / "beta-1.0-py3-none-any.whl").unlink()
    with pytest.raises(StackError) as caught:
        build(stack, tmp_path)
    told = str(caught.value)
    assert "2 file(s) could not be had" in told
    assert f"expected sha256 {stack.lock.wheels[0].sha256}, found " in told
    assert "beta-1.0-py3-none-any.whl" in told and "404" in told
    assert [f.name for f in (tmp_path / "house").glob("*.whl")] == ["uv-1.0-py3-none-any.whl"]


def test_a_source_that_sends_more_than_locked_is_cut_off(
    stack: Stack, index: tuple[Path, str], tmp_path: Path
) -> None:
    (index[0] / "beta-1.0-py3-none-any.whl").write_bytes(b"z" * 5_000_000)
    with pytest.raises(StackError, match="longer than the locked"):
        build(stack, tmp_path)


def test_no_url_says_so(tmp_path: Path, stack: Stack) -> None:
    lonely = [w.model_copy(update={"url": None}) for w in stack.lock.files]
    with pytest.raises(StackError, match=r"alpha.*no pip on this machine"):
        build(make_stack(tmp_path / "stacks", "tiny", *lonely), tmp_path)


def test_two_contents_under_one_name_are_refused(stack: Stack, tmp_path: Path) -> None:
    other = locked("alpha", b"another build", "https://files.pythonhosted.org/x")
    make_stack(tmp_path / "stacks", "other", other, stack.lock.uv)
    with pytest.raises(StackError, match=r"tiny locks sha256 .*, other locks"):
        build(stack, tmp_path)


def test_local_wheels_come_from_their_builder(stack: Stack, tmp_path: Path) -> None:
    builder = tmp_path / "make.py"
    builder.write_text(
        "import pathlib, sys\n"
        "pathlib.Path(sys.argv[1], 'mine-1.0-py3-none-any.whl').write_bytes(b'mine')\n",
        encoding="utf-8",
    )
    local = LocalWheel(name="mine", version="1.0", builder="make.py")
    mine = locked("mine", b"mine", None).model_copy(update={"builder": "make.py"})
    wheels = [*stack.lock.files, mine]
    build(make_stack(tmp_path / "stacks", "tiny", *wheels, local=(local,)), tmp_path)
    assert (tmp_path / "house" / mine.filename).read_bytes() == b"mine"

    changed = mine.model_copy(update={"sha256": "0" * 64})
    wheels = [*stack.lock.files, changed]
    with pytest.raises(StackError, match=r"has it changed\? rackpin lock tiny"):
        build(make_stack(tmp_path / "stacks", "tiny", *wheels, local=(local,)), tmp_path)


def ask(url: str, method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"), timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


def test_server_gives_files_and_index_only(index: tuple[Path, str], tmp_path: Path) -> None:
    directory, url = index
    (directory / "a+cpu.whl").write_bytes(b"12345")
    (directory / ".stamps.json").write_text("{}", encoding="utf-8")
    (directory / "sub").mkdir()
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    (directory / "link.whl").symlink_to(tmp_path / "secret")
    os.mkfifo(directory / "pipe.whl")  # opening it must not block the server

    assert ask(url, "GET", "/a%2Bcpu.whl")[:2] == (200, b"12345")
    status, body, headers = ask(url, "HEAD", "/a%2Bcpu.whl")
    assert (status, body, headers["Content-Length"]) == (200, b"", "5")
    status, body, _ = ask(url, "GET", "/")
    assert (status, body.count(b"<a "), b'href="a%2Bcpu.whl"' in body) == (200, 1, True)
    bad = [
        "/.stamps.json",
        "/sub",
        "/sub/",
        "/link.whl",
        "/pipe.whl",
        "/../secret",
        "/%2e%2e/secret",
    ]
    bad += ["/%2Fetc/passwd", "/none.whl", "/a%00"]
    assert {path: ask(url, "GET", path)[0] for path in bad} == dict.fromkeys(bad, 404)
    assert ask(url, "POST", "/a%2Bcpu.whl")[0] == 501
    assert ask(url, "DELETE", "/a%2Bcpu.whl")[0] == 501
    assert (directory / "a+cpu.whl").exists()


def test_background_server_is_idempotent_and_ends(tmp_path: Path) -> None:
    house, pidfile, log = tmp_path / "house", tmp_path / "run" / "pid", tmp_path / "run" / "log"
    house.mkdir()
    (house / "x.whl").write_bytes(b"x")
    with Server(house, "127.0.0.1", 0) as probe:
        port = int(probe.server_address[1])
    try:
        pid = serve_background(house, "127.0.0.1", port, pidfile, log)
        assert serve_background(house, "127.0.0.1", port, pidfile, log) == pid
        assert ask(f"http://127.0.0.1:{port}", "GET", "/x.whl")[1] == b"x"
        assert "GET /x.whl" in log.read_text(encoding="utf-8")
        other = tmp_path / "other"
        shutil.copytree(house, other)
        assert serve_background(other, "127.0.0.1", port, pidfile, log) != pid
        with pytest.raises(StackError, match="did not start"):
            serve_background(house, "127.0.0.1", port, tmp_path / "run" / "pid2", log)
    finally:
        assert stop_background(pidfile)
    assert not stop_background(pidfile)


def test_a_foreign_process_in_the_pidfile_is_not_ended(tmp_path: Path) -> None:
    pidfile = tmp_path / "pid"
    pidfile.write_text(f"{os.getpid()}\n", encoding="ascii")
    assert not stop_background(pidfile)


@pytest.mark.parametrize("bind", ["192.0.2.1", "not an address"])
def test_an_address_that_is_not_ours_is_named(tmp_path: Path, bind: str) -> None:
    with pytest.raises(StackError, match=f"--bind {bind}"):
        Server(tmp_path, bind, 0)
