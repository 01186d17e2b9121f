"""An image against the lock, with an engine of a few lines in place of Docker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackpin.audit import expect, image
from rackpin.stack.lock import Lock

# Runs the program on this machine, as if it were inside the image.
ENGINE = """#!/bin/sh
echo "$@" >>"$LOG"
case "$1" in
image) [ "$LABELS" = none ] && {{ echo "Error: No such image: x" >&2; exit 1; }}
  [ "$LABELS" = down ] && {{ echo "Cannot connect to the Docker daemon" >&2; exit 1; }}
  echo "$LABELS" ;;
run) {run} ;;
esac
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setenv("LABELS", "null")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    write(tmp_path, "exec python3 -I -")
    return log


def write(folder: Path, run: str) -> None:
    file = folder / "docker"
    file.write_text(ENGINE.format(run=run))
    file.chmod(0o755)


def test_the_program_runs_in_a_container_that_changes_nothing(engine: Path, lock: Lock) -> None:
    found = image.audit_image("serving:1", expect.for_image(lock, "serving:1"))
    assert found.name == "serving:1"
    assert found.counts["env.complete"] == 1, "this machine has no environment"
    assert "unit.dropin" not in found.counts and "kernel" not in {u.area for u in found.unseen}
    ran = engine.read_text().splitlines()[-1]
    for option in ("--rm", "--network none", "--pull never", "--read-only", "--cap-drop ALL"):
        assert option in ran
    assert ran.endswith("--entrypoint /usr/bin/python3 serving:1 -I -")


def test_the_label_must_be_this_locks(
    engine: Path, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = expect.for_image(lock, "x")
    for labels, drift in (
        ("null", "no such label"),
        ('{"rackpin.lock": "0123"}', "0123"),
        (f'{{"rackpin.lock": "{lock.digest}"}}', None),
    ):
        monkeypatch.setenv("LABELS", labels)
        found = [d.found for d in image.audit_image("x", wish).drift if d.kind == "image.label"]
        assert found == ([drift] if drift else [])


@pytest.mark.parametrize(
    ("labels", "why"), [("none", "no image x here"), ("down", "start it, or audit elsewhere")]
)
def test_an_image_that_cant_be_asked(
    engine: Path, lock: Lock, labels: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABELS", labels)
    found = image.audit_image("x", expect.for_image(lock, "x"))
    assert found.state == "could_not_look" and why in found.unseen[0].why


def test_an_image_without_python(engine: Path, lock: Lock) -> None:
    write(engine.parent, "echo 'exec: /usr/bin/python3: no such file' >&2; exit 127")
    found = image.audit_image("x", expect.for_image(lock, "x"))
    assert found.state == "could_not_look" and "/usr/bin/python3" in found.unseen[0].why


def test_a_container_that_hangs_is_removed(
    engine: Path, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(engine.parent, "exec sleep 30")
    monkeypatch.setattr(image, "RUN_S", 0.3)
    found = image.audit_image("x", expect.for_image(lock, "x"))
    assert found.state == "could_not_look"
    assert engine.read_text().splitlines()[-1].startswith("rm --force rackpin-audit-")


def test_no_engine_at_all(lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = image.audit_image("x", expect.for_image(lock, "x"))
    assert found.state == "could_not_look" and "isn't installed" in found.unseen[0].why
