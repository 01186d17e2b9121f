"""``rackpin audit`` as a person and a script see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rackpin.audit import cli, connect, records
from rackpin.audit.document import Document, Drift, Same, Target, unreachable
from rackpin.cli import main

INVENTORY = """
head = ["@fleet/head1"]
workers = ["@fleet/worker1"]
_key = {key!r}
all = (
    [("@fleet/head1", {{"address": "10.9.0.11"}}), ("@fleet/worker1", {{"address": "10.9.0.12"}})],
    {{
        "fleet": "test", "stack": "cpu-lab", "sku": "lab-cpu",
        "wheelhouse_url": "http://10.9.0.1:8900",
    }},
)
"""


@pytest.fixture
def inventory(tmp_path: Path, key_file: Path) -> str:
    file = tmp_path / "hosts.py"
    file.write_text(INVENTORY.format(key=str(key_file)))
    return str(file)


def run(*options: str) -> Result:
    return CliRunner().invoke(main, ["audit", *options], env={"COLUMNS": "200"})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "-i INVENTORY.py"),
        (["--nonsense"], "No such option"),
        (["-i", "/no/such/file.py"], "does not exist"),
        (["--local", "--image", "x"], "not two of them"),
        (["--image", "x"], "known: cpu-lab"),
        (["--image", "x", "--stack", "no-such"], "no stack 'no-such'"),
        (["--stack", "cpu-lab"], "--stack belongs to --image"),
    ],
)
def test_a_wrong_call_never_says_drift(options: list[str], says: str) -> None:
    done = run(*options)
    assert done.exit_code == 3 and says in done.output


def test_inventory_mistakes_and_unknown_hosts(inventory: str, tmp_path: Path) -> None:
    done = run("-i", inventory, "gpu9")
    assert done.exit_code == 3 and "no host or group gpu9; it has head1, worker1" in done.output
    broken = tmp_path / "broken.py"
    broken.write_text("all = [1/0]\n")
    done = run("-i", str(broken))
    assert done.exit_code == 3 and "broken.py:1" in done.output
    done = run("-i", inventory, "--data", "nonsense")
    assert done.exit_code == 3


def test_hosts_and_groups_are_chosen(inventory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def execute(name: str, text: str, limit_s: float) -> str:
        asked.append(name)
        raise OSError("No route to host")

    monkeypatch.setattr(connect, "execute_over", lambda _: execute)
    monkeypatch.setattr(records, "wheel_records", lambda _: ({}, []))
    for options, names in (
        ([], ["head1", "worker1"]), (["worker1"], ["worker1"]), (["workers"], ["worker1"])
    ):  # fmt: skip
        asked.clear()
        done = run("-i", inventory, *options)
        assert sorted(asked) == names
        assert done.exit_code == 3 and "No route to host" in done.output


def test_a_host_that_isnt_there(inventory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through pyinfra's own connector: nothing listens there."""
    monkeypatch.setattr(records, "wheel_records", lambda _: ({}, []))
    text = Path(inventory).read_text().replace('"sku"', '"ssh_port": 1, "sku"')
    for number in (11, 12):
        old = f'{{"address": "10.9.0.{number}"'
        text = text.replace(old, f'{old}, "ssh_hostname": "127.0.0.{number}"')
    Path(inventory).write_text(text)
    done = run("-i", inventory, "--json")
    document = Document.model_validate_json(done.stdout)
    assert document.exit_code == done.exit_code == 3
    assert {t.unseen[0].area for t in document.targets} == {"reach"}
    assert "Could not connect" in document.targets[0].unseen[0].why


DRIFT = Drift(kind="deb.version", subject="python3", expected="1", found="2\x1b[2J", remedy="do")
TARGET = Target(
    name="gpu1",
    state="drift",
    seconds=1.2,
    counts={"deb.version": 50},
    drift=[DRIFT],
    same=[Same(area="deb", subject="chrony", found="4.3")],
    proves=["wheels: all of it"],
)


def show(monkeypatch: pytest.MonkeyPatch, targets: list[Target], *options: str) -> Result:
    made = cli.document(targets, stack="cpu-lab", lock="0a51d55eb2a9" * 5, deep=False)
    monkeypatch.setattr(cli, "of_this_machine", lambda deep: made)
    return run("--local", *options)


def test_the_table_shows_differences_only(monkeypatch: pytest.MonkeyPatch) -> None:
    done = show(monkeypatch, [TARGET, unreachable("gpu2", "no route to host")])
    assert done.exit_code == 3
    for text in ("deb.version", "python3", "49 more", "no route to host", "deb.version -> do"):
        assert text in done.output
    assert "\x1b[2J" not in done.output, "a node's text can't act on the terminal"
    assert "chrony" not in done.output
    assert "2 looked at, 50 difference(s) from lock cpu-lab 0a51d55eb2a9" in done.output


def test_all_shows_what_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    done = show(monkeypatch, [TARGET], "--all")
    assert done.exit_code == 2 and "deb: chrony" in done.output
    assert "wheels: all of it" in done.output


def test_nothing_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    done = show(monkeypatch, [Target(name="gpu1", state="same", seconds=0.9)])
    assert done.exit_code == 0
    assert "gpu1: same in 0.9 s" in done.output and "expected" not in done.output


def test_json_is_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    done = show(monkeypatch, [TARGET], "--json")
    assert done.exit_code == 2
    data = json.loads(done.stdout)
    assert data["schema_version"] == 1 and data["targets"][0]["same"] == []
    assert json.loads(show(monkeypatch, [TARGET], "--json", "--all").stdout)["targets"][0]["same"]


def test_local_on_a_machine_that_is_no_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "EXPECTED", str(tmp_path / "audit.json"))
    done = run("--local")
    assert done.exit_code == 3 and "deploys/audit.py" in done.output
