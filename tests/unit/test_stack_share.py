"""Nodes that take wheels from each other: real servers and real fetches on addresses of 127/8."""

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackpin.inventory import Fleet
from rackpin.stack import node_share_serve, share
from rackpin.stack.node_share_fetch import Fetch
from rackpin.stack.serve import Server
from rackpin.stack.share import Share, Transfers
from tests.unit.serving import serving
from tests.unit.test_stack_environment import Site, pack, site, uv_wheel

__all__ = ["site", "uv_wheel"]  # fixtures
BIG = 2_000_000
Files = dict[str, bytes]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = {f"big{n}.whl": os.urandom(BIG) for n in range(4)}
    made |= {f"small{n}.whl": os.urandom(2000) for n in range(3)}
    (tmp_path / "house").mkdir()
    for name, data in made.items():
        (tmp_path / "house" / name).write_bytes(data)
    return made


def origin(directory: Path, **limits: int) -> Server:
    """The wheelhouse's own server."""
    return Server(directory, "127.0.0.1", 0, **limits)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(path, status) of each answer of the origin."""
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "rackpin.stack.serve.Handler.log_message",
        lambda self, form, *words: told.append((self.path, str(words[1]))),
    )
    return told


def plan(files: Files, origin: str, here: Path, neighbours: list[str], port: int) -> dict[str, Any]:
    listed = [[name, hashlib.sha256(data).hexdigest(), len(data)] for name, data in files.items()]
    (here / "share").mkdir(parents=True)
    return {
        "origin": origin,
        "files": listed,
        "neighbours": neighbours,
        "port": port,
        "at_once": 2,
        "into": str(here / "into"),
        "ours": "",
        "share": str(here / "share"),
        "shared_from": 10_000,
        "ask": share.ASK,
        "give_up": share.GIVE_UP,
        "tries": share.TRIES,
        "times": {**share.TIMES, "slowest": share.SLOWEST, "connect": 0.3, "all": 30},
    }


def whole(files: Files, here: Path) -> bool:
    return all((here / "into" / name).read_bytes() == data for name, data in files.items())


def stock(files: Files, here: Path) -> Path:
    """A neighbour's directory with everything."""
    here.mkdir()
    for data in files.values():
        (here / hashlib.sha256(data).hexdigest()).write_bytes(data)
    return here


def test_what_a_neighbour_has_does_not_come_from_the_origin(
    files: Files, tmp_path: Path, count: list[tuple[str, str]]
) -> None:
    port = free_port()
    near = node_share_serve.Server(str(stock(files, tmp_path / "n")), "127.0.0.2", port, 4, 0)
    with serving(origin(tmp_path / "house")) as at, serving(near):
        fetch = Fetch(plan(files, f"http://127.0.0.1:{at}", tmp_path / "a", ["127.0.0.2"], port))
        assert fetch.run() == ""
    assert whole(files, tmp_path / "a")
    assert fetch.from_neighbours == 4 * BIG
    assert {path for path, _ in count} == {f"/small{n}.whl" for n in range(3)}
    shared = {path.name for path in (tmp_path / "a" / "share").iterdir()}
    assert shared == {hashlib.sha256(data).hexdigest() for data in files.values()}


def test_files_that_stay_are_given_from_where_they_lie(files: Files, tmp_path: Path) -> None:
    """A model's: its files keep their ctime, and one that is gone is simply not there."""
    port, here = free_port(), tmp_path / "a"
    with serving(origin(tmp_path / "house")) as at:
        wanted = plan(files, f"http://127.0.0.1:{at}", here, [], port) | {"ours": str(tmp_path)}
        assert Fetch(wanted).run() == ""
    assert all(path.is_symlink() for path in (here / "share").iterdir())
    gone = hashlib.sha256(files["big0.whl"]).hexdigest()
    (here / "into/big0.whl").unlink()
    near = node_share_serve.Server(str(here / "share"), "127.0.0.2", port, 4, 0)
    with serving(origin(tmp_path / "house")) as at, serving(near):
        fetch = Fetch(plan(files, f"http://127.0.0.1:{at}", tmp_path / "b", ["127.0.0.2"], port))
        assert fetch.run() == "" and fetch.notes == []
    assert whole(files, tmp_path / "b") and fetch.from_neighbours == 3 * BIG
    assert gone in {path.name for path in (here / "share").iterdir()}


