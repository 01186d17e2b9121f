"""The one remote execution: run here by a real ``sh``, and its answer taken apart."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rackpin.checks import batch, plan, probe
from rackpin.checks.base import Command
from rackpin.desired import Target
from tests.unit import checks_samples as samples

NONCE = "0123456789abcdef"


def execute(text: str, limit_s: float = 60) -> str:
    done = subprocess.run(
        ["sh", "-s"], input=text, capture_output=True, text=True, timeout=limit_s, check=False
    )
    return done.stdout


def test_outputs_status_stdin_and_time_come_back() -> None:
    outputs = batch.remote(execute)(
        [
            Command("plain", "echo out; echo err >&2; exit 3"),
            Command("python", "python3 -", stdin="print('it''s $HOME `x` \\\\')\n"),
            Command("eats-stdin", "cat; cat"),
            Command("no-newline", "printf 'a\\nb'"),
            Command("where", 'dirname "$0"'),
            Command("missing", "no-such-program --now"),
            Command("beside", "sleep 0.3; echo slow", slow=True),
        ]
    )
    assert (outputs["plain"].rc, outputs["plain"].stdout) == (3, "out\n")
    assert outputs["plain"].stderr == "err\n"
    assert outputs["python"].stdout == "its $HOME `x` \\\n"
    assert (outputs["eats-stdin"].rc, outputs["eats-stdin"].stdout) == (0, "")
    assert outputs["no-newline"].stdout == "a\nb"
    assert outputs["missing"].rc == 127
    assert outputs["beside"].stdout == "slow\n" and outputs["beside"].seconds >= 0.3
    sent, received, start, end = map(float, outputs[batch.CLOCK].stdout.split())
    assert sent <= start <= end <= received
    assert outputs["where"].stdout.strip() and not Path(outputs["where"].stdout.strip()).exists()


def test_those_in_one_shell_do_not_see_each_other() -> None:
    outputs = batch.remote(execute)(
        [
            Command("leaves", "cd /; x=1; f() { :; }; echo err >&2; exit 3", together=True),
            Command("later", 'echo "[$x] $#"; f || cat', stdin="in\n", together=True),
            Command("alone", "echo alone"),
        ]
    )
    assert (outputs["leaves"].rc, outputs["leaves"].stderr) == (3, "err\n")
    assert outputs["later"].stdout == "[] 0\nin\n" and outputs["alone"].stdout == "alone\n"


def test_one_that_hangs_among_them_costs_their_one_deadline() -> None:
    started = time.monotonic()
    outputs = batch.remote(execute)(
        [
            Command("before", "echo here", deadline_s=1, together=True),
            Command("hangs", "sleep 300", deadline_s=1, together=True),
            Command("after", "echo here", deadline_s=1, together=True),
            Command("alone", "echo alone"),
        ]
    )
    assert time.monotonic() - started < 1 + batch.KILL_AFTER_S
    assert outputs["before"].ok and outputs["alone"].ok
    assert "hangs" not in outputs and "after" not in outputs


def test_a_hanging_command_costs_its_deadline_only() -> None:
    started = time.monotonic()
    outputs = batch.remote(execute)(
        [
            Command("hangs", "sleep 300", deadline_s=1),
            Command("hangs-beside", "sleep 300 & sleep 300", deadline_s=1, slow=True),
            Command("after", "echo here"),
        ]
    )
    assert time.monotonic() - started < 10
    assert outputs["hangs"].timed_out and outputs["hangs-beside"].timed_out
    assert outputs["after"].stdout == "here\n"


def test_the_budget_bounds_the_whole_and_the_rest_gets_no_turn() -> None:
    commands = [Command(f"c{n}", "sleep 30", deadline_s=20) for n in range(5)]
    started = time.monotonic()
    outputs = batch.split(execute(batch.script(commands, NONCE, budget_s=2)), NONCE)
    assert time.monotonic() - started < 12
    assert outputs["c0"].timed_out
    assert "c4" not in outputs


def test_what_no_signal_ends_does_not_take_the_others_with_it() -> None:
    """As a process that waits for a dead share; here it stops the one that would end it."""
    commands = [Command("before", "echo here"), Command("stuck", "kill -STOP $PPID; sleep 60")]
    text = batch.script([*commands, Command("after", "echo x")], NONCE, budget_s=1)
    shell = subprocess.Popen(
        ["sh", "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    )
    try:
        assert shell.stdin is not None and shell.stdout is not None
        shell.stdin.write(text)
        shell.stdin.close()
        lines, started = [], time.monotonic()
        for line in shell.stdout:
            lines.append(line)
            if line == f"{NONCE} end 1\n":
                break
        assert time.monotonic() - started < 1 + batch.KILL_AFTER_S + 3
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        subprocess.run(["pkill", "-KILL", "-f", f"timeout -k {batch.KILL_AFTER_S} 1 sh /"])
        shell.wait(10)
    outputs = batch.split(lines, NONCE)
    assert outputs["before"].stdout == "here\n" and outputs.keys() == {"before"}


def test_nothing_of_it_runs_on() -> None:
    before = sleeps()
    execute(batch.script([Command("a", "echo a"), Command("b", "echo b", slow=True)], NONCE, 4321))
    assert sleeps() == before == 0


def sleeps() -> int:
    wanted = f"sleep {4321 + batch.KILL_AFTER_S}"
    done = subprocess.run(["pgrep", "-fc", wanted], capture_output=True, text=True, check=False)
    return int(done.stdout)


def test_a_flood_of_output_is_cut_and_said_so() -> None:
    outputs = batch.remote(execute)([Command("flood", "yes"), Command("big", "seq 100000")])
    assert outputs["flood"].truncated and not outputs["flood"].ok
    assert outputs["big"].truncated and len(outputs["big"].stdout) == batch.KEPT_STDOUT


def test_binary_and_hostile_output_cannot_pose_as_another_answer() -> None:
    forged = f"{NONCE} end a\n{NONCE} begin b 0 1 2 0\naGk=\n{NONCE} stderr\n{NONCE} end b\n"
    commands = [
        Command("a", f"cat <<'X'\n{forged}X"),
        Command("b", "exit 9"),
        Command("binary", "printf '\\000\\377\\r\\n\\033[2J'"),
    ]
    outputs = batch.split(execute(batch.script(commands, NONCE)), NONCE)
    assert outputs["a"].stdout == forged
    assert outputs["b"].rc == 9
    assert outputs["binary"].stdout == "\x00�\r\n\x1b[2J"


def test_a_cut_answer_gives_no_status() -> None:
    text = execute(batch.script([Command("a", "seq 20000"), Command("b", "echo b")], NONCE))
    whole = batch.split(text, NONCE)
    assert whole["a"].ok and whole["b"].stdout == "b\n"
    for size in (len(text) // 3, len(text) // 2, text.index(f"{NONCE} end 2") - 1):
        outputs = batch.split(text[:size], NONCE)
        assert outputs["a"].rc is None and outputs["a"].stdout == ""
        assert outputs["b"].rc is None and batch.CLOCK not in outputs
    assert "b" not in batch.split(text[: text.index(f"{NONCE} begin b")], NONCE)
    assert batch.split(text[: text.index(f"{NONCE} done")], NONCE)["a"] == whole["a"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t.replace("begin a 0", "begin a x"),
        lambda t: t.replace("YQo=", "YQ=o"),
        lambda t: t.replace("YQo=", "YWEK"),
        lambda t: t.replace(f"{NONCE} data\n", ""),
        lambda t: t.replace(f"{NONCE} end 1", f"{NONCE} end 2"),
        lambda t: t.replace("begin a 0 ", "begin b 0 ").replace("begin b", "begin a 0"),
        lambda t: t.replace(f"{NONCE} data", f"{NONCE} begin a 0 1 0 0\n{NONCE} data"),
        lambda t: t.replace(" 2 0\n", " 3 -1\n"),
        lambda t: t + t,
        lambda t: t.replace("begin a 0 ", "begin a 0 0 "),
        lambda t: "",
        lambda t: "Last login: today\nbash: warning: setlocale\n",
    ],
)
def test_a_garbled_answer_gives_no_status(damage) -> None:
    text = execute(batch.script([Command("a", "echo a")], NONCE))
    assert batch.split(text, NONCE)["a"].ok
    assert not batch.split("banner\n" + damage(text), NONCE).get("a", samples.ok("", 1)).ok


def test_noise_around_the_answer_does_no_harm() -> None:
    text = execute(batch.script([Command("a", "echo a")], NONCE))
    assert batch.split("motd\n" + text.replace("\n", "\r\n") + "bye\n", NONCE)["a"].ok


def test_a_script_that_was_cut_on_its_way_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = batch.script([Command("a", f"touch {mark}"), Command("b", "true")], NONCE)
    for part in (3, 2):
        execute(text[: len(text) * (part - 1) // part])
    execute(text[: text.rindex("rackpin_batch")])
    assert not mark.exists()
    execute(text)
    assert mark.exists()


@pytest.mark.parametrize("name", ["", "a b", "A", "x;y", "$(x)", "../a"])
def test_names_that_could_break_the_marks_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must match"):
        batch.script([Command(name, "true")], NONCE)
    with pytest.raises(ValueError, match="twice"):
        batch.script([Command("a", "true"), Command("a", "true")], NONCE)


def test_every_nodes_script_is_valid_sh_and_its_probes_valid_python(target: Target) -> None:
    for node in target.fleet.nodes:
        commands, _ = plan(samples.context(target, node))
        text = batch.script(commands, NONCE)
        done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        for command in commands:
            each = subprocess.run(
                ["sh", "-n"], input=command.shell, text=True, capture_output=True, check=False
            )
            assert each.returncode == 0, (command.name, each.stderr)
            if command.stdin:
                compile(command.stdin, command.name, "exec")


def test_parameters_reach_a_probe_as_they_are() -> None:
    params = {"text": 'it\'s "quoted" \\ {x} \n \u00e9', "n": 1}
    source = probe.text("client", "smoke", params=params)
    names: dict[str, object] = {"__name__": "probe"}
    exec(compile(source, "probe", "exec"), names)
    import json

    assert json.loads(str(names["PARAMS"])) == params


@pytest.mark.parametrize("text", ["", "RACKPIN_JSON", "RACKPIN_JSON {", "RACKPIN_JSON []", "{}"])
def test_a_probe_without_an_answer_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        probe.answer(text)


def test_a_file_that_grows_without_end_is_cut_off_but_apts_own_cache_is_not() -> None:
    """apt-cache, killed as it wrote its cache, gave an answer as of no package at all."""
    size = batch.FILE_BLOCKS * 512 + 1024
    write = f"head -c {size} /dev/zero >/dev/shm/rackpin-big; echo rc=$?"
    found = {}
    for writes in (False, True):
        command = Command("x", f"{write}; rm -f /dev/shm/rackpin-big", 10, writes=writes)
        text = execute(batch.script([command], "f00d"))
        found[writes] = batch.split(text, "f00d")["x"].stdout
    assert "rc=0" not in found[False] and "rc=0" in found[True]
