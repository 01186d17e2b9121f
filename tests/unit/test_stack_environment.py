"""Building an environment for real, from small wheels, in a root of its own."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from uv import find_uv_bin

from rackpin.stack import environment as env
from rackpin.stack.lock import Lock, Wheel
from rackpin.stack.pins import EnginePin, OsPin
from rackpin.stack.serve import Server

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def pack(directory: Path, name: str, version: str, files: dict[str, str | Path]) -> Wheel:
    """Write a wheel of these files and say what a lock says of it."""
    info = f"{name}-{version}.dist-info"
    file = directory / f"{name}-{version}-py3-none-any.whl"
    texts = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*texts, f"{info}/RECORD"])
    with zipfile.ZipFile(file, "w") as archive:
        for path, content in {**texts, f"{info}/RECORD": record}.items():
            archive.writestr(path, content if isinstance(content, str) else content.read_bytes())
    data = file.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return Wheel(name=name, version=version, filename=file.name, sha256=digest, size=len(data))


@dataclass
class Site:
    """A served wheelhouse, a root to build in, and what runs the scripts."""

    house: Path
    root: Path
    url: str
    uv: Wheel
    requests: list[str] = field(default_factory=list)

    def lock(self, *wheels: Wheel) -> Lock:
        return Lock(
            stack="tiny",
            pins_sha256="0" * 64,
            os=[OsPin(id="debian", version="12")],
            arch="x86_64",
            python=PYTHON,
            engine=EnginePin(distribution="alpha", version="1.0", module="alpha"),
            debs={"debian-12": []},
            wheels=list(wheels),
            uv=self.uv,
        )

    def script(self, lock: Lock) -> str:
        return env.build_script(lock, self.url, str(self.root), python=sys.executable)

    def sh(self, script: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-s"], input=script, capture_output=True, text=True, timeout=timeout
        )

    def build(self, lock: Lock) -> subprocess.CompletedProcess[str]:
        return self.sh(self.script(lock))

    def path(self, lock: Lock) -> Path:
        return Path(env.env_path(lock, str(self.root)))


@pytest.fixture(scope="module")
def uv_wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Wheel]:
    directory = tmp_path_factory.mktemp("uv")
    found = pack(directory, "uv", "1.0", {"uv-1.0.data/scripts/uv": Path(find_uv_bin())})
    return directory / found.filename, found


@pytest.fixture
def site(
    tmp_path: Path, uv_wheel: tuple[Path, Wheel], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    house = tmp_path / "house"
    house.mkdir()
    os.link(uv_wheel[0], house / uv_wheel[0].name)
    requests: list[str] = []
    monkeypatch.setattr(
        "rackpin.stack.serve.Handler.log_message",
        lambda self, *args: requests.append(self.path),
    )
    server = Server(house, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    yield Site(house, tmp_path / "root", url, uv_wheel[1], requests)
    server.shutdown()
    server.server_close()


def alpha(site: Site, version: str = "1.0") -> Wheel:
    return pack(site.house, "alpha", version, {"alpha.py": f"VERSION = '{version}'\n"})


def test_build_activate_and_do_nothing_the_second_time(site: Site) -> None:
    lock = site.lock(alpha(site))
    done = site.build(lock)
    assert done.stdout == f"built: {site.path(lock)}\n", done.stderr
    assert (site.path(lock) / ".complete").read_text() == f"{lock.env_digest}\n"
    assert {p.name for p in (site.root / "env").iterdir()} == {lock.env_name, ".lock"}
    asked = len(site.requests)
    again = site.build(lock)
    assert again.stdout == f"complete: {site.path(lock)}\n"
    assert len(site.requests) == asked, "a complete environment asks nothing"

    activate = env.activate_script(lock, str(site.root))
    assert site.sh(activate).stdout == f"activated: {site.path(lock)}\n"
    assert site.sh(activate).stdout == f"unchanged: {site.path(lock)}\n"
    said = subprocess.check_output(
        [site.root / "current" / "bin" / "python", "-c", "import alpha; print(alpha.VERSION)"],
        text=True,
        timeout=30,
    )
    assert said == "1.0\n"


def test_the_environment_before_stays_and_the_third_can_be_pruned(site: Site) -> None:
    locks = [site.lock(alpha(site, version)) for version in ("1.0", "2.0", "3.0")]
    for lock in locks:
        assert site.build(lock).returncode == 0
        assert site.sh(env.activate_script(lock, str(site.root))).returncode == 0
    first, second, third = (str(site.path(lock)) for lock in locks)
    listing = site.sh(env.list_script(str(site.root))).stdout
    assert env.envs_to_keep(listing) == sorted([second, third])
    assert env.envs_to_prune(listing) == [first]
    assert env.envs_to_prune(listing, also_keep=[first]) == []


@pytest.mark.parametrize("victim", ["alpha", "uv"])
def test_a_changed_wheel_leaves_nothing_complete(site: Site, victim: str) -> None:
    old = site.lock(alpha(site))
    if victim == "alpha":
        assert site.build(old).returncode == 0
        assert site.sh(env.activate_script(old, str(site.root))).returncode == 0
    good = alpha(site, "2.0")
    lock = site.lock(good)
    if victim == "alpha":
        pack(site.house, "alpha", "2.0", {"alpha.py": "evil = True\n"})
    else:
        (site.house / site.uv.filename).unlink()
        (site.house / site.uv.filename).write_bytes(b"not uv")
    done = site.build(lock)
    assert done.returncode not in (0, 75)
    assert "sha256" in done.stderr
    assert not site.path(lock).exists()
    assert site.sh(env.activate_script(lock, str(site.root))).returncode == 1
    if victim == "alpha":
        assert (site.root / "current").resolve() == site.path(old)
    else:
        assert not (site.root / "tools" / "uv-1.0").exists()


def missing_wheel(site: Site, lock: Lock) -> Lock:
    (site.house / lock.wheels[0].filename).unlink()
    return lock


def wrong_version(site: Site, lock: Lock) -> Lock:
    # The name of the file lies about what is in it; the hash is right.
    good = lock.wheels[0]
    lie = good.filename.replace("1.0", "1.5")
    (site.house / good.filename).rename(site.house / lie)
    return site.lock(good.model_copy(update={"version": "1.5", "filename": lie}))


@pytest.mark.parametrize("spoil", [missing_wheel, wrong_version])
def test_what_is_not_as_locked_fails(site: Site, spoil: Callable[[Site, Lock], Lock]) -> None:
    lock = spoil(site, site.lock(alpha(site)))
    done = site.build(lock)
    assert done.returncode != 0
    assert "alpha" in done.stderr
    assert not site.path(lock).exists()


def test_no_wheelhouse_is_one_clear_line(site: Site) -> None:
    script = env.build_script(
        site.lock(alpha(site)), "http://127.0.0.1:9", str(site.root), python=sys.executable
    )
    done = site.sh(script)
    assert done.returncode == 1
    assert "is the wheelhouse served there?" in done.stderr


def test_no_interpreter_is_named(site: Site) -> None:
    script = env.build_script(
        site.lock(alpha(site)), site.url, str(site.root), python="/usr/bin/python9.9"
    )
    assert "/usr/bin/python9.9: missing" in site.sh(script).stderr


def test_a_killed_build_is_done_again(site: Site) -> None:
    lock = site.lock(alpha(site))
    assert site.build(lock).returncode == 0  # uv is there now, so the next ones are quick
    whole = site.path(lock)
    for delay in (0.02, 0.05, 0.1, 0.2):
        subprocess.run(["rm", "-rf", whole], check=True, timeout=30)
        with subprocess.Popen(
            ["sh", "-s"], stdin=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdin is not None
            process.stdin.write(site.script(lock))
            process.stdin.close()
            time.sleep(delay)
            os.killpg(process.pid, signal.SIGKILL)
        if (whole / ".complete").exists():
            assert (whole / ".complete").read_text() == f"{lock.env_digest}\n"
        assert site.build(lock).returncode == 0
        assert (whole / "bin" / "python").exists()


def test_two_builds_at_once_wait_for_each_other(site: Site) -> None:
    lock = site.lock(alpha(site))
    script = site.script(lock)
    processes = [
        subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) for _ in "abc"
    ]
    said = sorted(process.communicate(timeout=60)[0].split(":")[0] for process in processes)
    assert said == ["built", "complete", "complete"]


def test_the_script_is_pure_and_quotes_what_it_is_given(site: Site) -> None:
    lock = site.lock(alpha(site))
    assert site.script(lock) == site.script(lock)
    script = env.build_script(lock, "http://x/$(reboot)", "/opt/a b")
    assert "url='http://x/$(reboot)'" in script
    assert "root='/opt/a b'" in script
    assert len(script) < 100_000, "must fit one argument of a command"
