"""The node's scripts in a real shell, with an apt that says what a test wants."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rackpin import deadlines, layout
from rackpin.apt import scripts

URI = "http://mirror.example/nv"
GOOD = f"Hit:1 {URI} ./ InRelease\nReading package lists...\n"
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (perl)\n"
TORN = f"E: Failed to fetch {URI}/Packages  File has unexpected size (1 != 2). Mirror sync?\n"
# Each call takes the next answer: a status on the first line, then what to print.
FAKE = """#!/bin/sh
echo "$0 $*" >>{log}
n=$(cat {count}); echo $((n + 1)) >{count}
f={answers}/$n; [ -e $f ] || f={answers}/last
tail -n +2 $f; exit $(head -n 1 $f)
"""


class Shell:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.log = root / "log"
        self.answers = root / "answers"
        for name in ("bin", "answers", "run", "etc/sources.list.d", "etc/preferences.d", "state"):
            (root / name).mkdir(parents=True)
        text = FAKE.format(log=self.log, count=root / "count", answers=self.answers)
        for name in ("apt-get", "apt-cache", "apt-mark", "dpkg"):
            self.program(name, text)
        self.program("sleep", f'#!/bin/sh\necho "sleep $1" >>{self.log}\n')
        monkeypatch.setattr(layout, "APT", str(root / "state"))
        monkeypatch.setattr(layout, "APT_HELD", str(root / "state/held"))

    def program(self, name: str, text: str) -> None:
        (self.root / "bin" / name).write_text(text)
        (self.root / "bin" / name).chmod(0o755)

    def run(self, script: str, *answers: tuple[int, str]) -> subprocess.CompletedProcess[str]:
        (self.root / "count").write_text("0")
        for number, (code, text) in enumerate(answers):
            (self.answers / str(number)).write_text(f"{code}\n{text}")
            (self.answers / "last").write_text(f"{code}\n{text}")
        script = script.replace("/run/", f"{self.root}/run/")
        script = script.replace("/etc/apt/", f"{self.root}/etc/")
        return subprocess.run(
            ["sh", "-s"],
            input=script,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"},
        )

    @property
    def calls(self) -> list[str]:
        place = f"{self.root}/bin/"
        return [line.removeprefix(place) for line in self.log.read_text().splitlines()]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, monkeypatch)


def refresh(shell: Shell, *answers: tuple[int, str], uri: str = URI) -> tuple[int, list[str]]:
    script = scripts.update_functions([uri]) + 'refresh -o X=1; rc=$?; cat "$said"; exit $rc\n'
    done = shell.run(script, *answers)
    assert list((shell.root / "run").iterdir()) == [], "nothing is left in /run"
    return done.returncode, [line.split()[0] for line in shell.calls]


def test_lists_that_are_fresh_at_once(shell: Shell) -> None:
    assert refresh(shell, (0, GOOD)) == (0, ["apt-get"])
    assert "Error-Mode=any" in shell.calls[0] and "-o X=1 update" in shell.calls[0]


def test_a_lock_is_waited_for(shell: Shell) -> None:
    code, calls = refresh(shell, (100, LOCKED), (100, LOCKED), (0, GOOD))
    assert (code, calls) == (0, ["apt-get", "sleep", "apt-get", "sleep", "apt-get"])


def test_a_torn_mirror_is_asked_again_with_pauses(shell: Shell) -> None:
    assert refresh(shell, (100, TORN), (0, GOOD))[0] == 0
    assert shell.calls[1] == f"sleep {deadlines.APT_RETRY_S[0]}"


def test_a_mirror_that_stays_torn_is_given_up(shell: Shell) -> None:
    code, calls = refresh(shell, (100, TORN))
    assert code == 100 and calls.count("apt-get") == len(deadlines.APT_RETRY_S) + 1


@pytest.mark.parametrize(
    "words",
    [
        "W: GPG error: x InRelease: NO_PUBKEY 1\nE: The repository 'x' is not signed.\n",
        "E: Conflicting values set for option Signed-By regarding source x\n",
        "E: Release file for x is not valid yet (invalid for another 3h).\n",
    ],
)
def test_what_no_waiting_cures_is_said_at_once(shell: Shell, words: str) -> None:
    assert refresh(shell, (100, words)) == (100, ["apt-get"])


@pytest.mark.parametrize(
    "words",
    [
        f"Err:1 {URI} ./ InRelease\nW: Failed to fetch {URI}/InRelease  Could not connect\n",
        "W: Some index files failed to download. They have been ignored, or old ones used.\n",
        "W: An error occurred during the signature verification. The repository is not updated.\n",
        "Hit:1 http://other.example/ stable InRelease\n",
        "Ign:1 http://mirror.example/nv ./ InRelease\n",
    ],
)
def test_status_0_does_not_make_lists_fresh(shell: Shell, words: str) -> None:
    """F022: apt-get update says 0 and goes on with what it had."""
    assert refresh(shell, (0, words))[0] == 100


def test_a_directory_needs_no_answer(shell: Shell) -> None:
    assert refresh(shell, (0, "Reading package lists...\n"), uri="file:///srv/debs")[0] == 0


def test_the_trial_leaves_the_real_files_alone(shell: Shell) -> None:
    etc = shell.root / "etc"
    (etc / "sources.list").write_text("deb http://debian.example/ bookworm main\n")
    (etc / "sources.list.d/rackpin-old.sources").write_text("# Owned by rackpin\n")
    before = {p: p.read_text() for p in etc.rglob("*") if p.is_file()}
    source = f"URIs: x\nSigned-By: {etc}/keyrings/rackpin-nv.asc\n"
    look = '#!/bin/sh\nd=$(echo "$*" | sed "s/.*sourceparts=\\([^ ]*\\).*/\\1/")\n'
    shell.program("apt-cache", look + "ls $d; cat $d/rackpin-nv.sources; cat $d/../keyrings/*\n")
    script = scripts.trial_script(
        {
            "/etc/apt/sources.list.d/rackpin-nv.sources": source,
            "/etc/apt/keyrings/rackpin-nv.asc": "the key\n",
        },
        ["/etc/apt/sources.list.d/rackpin-old.sources"],
        ["nvidia-utils-535"],
        [URI],
        {"Acquire::http::Proxy::mirror.example": "http://proxy:3128"},
    )
    done = shell.run(script, (0, GOOD))
    assert done.returncode == 0, done.stderr
    assert "## update = 0\n" in done.stdout and done.stdout.endswith("## end\n")
    said = done.stdout.split("## policy\n")[1].splitlines()
    assert said[0] == "rackpin-nv.sources" and said[3] == "the key"
    trial = said[2].removeprefix("Signed-By: ")
    assert "/rackpin-apt-trial." in trial and not Path(trial).exists()
    assert {p: p.read_text() for p in etc.rglob("*") if p.is_file()} == before
    assert "Proxy::mirror.example=http://proxy:3128" in shell.calls[0]


def test_holds_are_set_and_written_down(shell: Shell) -> None:
    script = scripts.holds_script(["a", "b"], ["c"], ["a", "b"])
    assert shell.run(script, (0, "")).returncode == 0
    assert shell.calls == ["apt-mark unhold c", "apt-mark hold a b"]
    assert (shell.root / "state/held").read_text() == "a\nb\n"


def test_a_hold_that_fails_is_not_written_down(shell: Shell) -> None:
    done = shell.run(scripts.holds_script(["a"], [], ["a"]), (100, "E: Unable to locate a\n"))
    assert done.returncode == 1 and "Unable to locate a" in done.stderr
    assert not (shell.root / "state/held").exists()


def test_a_repair_that_does_not_help_fails_with_dpkgs_words(shell: Shell) -> None:
    words = "dpkg: error processing package x (--configure): exit status 10\n"
    done = shell.run(scripts.repair_script(), (1, words))
    assert done.returncode == 100 and "exit status 10" in done.stderr
    assert any("--configure -a" in call for call in shell.calls)
    assert all("--no-remove" in call for call in shell.calls if call.endswith("-f install"))
