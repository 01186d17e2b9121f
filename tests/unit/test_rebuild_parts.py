"""Host keys, the journal of a rebuild, and who can be its partner."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paramiko import ECDSAKey, HostKeys, ServerInterface, Transport

from rackpin.checks.base import Output
from rackpin.fleet.state import FleetStateError
from rackpin.inventory import ROOT, Fleet
from rackpin.rebuild import hostkey
from rackpin.rebuild.hostkey import HostKey, HostKeyError, Key, known_keys, replaced
from rackpin.rebuild.journal import BEGUN, DONE, END, FAILED, START, UNDONE, Journal
from rackpin.rebuild.look import partner, serials
from rackpin.stack.lock import Lock
from tests.unit.rebuild_samples import NAME, NEW_KEY, OLD_KEY, World, eight

HASHED = HostKeys.hash_host("10.0.0.1")
KNOWN = f"""# ours
10.0.0.1,gpu1 {OLD_KEY.kind} {OLD_KEY.blob}
{HASHED} ssh-rsa {OLD_KEY.blob}
[10.0.0.1]:2222 {OLD_KEY.kind} {OLD_KEY.blob}
@revoked 10.0.0.1 {OLD_KEY.kind} {OLD_KEY.blob}
10.0.0.10 {OLD_KEY.kind} {OLD_KEY.blob}
"""


def test_known_hosts_keeps_every_other_line() -> None:
    made, old = replaced(KNOWN, "10.0.0.1", NEW_KEY)
    assert known_keys(made, "10.0.0.1") == [NEW_KEY]
    assert old == KNOWN.splitlines()[1:3], "both, the hashed one too"
    assert made.splitlines() == [
        "# ours",
        f"gpu1 {OLD_KEY.kind} {OLD_KEY.blob}",
        *KNOWN.splitlines()[3:],
        f"10.0.0.1 {NEW_KEY.kind} {NEW_KEY.blob}",
    ]
    assert replaced(made, "10.0.0.1", NEW_KEY)[0] == made


def test_names_of_the_same_host_get_its_new_key_with_it() -> None:
    line = f"gpu1,10.0.0.1,shared {OLD_KEY.kind} {OLD_KEY.blob}\n"
    other = f"gpu2 {OLD_KEY.kind} {OLD_KEY.blob}\ngpu1 ssh-rsa {NEW_KEY.blob}\n"
    made, old = replaced(line + other, "10.0.0.1", NEW_KEY, ("gpu1", "10.0.0.1"))
    assert old == [line.strip()]
    assert made.splitlines() == [
        f"shared {OLD_KEY.kind} {OLD_KEY.blob}",
        *other.splitlines(),
        f"10.0.0.1,gpu1 {NEW_KEY.kind} {NEW_KEY.blob}",
    ]


def test_a_file_that_cannot_be_changed_stays_whole(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(HostKeyError, match="known_hosts"):
        hostkey.accept(HostKey("h", file, NEW_KEY))
    assert file.read_bytes() == b"\xff\xfe"


def test_a_first_known_hosts_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    assert hostkey.accept(HostKey("h", file, NEW_KEY)) is None
    assert known_keys(file.read_text(), "h") == [NEW_KEY]
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def server() -> Iterator[tuple[int, ECDSAKey]]:
    """A real ssh server that nobody may log in to."""
    key = ECDSAKey.generate()
    listener = socket.create_server(("127.0.0.1", 0))
    transports: list[Transport] = []

    def serve() -> None:
        peer, _ = listener.accept()
        transports.append(Transport(peer))
        transports[0].add_server_key(key)
        transports[0].start_server(event=threading.Event(), server=ServerInterface())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], key
    thread.join(5)
    for one in transports:
        one.close()
    listener.close()


def connector(port: int, known_hosts: Path) -> Any:
    kwargs = {
        "hostname": "127.0.0.1", "port": port, "timeout": 5, "username": "nobody",
        "_pyinfra_ssh_config_file": "/dev/null", "_pyinfra_ssh_strict_host_key_checking": "yes",
        "_pyinfra_ssh_known_hosts_file": str(known_hosts),
        "_pyinfra_ssh_paramiko_connect_kwargs": None, "_pyinfra_ssh_forward_agent": None,
    }  # fmt: skip
    return SimpleNamespace(
        make_paramiko_kwargs=lambda: dict(kwargs), host=SimpleNamespace(name="gpu1")
    )


@pytest.mark.parametrize("known, state", [("mine", "known"), ("old", "changed"), ("", "unknown")])
def test_a_real_server_is_asked_for_its_key(
    server: tuple[int, ECDSAKey], tmp_path: Path, known: str, state: str
) -> None:
    port, key = server
    mine = Key(key.get_name(), base64.b64encode(key.asbytes()).decode())
    keys = {"mine": mine, "old": OLD_KEY}
    file = tmp_path / "known_hosts"
    one = keys.get(known)
    file.write_text(f"[127.0.0.1]:{port} {one.kind} {one.blob}\n" if one else "")
    before = file.read_text()
    found = hostkey.probe(connector(port, file))
    assert (found.state, found.offered, found.name) == (state, mine, f"[127.0.0.1]:{port}")
    assert file.read_text() == before, "asking accepts nothing"


def test_a_host_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(HostKeyError, match="gpu1: its host key"):
        hostkey.probe(connector(port, tmp_path / "known_hosts"))


def test_the_journal_says_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "nodes" / "n.rebuild.jsonl"
    journal = Journal(path)
    assert journal.stopped() == "" and not path.exists()
    journal.write(START, DONE)
    journal.write("site", DONE)
    journal.write("verify", BEGUN)
    assert Journal(path).has("site") and not Journal(path).has("verify")
    assert "at verify (begun, never ended)" in Journal(path).stopped()
    journal.write("verify", FAILED, "gpu.count")
    journal.write("site", UNDONE)
    assert "at verify (failed: gpu.count)" in Journal(path).stopped()
    assert not Journal(path).has("site")
    journal.write(END, DONE)
    assert Journal(path).open == [] and Journal(path).stopped() == ""


def test_a_torn_last_line_is_no_line_and_is_not_written_on(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    Journal(path).write(START, DONE)
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        journal = Journal(path)
        assert len(journal.lines) == 1
        journal.write("site", DONE)
        assert [line["step"] for line in Journal(path).lines] == [START, "site"]


def test_an_odd_line_in_the_middle_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.write_text('{"step": "start"}\n{"step": "site", "outcome": "done"}\n')
    with pytest.raises(FleetStateError, match=r"n\.jsonl:1"):
        Journal(path)


def test_serial_numbers_by_slot() -> None:
    text = "00000000:1B:00.0, 1650823001234\n00000000:43:00.0, [N/A]\n"
    assert serials(Output(rc=0, stdout=text)) == {"0000:1b:00.0": "1650823001234"}
    assert serials(Output(rc=127, stdout=text)) == {}


def test_a_partner_is_idle_good_and_of_the_same_kind(
    fleet: Fleet, lock: Lock, tmp_path: Path
) -> None:
    world = World(fleet, lock, tmp_path)
    assert partner(world.fleet, lock, NAME, world)[0] == ""
    world.marks = {name: world.mark(eight()) for name in ("head1", "worker1", "gate1")}
    world.holders = {"head1": "unit ray-head.service\nend\n"}
    found, why = partner(world.fleet, lock, NAME, world)
    assert found == "worker1" and why == ["head1 is in use (ray-head)"]
    world.marks["worker1"] = world.mark(eight(), state="not_ready")
    world.holders["gate1"] = ""  # it did not say whether anything uses its cards
    found, why = partner(world.fleet, lock, NAME, world)
    assert found == "" and len(why) == 3, why
    kept = world.fleet.model_copy(update={"kept_out": {"worker1": "bob"}})
    assert "worker1 is quarantined" in partner(kept, lock, NAME, world)[1]


def test_the_deploy_has_every_stage_of_site_but_verify() -> None:
    def stages(name: str) -> list[str]:
        lines = (ROOT / "deploys" / f"{name}.py").read_text().splitlines()
        return [line for line in lines if line.startswith("local.include")]

    assert stages("rebuild") == [x for x in stages("site") if "verify" not in x]
