"""Facts are run through a real shell here and their answers parsed back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pyinfra.api.exceptions import FactProcessError

from rackpin.facts import Packages, Paths, Survey, Text, Units, Users, parse_survey


def shell(command: str) -> list[str]:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_paths_of_every_kind(tmp_path: Path) -> None:
    odd = tmp_path / "it's odd"
    odd.write_bytes(b"# Owned\x00\xff by\nsecond\nthird\n")
    odd.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to("/nowhere")
    plain = tmp_path / "plain"
    plain.write_text("# Owned by rackpin\nx\ny\n")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    names = tuple(str(p) for p in (odd, plain, link, tmp_path, tmp_path / "none", fifo))
    states = Paths().process(shell(Paths().command(names)))
    assert states[str(plain)].kind == "file" and len(states[str(plain)].sha256) == 64
    assert states[str(plain)].first_lines == "# Owned by rackpin\nx\n"
    assert states[str(odd)].mode == "640" and states[str(odd)].sha256
    assert states[str(link)].target == "/nowhere"
    assert states[str(tmp_path)].kind == "directory" and states[str(tmp_path)].mode == "700"
    assert states[str(tmp_path / "none")].kind == "absent"
    assert states[str(fifo)].kind == "other"


def test_half_installed_packages_are_not_installed() -> None:
    lines = ["a|ii |1.0", "b|iF |2.0", "c|rc |3.0", "d|hi |4.0"]
    assert Packages().process(lines) == {"a": "1.0", "d": "4.0"}, "hi: installed and held"


def test_packages_ask_dpkg() -> None:
    found = Packages().process(shell(Packages().command(("coreutils", "no-such-package"))))
    assert set(found) == {"coreutils"}


def test_units_in_blocks() -> None:
    lines = ["Id=a.service", "ActiveState=active", "", "Id=b.service", "ActiveState=failed"]
    units = Units().process(lines)
    assert units["b.service"]["ActiveState"] == "failed" and len(units) == 2


def test_text_of_a_missing_file_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    assert Text().process(shell(Text().command(str(path)))) == ""
    path.write_text("a\n\nb")
    assert Text().process(shell(Text().command(str(path)))) == "a\n\nb"


def test_users() -> None:
    found = Users().process(shell(Users().command(("root", "nobody-here"))))
    assert set(found) == {"root"}


SURVEY = """@@ os
ID=debian
VERSION_ID="12"
@@ arch
x86_64
@@ epoch
1800000000.5
@@ hostname
head1
@@ addresses
1: lo    inet 127.0.0.1/8 scope host lo
2: host0    inet 10.9.0.11/24 brd 10.9.0.255 scope global host0
@@ route
local 10.9.0.11 dev lo src 10.9.0.11 uid 0
@@ swaps
Filename Type Size Used Priority
/dev/sda2 partition 1 0 -2
@@ dpkg
@@ space
/ / 50000000000
/opt / 50000000000
@@ listeners
LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=7,fd=3)) | 12:pids:/a 1:name=systemd:/system.slice/ssh.service 0::/system.slice/ssh.service
LISTEN 0 128 [::]:8000 [::]:*  |
@@ end
"""  # noqa: E501 - the lines are what the script prints


def test_survey() -> None:
    survey = parse_survey(SURVEY.splitlines())
    assert survey.os["VERSION_ID"] == "12"
    assert survey.addresses["10.9.0.11"] == "host0"
    assert survey.route_source == "10.9.0.11"
    assert survey.swaps == ("/dev/sda2",)
    assert not survey.dpkg_broken
    assert survey.listeners[0] == ("0.0.0.0", 22, "sshd", "/system.slice/ssh.service")
    assert survey.listeners[1] == ("::", 8000, "", "")


@pytest.mark.parametrize(("asked", "found"), [((), 0), ((8000,), 2), ((800, 80), 0), ((22, 1), 2)])
def test_who_listens_is_looked_up_only_where_a_port_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[int, ...], found: int
) -> None:
    lines = SURVEY.partition("@@ listeners\n")[2].partition("@@ end")[0].splitlines()
    (tmp_path / "open").write_text("".join(line.partition(" | ")[0] + "\n" for line in lines))
    (tmp_path / "ss").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\ncat {tmp_path}/open\n')
    (tmp_path / "ss").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = parse_survey(shell(Survey().command("127.0.0.1", asked)))
    assert len(told.listeners) == found
    assert ("-H -ltnp" in (tmp_path / "asked").read_text()) is bool(found)
    (tmp_path / "ss").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(AssertionError):  # the fact fails: nobody can say that the ports are free
        shell(Survey().command("127.0.0.1", asked))


@pytest.mark.parametrize("cut", range(5, len(SURVEY.splitlines()) - 1, 4))
def test_a_cut_survey_is_an_error(cut: int) -> None:
    with pytest.raises(FactProcessError):
        parse_survey(SURVEY.splitlines()[:cut])


def test_a_garbled_survey_is_an_error() -> None:
    with pytest.raises(FactProcessError):
        parse_survey(SURVEY.replace("1800000000.5", "soon").splitlines())
