"""A model's files on a node: the real script, a real server, a directory as the node's disk."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rackpin.inventory_problems import Problem
from rackpin.preflight import model_problems
from rackpin.stack.items import ModelFile
from rackpin.stack.placed import (
    MARK,
    SLOWEST,
    WAS,
    ModelState,
    PlacedModel,
    parse_state,
    place_script,
    state_script,
)
from rackpin.stack.share import Transfers
from tests.unit.serving import serving

FILES = {"config.json": b"{}", "weights/a.safetensors": os.urandom(3_000_000), "empty": b""}


@pytest.fixture
def model(tmp_path: Path) -> PlacedModel:
    for name, data in FILES.items():
        path = tmp_path / "bundle/models/tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return made(tmp_path, FILES)


def made(tmp_path: Path, files: dict[str, bytes]) -> PlacedModel:
    listed = [
        ModelFile(path=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
        for name, data in sorted(files.items())
    ]
    return PlacedModel("tiny", str(tmp_path / "srv/tiny"), tuple(listed))


@contextmanager
def bundle(tmp_path: Path) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "bundle"))
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as port:
        yield f"http://127.0.0.1:{port}"


def place(tmp_path: Path, model: PlacedModel, url: str) -> subprocess.CompletedProcess[str]:
    script = place_script(model, url, str(tmp_path / "opt"), Transfers(), None, sys.executable)
    return subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, timeout=60)


def look(model: PlacedModel) -> ModelState:
    command = ["sh", "-c", state_script(model.path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return parse_state(said.stdout.splitlines())


def test_it_is_fetched_once_and_proved(tmp_path: Path, model: PlacedModel) -> None:
    before = look(model)
    assert not model.settled(before) and model.missing(before) == 3_000_002 and before.free > 0
    with bundle(tmp_path) as url:
        done = place(tmp_path, model, url)
        assert done.returncode == 0, done.stderr
        assert "3.0 MB from http://" in done.stdout
    there = Path(model.path)
    assert {name: (there / name).read_bytes() for name in FILES} == FILES
    assert {(there / name).stat().st_mode & 0o777 for name in FILES} == {0o644}
    assert model.settled(look(model)) and model.missing(look(model)) == 0
    left = sorted(path.name for path in there.iterdir())
    assert left == [MARK, "config.json", "empty", "weights"]
    # without any server: nothing is fetched again, everything is read again
    (there / MARK).unlink()
    done = place(tmp_path, model, "http://127.0.0.1:9")
    assert done.returncode == 0 and "3.0 MB were there" in done.stdout
    assert sorted(p.name for p in (tmp_path / "opt").iterdir()) == [".models.lock"]


@pytest.mark.parametrize("what", ["content", "gone", "mark cut", "mark of another"])
def test_a_change_is_seen_and_mended(tmp_path: Path, model: PlacedModel, what: str) -> None:
    there = Path(model.path)
    weights = there / "weights/a.safetensors"
    with bundle(tmp_path) as url:
        assert place(tmp_path, model, url).returncode == 0
        if what == "content":
            weights.write_bytes(b"x" * 3_000_000)
            os.utime(weights, (1, 1))
        elif what == "gone":
            weights.unlink()
        elif what == "mark cut":
            (there / MARK).write_text(f"{model.digest}\n")
        else:
            text = (there / MARK).read_text()
            (there / MARK).write_text(text.replace(model.digest, "0" * 64))
        assert not model.settled(look(model))
        assert place(tmp_path, model, url).returncode == 0
    assert model.settled(look(model)) and weights.read_bytes() == FILES["weights/a.safetensors"]
    assert not list(there.rglob("*.before-rackpin*")), "a file of ours is replaced, not kept"


def test_a_file_that_was_there_is_kept_and_told(tmp_path: Path, model: PlacedModel) -> None:
    there = Path(model.path)
    there.mkdir(parents=True)
    (there / "config.json").write_text("by hand")
    (there / "config.json.before-rackpin").write_text("kept before")
    (there / "README").write_text("mine")
    with bundle(tmp_path) as url:
        done = place(tmp_path, model, url)
    assert done.returncode == 0, done.stderr
    assert "note: " in done.stdout and "kept as config.json.before-rackpin.1" in done.stdout
    assert (there / "config.json.before-rackpin.1").read_text() == "by hand"
    assert (there / "config.json.before-rackpin").read_text() == "kept before"
    assert (there / "config.json").read_bytes() == b"{}" and (there / "README").exists()
    assert model.settled(look(model))


def test_a_wrong_file_never_gets_its_name_and_engines_wait(
    tmp_path: Path, model: PlacedModel
) -> None:
    there = Path(model.path)
    with bundle(tmp_path) as url:
        assert place(tmp_path, model, url).returncode == 0
        newer = made(tmp_path, {**FILES, "config.json": b"[]"})  # the bundle has the older one
        done = place(tmp_path, newer, url)
    assert done.returncode != 0
    assert "config.json" in done.stderr and "expected sha256" in done.stderr
    assert not (there / MARK).exists() and (there / WAS).exists()
    assert not newer.settled(look(newer)) and not model.settled(look(model))
    # what lay there was rackpin's: nothing of it is kept aside once the bundle is right
    (tmp_path / "bundle/models/tiny/config.json").write_bytes(b"[]")
    with bundle(tmp_path) as url:
        assert place(tmp_path, newer, url).returncode == 0
    assert newer.settled(look(newer)) and not (there / WAS).exists()
    assert not list(there.rglob("*.before-rackpin*"))


def test_parts_of_a_killed_fetch_are_removed(tmp_path: Path, model: PlacedModel) -> None:
    there = Path(model.path)
    there.mkdir(parents=True)
    (there / ".part3").write_bytes(b"gigabytes")
    with bundle(tmp_path) as url:
        assert place(tmp_path, model, url).returncode == 0
    assert not (there / ".part3").exists()


def test_room_is_looked_at_before_anything_is_fetched(model: PlacedModel) -> None:
    some = {"config.json": 2}
    (short,) = model_problems("n1", model, ModelState(free=1_003_000_000 - 1, sizes=some))
    assert short.key == "model tiny" and "0.0 GB are to be fetched" in short.message
    assert model_problems("n1", model, ModelState(free=1_003_000_000, sizes=some)) == []
    full = {file.path: file.size for file in model.files}
    assert model_problems("n1", model, ModelState(free=0, sizes=full)) == []
    assert model_problems("n1", model, ModelState(model.digest, same=True, free=0)) == []
    (blind,) = model_problems("n1", model, None)
    assert isinstance(blind, Problem) and "could not be looked at" in blind.message


@pytest.mark.parametrize(
    "lines", [[], ["free 1"], ["end"], ["free x", "end"], ["free 1", "odd", "end"]]
)
def test_a_cut_answer_is_no_answer(lines: list[str]) -> None:
    with pytest.raises(ValueError):
        parse_state(lines)


def test_the_deadline_grows_with_the_model(model: PlacedModel) -> None:
    large = PlacedModel("l", "/l", (model.files[0].model_copy(update={"size": int(SLOWEST)}),))
    assert large.deadline_s - PlacedModel("l", "/l", ()).deadline_s == 1