def test_eight_nodes_take_less_than_eight_times_from_the_origin(
    files: Files, tmp_path: Path, count: list[tuple[str, str]]
) -> None:
    """At one transfer at a time the origin can't give all of them all."""
    port, addresses = free_port(), [f"127.0.0.{n}" for n in range(2, 10)]
    with serving(origin(tmp_path / "house", at_once=1)) as at:
        fetches = [
            Fetch(
                plan(files, f"http://127.0.0.1:{at}", tmp_path / own, others(own, addresses), port)
            )
            for own in addresses
        ]
        servers = [
            node_share_serve.Server(str(tmp_path / own / "share"), own, port, 2, 0)
            for own in addresses
        ]
        for server in servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        threads = [threading.Thread(target=fetch.run) for fetch in fetches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for server in servers:
            server.shutdown()
            server.server_close()
    assert [fetch.failed for fetch in fetches] == [""] * 8
    assert all(whole(files, tmp_path / own) for own in addresses)
    given = sum(1 for path, status in count if path.startswith("/big") and status == "200")
    taken = sum(fetch.from_neighbours for fetch in fetches) // BIG
    assert given + taken == 8 * 4
    assert taken >= 8, f"the origin gave {given} of 32 big files, neighbours {taken}"


def others(own: str, addresses: list[str]) -> list[str]:
    return [one for one in addresses if one != own]


def test_a_neighbour_with_wrong_bytes_is_told_and_left(files: Files, tmp_path: Path) -> None:
    port, bad = free_port(), stock(files, tmp_path / "n")
    for path in bad.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    near = node_share_serve.Server(str(bad), "127.0.0.2", port, 4, 0)
    with serving(origin(tmp_path / "house")) as at, serving(near):
        fetch = Fetch(plan(files, f"http://127.0.0.1:{at}", tmp_path / "a", ["127.0.0.2"], port))
        assert fetch.run() == ""
    assert whole(files, tmp_path / "a")
    assert fetch.from_neighbours == 0
    assert any("127.0.0.2 gave a wrong big" in note and "memory" in note for note in fetch.notes)


@pytest.mark.parametrize("change", [lambda data: data + b"more", lambda data: data[:1000]])
def test_a_neighbour_with_another_length(
    files: Files, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    port, bad = free_port(), stock(files, tmp_path / "n")
    for path in bad.iterdir():
        path.write_bytes(change(path.read_bytes()))
    near = node_share_serve.Server(str(bad), "127.0.0.2", port, 4, 0)
    with serving(origin(tmp_path / "house")) as at, serving(near):
        fetch = Fetch(plan(files, f"http://127.0.0.1:{at}", tmp_path / "a", ["127.0.0.2"], port))
        assert fetch.run() == ""
    assert whole(files, tmp_path / "a") and fetch.from_neighbours == 0 and fetch.notes


def test_neighbours_behind_a_firewall_are_given_up(files: Files, tmp_path: Path) -> None:
    """192.0.2.0/24 answers nobody; listed are more than are ever asked."""
    lost = [f"192.0.2.{n}" for n in range(1, 40)]
    with serving(origin(tmp_path / "house")) as at:
        given = plan(files, f"http://127.0.0.1:{at}", tmp_path / "a", lost, 8902)
        fetch = Fetch(given)
        begun = time.monotonic()
        assert fetch.run() == ""
    assert time.monotonic() - begun < 10
    assert fetch.neighbours == []
    assert any("no neighbour answered at port 8902" in note for note in fetch.notes)


def test_a_wrong_or_missing_file_of_the_origin_ends_it(files: Files, tmp_path: Path) -> None:
    (tmp_path / "house" / "big0.whl").write_bytes(b"other")
    with serving(origin(tmp_path / "house")) as at:
        fetch = Fetch(plan(files, f"http://127.0.0.1:{at}", tmp_path / "a", [], 8902))
        said = fetch.run()
    assert "big0.whl" in said and "is it served there?" in said
    assert not (tmp_path / "a" / "into" / "big0.whl").exists()


def test_no_origin_is_told(files: Files, tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    said = Fetch(plan(files, nobody, tmp_path / "a", [], 8902)).run()
    assert nobody in said and "refused" in said


def test_a_server_gives_only_files_by_their_hash(files: Files, tmp_path: Path) -> None:
    here = stock(files, tmp_path / "n")
    (here / "serve.py").write_text("secret")
    port = free_port()
    near = node_share_serve.Server(str(here), "127.0.0.2", port, 1, 0)
    name = next(path.name for path in here.iterdir() if len(path.name) == 64)
    with serving(near):
        for path, wanted in (
            (f"/{name}", 200),
            ("/serve.py", 404),
            (f"/../n/{name}", 404),
            ("/", 404),
            ("/" + "0" * 64, 404),
        ):
            assert status(port, path) == wanted, path
        assert near.slots.acquire(blocking=False)
        assert status(port, f"/{name}") == 503
        near.slots.release()


def status(port: int, path: str) -> int:
    with socket.create_connection(("127.0.0.2", port), timeout=5) as link:
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return int(link.recv(64).split()[1])


def test_a_limit_is_kept(files: Files, tmp_path: Path) -> None:
    port = free_port()
    one = {"big0.whl": files["big0.whl"]}
    near = node_share_serve.Server(str(stock(one, tmp_path / "n")), "127.0.0.2", port, 4, 16)
    with serving(origin(tmp_path / "house")) as at, serving(near):
        fetch = Fetch(plan(one, f"http://127.0.0.1:{at}", tmp_path / "a", ["127.0.0.2"], port))
        begun = time.monotonic()
        assert fetch.run() == ""
        took = time.monotonic() - begun
    assert fetch.from_neighbours == BIG
    assert took > 0.6, "2 MB at 16 Mbit/s take 1 s, less what goes at once"


def test_the_origins_limits(files: Files, tmp_path: Path) -> None:
    with serving(server := origin(tmp_path / "house", at_once=1, limit_mbit=16)) as at:
        begun = time.monotonic()
        one = {"big0.whl": files["big0.whl"]}
        assert Fetch(plan(one, f"http://127.0.0.1:{at}", tmp_path / "a", [], 1)).run() == ""
        assert time.monotonic() - begun > 0.6
        assert server.slots.acquire(blocking=False)  # somebody takes its only slot
        given = plan(one, f"http://127.0.0.1:{at}", tmp_path / "b", [], 1)
        given["times"] = {**share.TIMES, "all": 1, "slowest": 1}
        said = Fetch(given).run()
        assert "not there after 1 s" in said and "503" in said
        # who can't wait (apt, uv) isn't sent away
        with socket.create_connection(("127.0.0.1", at), timeout=5) as link:
            link.sendall(b"GET /small0.whl HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert link.recv(64).split()[1] == b"200"


def test_it_ends_when_nobody_asks(tmp_path: Path) -> None:
    program = Path(node_share_serve.__file__)
    words = [str(tmp_path), "127.0.0.2", str(free_port()), "2", "0", "0.2"]
    done = subprocess.run([sys.executable, "-I", program, *words], timeout=20, check=False)
    assert done.returncode == 0


def test_only_nodes_of_this_run_are_neighbours(fleet: Fleet) -> None:
    node, other = (fleet.nodes[name] for name in ("head1", "worker1"))
    assert fleet.share(node, fleet.nodes) is None, "nobody asked for it"
    config = fleet.config.model_copy(update={"transfers": Transfers(neighbours=True)})
    handing = fleet.model_copy(update={"config": config})
    assert handing.share(node, ["head1"]) is None, "alone: uv takes all from the server"
    found = handing.share(node, ["head1", "worker1"])
    assert found is not None and found.neighbours == [other.address]


def test_a_built_environment_from_a_neighbour(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole script; without systemd for the test, which is told and does no harm."""
    from rackpin.stack import environment as env

    lock = site.lock(pack(site.house, "alpha", "1.0", {"alpha.py": "VERSION = '1.0'\n"}))
    monkeypatch.setattr(share, "SHARED_FROM", 1)
    held = tmp_path / "near"
    held.mkdir()
    for wheel in (lock.uv, *lock.wheels):
        (held / wheel.sha256).write_bytes((site.house / wheel.filename).read_bytes())
    (site.house / lock.wheels[0].filename).unlink()  # nobody else has it
    port = free_port()
    transfers = Transfers(neighbours=True, port=port)
    given = Share(transfers, "127.0.0.3", ["127.0.0.2"])
    monkeypatch.setattr(share, "UNITS", str(tmp_path / "units"))
    script = env.build_script(lock, site.url, str(site.root), sys.executable, share=given)
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "systemctl").write_text("#!/bin/sh\nexit 1\n")
    (fake / "systemctl").chmod(0o755)
    units = tmp_path / "units"
    units.mkdir()
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    with serving(node_share_serve.Server(str(held), "127.0.0.2", port, 4, 0)):
        done = site.sh(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"built: {site.path(lock)}"
    assert "note: it gives its neighbours nothing" in done.stdout
    assert "0.0 MB from http" in done.stdout
    assert list(units.iterdir()) == []
    assert not (site.root / "share").exists() and not (site.root / "env" / ".work").exists()
    assert (site.path(lock) / ".complete").exists()


def test_systemd_is_told_that_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(5)
        node_share_serve.tell_systemd()  # started by hand: nobody to tell
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        node_share_serve.tell_systemd()
        assert sock.recv(100) == b"READY=1"
