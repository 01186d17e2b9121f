"""Operation bodies against a stub host: what they would send; a second run sends nothing."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import FactBase
from pyinfra.context import ctx_host

from rackpin import facts, layout, operations
from rackpin.desired import Desired, OwnedDir, OwnedFile, pending_mark
from rackpin.facts import PathState
from rackpin.stack.environment import env_path
from rackpin.stack.lock import Lock
from rackpin.stages.python import complete_mark


@dataclass
class StubHost:
    """As much of a pyinfra host as an operation body asks for."""

    answers: dict[type[FactBase[Any]], Any]
    noops: list[str] = field(default_factory=list)
    is_executing = False

    @property
    def state(self) -> StubHost:
        return self

    def get_fact(self, fact: type[FactBase[Any]], **kwargs: Any) -> Any:
        return self.answers[fact]

    def noop(self, text: str) -> None:
        self.noops.append(text)


def commands(operation: Any, answers: dict[Any, Any], **kwargs: Any) -> list[Any]:
    with ctx_host.use(StubHost(answers)):
        return list(operation._inner(**kwargs))


FILE = OwnedFile("/etc/x.conf", "# Owned by rackpin\nsecret-text\n", triggers=("sysctl",))
STAGE = Desired(files=(FILE,))
AS_WISHED = PathState("file", "644", "root", "root", FILE.sha256, first_lines=FILE.content)


def put(now: dict[str, PathState]) -> list[Any]:
    return commands(operations.owned_file, {facts.Paths: now}, file=FILE, stage=STAGE)


def test_a_file_as_wished_needs_nothing() -> None:
    assert put({FILE.path: AS_WISHED}) == []


@pytest.mark.parametrize("field_, value", [("mode", "600"), ("owner", "x"), ("sha256", "0")])
def test_any_difference_writes_it(field_: str, value: str) -> None:
    now = PathState(**{**AS_WISHED.__dict__, field_: value})
    assert len(put({FILE.path: now})) == 1


def test_content_goes_through_stdin_not_through_the_command() -> None:
    (command,) = put({})
    assert "secret-text" not in str(command)
    assert command.connector_arguments["_stdin"] == FILE.content


def test_a_foreign_file_is_kept() -> None:
    (command,) = put({FILE.path: PathState("file", "644", "root", "root", "1", first_lines="mine")})
    assert f"cp -a --backup=numbered /etc/x.conf {layout.BACKUPS}/etc/x.conf" in str(command)
    (command,) = put({FILE.path: PathState("file", sha256="1", first_lines=FILE.content)})
    assert "cp -a" not in str(command)


def test_a_directory_in_the_way_is_refused() -> None:
    first = put({FILE.path: PathState("directory", "755")})[0]
    assert "is a directory, not a file" in str(first) and "exit 1" in str(first)


def test_put_really_writes_and_marks_first(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(layout, "PENDING", str(tmp_path / "pending"))
    monkeypatch.setattr(layout, "BACKUPS", str(tmp_path / "backup"))
    target = tmp_path / "deep" / "it's.conf"
    target.parent.mkdir()
    target.write_text("the operator's own\n")
    file = OwnedFile(str(target), "# Owned by rackpin\n", mode="640", triggers=("sysctl",))
    command = operations.put(file, keep_old=True)
    done = subprocess.run(["sh", "-c", str(command)], input=file.content, text=True, timeout=20)
    assert done.returncode == 0
    assert target.read_text() == file.content and target.stat().st_mode & 0o777 == 0o640
    assert Path(pending_mark("sysctl")).exists()
    assert Path(f"{layout.BACKUPS}{target}").read_text() == "the operator's own\n"
    assert [p.name for p in target.parent.iterdir()] == ["it's.conf"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(layout, "PENDING", str(tmp_path / "pending"))
    target = tmp_path / "x.conf"
    target.write_text("old\n")
    file = OwnedFile(str(target), "new\n", owner="no-such-user")
    done = subprocess.run(
        ["sh", "-c", str(operations.put(file, keep_old=False))],
        input=file.content,
        text=True,
        capture_output=True,
        timeout=20,
    )
    assert done.returncode != 0
    assert target.read_text() == "old\n"


def test_after_change_only_while_its_mark_is_there() -> None:
    ask = {"trigger": "sysctl", "command": "sysctl -p", "stage": STAGE}
    mark = pending_mark("sysctl")
    assert commands(operations.after_change, {facts.Paths: {}}, **ask) == []
    (command,) = commands(operations.after_change, {facts.Paths: {mark: PathState("file")}}, **ask)
    assert str(command) == f"sysctl -p && rm -f {mark}"
    assert mark in STAGE.paths


def test_directories() -> None:
    wish = OwnedDir("/var/lib/x", "750", "rackpin", "rackpin")
    state = {wish.path: PathState("directory", "750", "rackpin", "rackpin")}
    ask = {"directory": wish, "stage": Desired(directories=(wish,))}
    assert commands(operations.owned_directory, {facts.Paths: state}, **ask) == []
    assert len(commands(operations.owned_directory, {facts.Paths: {}}, **ask)) == 1


def test_packages_in_one_transaction_without_questions() -> None:
    found = {facts.Packages: {"a": "1"}}
    assert commands(operations.packages, found, names=("a",), versions={}, broken=False) == []
    update, install = commands(
        operations.packages, found, names=("a", "b", "c"), versions={}, broken=False
    )
    assert "Error-Mode=any" in update.connector_arguments["_stdin"]
    assert str(install).endswith("install b c")
    for word in ("DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l", "Lock::Timeout=600"):
        assert word in str(install)


def test_a_package_at_another_version_is_moved_and_new_ones_are_held() -> None:
    found = {facts.Packages: {"a": "2", "b": "1"}}
    ask = {"names": ("a", "b", "c", "d"), "versions": {"a": "1", "b": "1", "c": "3"}}
    _, install, hold = commands(operations.packages, found, broken=False, hold=True, **ask)
    assert str(install).endswith("--allow-change-held-packages install a=1 c=3 d")
    script = hold.connector_arguments["_stdin"]
    assert "apt-mark hold a c ||" in script, "d has no pin, b was held before"
    _, install = commands(operations.packages, {facts.Packages: {}}, broken=False, **ask)
    assert "--allow" not in str(install), "what is not there needs no leave to move"


def test_a_failing_installation_may_say_more(tmp_path: Path) -> None:
    ask = {"names": ("a",), "versions": {}, "broken": False, "on_failure": "echo why >&2"}
    _, install = commands(operations.packages, {facts.Packages: {}}, **ask)
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexit 100\n")
    (tmp_path / "apt-get").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", str(install)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 100 and done.stderr == "why\n"


def test_an_interrupted_dpkg_is_finished_first() -> None:
    found = {facts.Packages: {"a": "1"}}
    (repair,) = commands(operations.packages, found, names=("a",), versions={}, broken=True)
    assert "--configure -a" in repair.connector_arguments["_stdin"]


def test_environment_is_built_once(lock: Lock) -> None:
    stage = Desired(foreign=(complete_mark(lock), layout.CURRENT))
    there = {complete_mark(lock): PathState("file"), layout.CURRENT: PathState("link")}
    build = {"lock": lock, "url": "http://x", "stage": stage}
    assert commands(operations.environment, {facts.Paths: there}, **build) == []
    assert len(commands(operations.environment, {facts.Paths: {}}, **build)) == 1
    link = {"lock": lock, "stage": stage}
    assert len(commands(operations.activate, {facts.Paths: there}, **link)) == 1
    there[layout.CURRENT] = PathState("link", target=env_path(lock))
    assert commands(operations.activate, {facts.Paths: there}, **link) == []


def unit(**values: str) -> dict[str, str]:
    return {"UnitFileState": "enabled", "ActiveState": "active", "NeedDaemonReload": "no"} | values


def test_a_running_unit_is_left_alone() -> None:
    found = {facts.Units: {"a.service": unit()}}
    assert commands(operations.units, found, names=("a.service",), settle_s=5) == []


def test_a_changed_unit_is_loaded_but_not_restarted() -> None:
    found = {facts.Units: {"a.service": unit(NeedDaemonReload="yes")}}
    sent = commands(operations.units, found, names=("a.service",), settle_s=5)
    assert [str(c) for c in sent] == ["systemctl daemon-reload"]


def test_stopped_units_are_enabled_and_started() -> None:
    found = {facts.Units: {"a.service": unit(UnitFileState="disabled", ActiveState="failed")}}
    enable, start = commands(operations.units, found, names=("a.service",), settle_s=5)
    assert "enable" in str(enable) and "start --no-block" in str(start)
    assert "restart" not in str(start)
