"""What the audit of an environment proves, and where it says that it doesn't."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from rackpin.audit import records
from rackpin.audit.node import environment
from rackpin.audit.node.record import record_digest, record_rows, wheel_rows
from rackpin.desired import Target
from tests.unit.audit_samples import Machine, healthy, later, refresh_seal


@pytest.fixture
def machine(target: Target, tmp_path: Path) -> Machine:
    return healthy(target, tmp_path / "root")


def test_a_file_written_again_with_the_same_bytes_is_the_same(machine: Machine) -> None:
    later(machine.at(f"{machine.site}/alpha/__init__.py"))
    found = machine.audit()
    assert found["state"] == "same"
    assert "read and hashed (1)" in found["proves"][0]


def test_only_deep_sees_what_changed_before_the_seal(machine: Machine) -> None:
    """As decay of a disk does: the content is another, the file's times are not."""
    machine.at(f"{machine.site}/alpha/__init__.py").write_bytes(b"x = 2\n")
    refresh_seal(machine.at(machine.env))
    assert machine.audit()["state"] == "same"
    assert "--deep" in machine.audit()["proves"][0]
    assert machine.audit(deep=True)["counts"] == {"wheel.file": 1}


def test_touching_the_mark_hides_nothing(machine: Machine) -> None:
    machine.at(f"{machine.site}/alpha/__init__.py").write_bytes(b"x = 2\n")
    later(machine.at(f"{machine.env}/.complete"))
    assert machine.audit()["counts"] == {"wheel.file": 1}


def test_a_copied_environment_is_read_whole(machine: Machine) -> None:
    """After a restore every file is younger than the seal."""
    env = machine.at(machine.env)
    kept = env.with_name("kept")
    shutil.copytree(env, kept, symlinks=True)
    shutil.rmtree(env)
    shutil.copytree(kept, env, symlinks=True)
    (env / f"{machine.site.removeprefix(machine.env)[1:]}/alpha/__init__.py").write_bytes(b"y")
    shutil.rmtree(kept)
    found = machine.audit()
    assert found["counts"] == {"wheel.file": 1}, "not each file that is younger"
    assert "bytecode isn't proved" in found["proves"][0]


def test_no_time_to_read_is_no_pass(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    later(machine.at(f"{machine.site}/alpha/__init__.py"))
    monkeypatch.setattr(environment, "READ_S", -1.0)
    found = machine.audit()
    assert found["state"] == "could_not_look"
    assert "1 files changed" in found["unseen"][0]["why"]
    assert machine.audit(deep=True)["state"] == "same", "deep takes the time it needs"


def test_a_missing_environment_is_said_in_few_words(machine: Machine) -> None:
    shutil.rmtree(machine.at(machine.env))
    found = machine.audit()
    assert found["counts"]["env.complete"] == 1 and found["counts"]["wheel.missing"] == 1
    assert "nccl.mapped" in found["counts"], "the engine runs from files that are gone"


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("alpha-1.0.dist-info/RECORD", b"no, record\n", "wheel.record"),
        ("alpha-1.0.dist-info/RECORD", b"a.py,sha256=x,many\n", "wheel.record"),
        ("gamma.egg-info", b"Name: gamma\n", "wheel.extra"),
        ("__pycache__/lonely.cpython-311.pyc", b"", "wheel.stray"),
        ("../../../bin/pip", b"", "wheel.stray"),
    ],
)
def test_other_ways_to_install(machine: Machine, path: str, content: bytes, kind: str) -> None:
    machine.write(f"{machine.site}/{path}", content)
    assert kind in machine.audit()["counts"]


def test_an_executable_of_the_environment_itself_that_was_swapped(machine: Machine) -> None:
    machine.at(f"{machine.env}/bin/python3").unlink()
    machine.at(f"{machine.env}/bin/python3").symlink_to("/tmp/python")
    assert machine.audit()["counts"] == {"wheel.stray": 1}


def test_a_link_in_place_of_a_file(machine: Machine, tmp_path: Path) -> None:
    file = machine.at(f"{machine.site}/alpha/__init__.py")
    (tmp_path / "away.py").write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(tmp_path / "away.py")
    assert machine.audit()["counts"] == {"wheel.file": 1}


def test_many_differences_are_counted_and_some_listed(machine: Machine) -> None:
    for number in range(100):
        machine.write(f"{machine.site}/stray{number}.txt", "")
    found = machine.audit()
    assert found["counts"] == {"wheel.stray": 100}
    assert len(found["drift"]) == 40


RECORD = """pkg/__init__.py,sha256=aa,1
pkg/c.cpython-311.pyc,sha256=bb,1
pkg-1.data/purelib/pure.py,sha256=cc,1
pkg-1.data/scripts/tool,sha256=dd,1
pkg-1.dist-info/METADATA,sha256=ee,1
pkg-1.dist-info/RECORD,,
"""
INSTALLED = """../../../bin/tool,sha256=ff,2
pkg/__init__.py,sha256=aa,1
pure.py,sha256=cc,1
pkg-1.dist-info/INSTALLER,sha256=11,2
pkg-1.dist-info/METADATA,sha256=ee,1
pkg-1.dist-info/RECORD,,
pkg-1.dist-info/REQUESTED,sha256=22,0
"""


def test_an_installed_record_is_known_as_its_wheels(tmp_path: Path) -> None:
    wheel = record_digest(wheel_rows(record_rows(RECORD)))
    assert record_digest(record_rows(INSTALLED)) == wheel
    assert record_digest(record_rows(INSTALLED.replace("=aa", "=ab"))) != wheel
    with zipfile.ZipFile(tmp_path / "pkg-1-py3-none-any.whl", "w") as archive:
        archive.writestr("pkg-1.dist-info/RECORD", RECORD)
        archive.writestr("vendored/x-1.dist-info/RECORD", "not this one")
    assert records.digest_of(tmp_path / "pkg-1-py3-none-any.whl") == wheel


def test_a_record_that_isnt_the_locked_wheels(machine: Machine) -> None:
    """Even when it was there before the seal: file and RECORD forged together."""
    text = (machine.at(machine.site) / "alpha-1.0.dist-info/RECORD").read_text()
    right = record_digest(record_rows(text))
    env = machine.wish.environment
    for digest, counts in ((right, {}), ("0" * 64, {"wheel.record": 1})):
        changed = env.model_copy(update={"records": {"alpha": digest}})
        machine.wish = machine.wish.model_copy(update={"environment": changed})
        assert machine.audit()["counts"] == counts


def test_records_come_from_proved_wheels_only(lock: object, tmp_path: Path) -> None:
    from rackpin.stack.lock import load_stack

    found, missing = records.wheel_records(load_stack("cpu-lab").lock, tmp_path)
    assert not found and len(missing) == len(load_stack("cpu-lab").lock.wheels)
