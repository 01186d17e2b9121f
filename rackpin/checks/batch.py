"""All commands of a node in one remote execution: a script for ``sh -s``, and its answer apart.

Outputs travel as base64 between marks that carry a nonce, with their length: no byte that a
command prints can pose as another's answer, and a cut answer is noticed.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rackpin.checks.base import Command, Output, Runner

KEPT_STDOUT = 256 * 1024  # bytes of one command's output; the rest is left on the node
KEPT_STDERR = 16 * 1024
FILE_BLOCKS = 65536  # of 512 bytes: a command gone wild must not fill the node's /run
KILL_AFTER_S = 5
BUDGET_S = 50  # a node that hangs costs a minute; commands that got no turn are not_run
CLOCK = "batch.clock"  # pseudo output: "SENT RECEIVED START END", seconds since 1970

GARBLED = Output(rc=None, stderr="its answer came cut or garbled")

_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]*")

# Traps first: whatever ends the script, nothing of it stays. The whole is one function, so
# that a script cut on its way is a syntax error and not half a run. Builtins wherever they do: a
# program more for each command was half of what a node had to do.
_HEAD = """\
rackpin_batch() {
N=@nonce@
LC_ALL=C; export LC_ALL
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH
umask 077
D=$(mktemp -d /run/rackpin-verify.XXXXXXXX 2>/dev/null) || D=$(mktemp -d) || return 70
stop() {
  for f in "$D"/*.pid; do
    p=; read -r p 2>/dev/null <"$f"
    [ -z "$p" ] || kill "$p" 2>/dev/null
  done
  rm -rf "$D"
}
trap stop EXIT
trap 'exit 143' HUP INT TERM PIPE
now() { read -r s _ </proc/uptime; ms=${s#*.}; ms=$(( ${s%.*} * 1000 + (1$ms - 100) * 10 )); }
now; T0=$ms
run() {
  now; t0=$ms
  left=$(( @budget@ - (t0 - T0) / 1000 ))
  [ "$left" -gt 0 ] || return 0
  [ "$left" -lt "$2" ] || left=$2
  ( ulimit -f "$3"; exec timeout -k @kill@ "$left" sh "$D/$1.sh" ) \\
    <"$D/$1.in" >"$D/$1.out" 2>"$D/$1.err" &
  t=$!; echo "$t" >"$D/$1.pid"; wait "$t"; r=$?; : >"$D/$1.pid"
  now; echo "$r $(( ms - t0 )) $4" >"$D/$1.rc"
}
flush() { # every answer that is there and was not given yet; each is given once
  set --
  n=0; while [ "$n" -lt @count@ ]; do
    if [ -s "$D/$n.rc" ]; then
      set -C; if true 2>/dev/null >"$D/$n.sent"; then set -- "$@" $n.out $n.err; fi; set +C
    fi
    n=$(( n + 1 ))
  done 2>/dev/null
  [ $# -gt 0 ] || return 0
  sizes=$(cd "$D" && wc -c "$@") || return 0
  big=
  while read -r size f; do
    n=${f%.*}
    case $f in
    *.out) size_out=$size; [ "$size" -le @stdout@ ] || big=yes ;;
    *.err)
      [ "$size" -le @stderr@ ] || big=yes
      read -r r ms name <"$D/$n.rc"
      echo "$N begin $name $r $ms $size_out $size" ;;
    esac
  done <<SIZES
$sizes
SIZES
  echo "$N data"
  if [ -n "$big" ]; then
    for f; do case $f in
      *.out) head -c @stdout@ "$D/$f" ;;
      *) head -c @stderr@ "$D/$f" ;;
    esac; done
  else ( cd "$D" && cat "$@" ); fi | base64
  echo "$N end $(( $# / 2 ))"
}
# A command that no signal ends (a dead share, a dead driver) must not take the others with it.
( sleep $(( @budget@ + @kill@ )) >/dev/null 2>&1 & echo $! >"$D/sleep.pid"; wait $!; flush ) &
echo $! >"$D/watch.pid"
"""


def script(
    commands: Sequence[Command], nonce: str, budget_s: int = BUDGET_S, clock: bool = True
) -> str:
    """POSIX sh text that runs the commands as root and prints their outputs.

    The others run one after another, then the slow ones beside each other. ``clock``: it also
    prints when it began and ended, for :data:`CLOCK`.
    Raises ValueError for a name that is used twice or can't stand in a mark.
    """
    names = [command.name for command in commands]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"command name {name!r} must match {_NAME.pattern}")
        if names.count(name) > 1:
            raise ValueError(f"command name {name!r} is used twice")
    values = {
        "nonce": nonce,
        "count": len(commands),
        "budget": budget_s,
        "kill": KILL_AFTER_S,
        "stdout": KEPT_STDOUT,
        "stderr": KEPT_STDERR,
    }
    head = re.sub(r"@(\w+)@", lambda match: str(values[match[1]]), _HEAD)
    lines = [head.rstrip("\n"), *_stamp("start", clock)]
    for number, command in enumerate(commands):
        lines.append(_file(f'"$D/{number}.sh"', command.shell))
        lines.append(_file(f'"$D/{number}.in"', command.stdin))
    numbered = list(enumerate(commands))
    together = [(n, c) for n, c in numbered if c.together]
    slow = [(n, c) for n, c in numbered if c.slow and not c.together]
    cheap = [(n, c) for n, c in numbered if not c.slow and not c.together]
    lines += _group(together)
    # Cheap ones first: the probes' own sockets and processes must not be among what they see.
    for number, command in cheap:
        lines.append(f"run {number} {_bounds(command)}")
    lines.append("flush; W=")
    for number, command in slow:
        lines.append(f'run {number} {_bounds(command)} & W="$W $!"')
    lines += ["for p in $W; do wait $p; done", "flush"]
    lines += [*_stamp("done", clock), "}", "rackpin_batch"]
    return "\n".join(lines) + "\n"


def _stamp(when: str, clock: bool) -> list[str]:
    return [f'echo "$N {when} $(date +%s%N)"'] if clock else []


def _group(together: Sequence[tuple[int, Command]]) -> list[str]:
    """One shell for all: a fork costs a tenth of what timeout and a shell for each do."""
    if not together:
        return []
    each = [
        f'( . "$D/{number}.sh" ) <"$D/{number}.in" >"$D/{number}.out" 2>"$D/{number}.err"\n'
        f'echo "$? 0 {command.name}" >"$D/{number}.rc"'
        for number, command in together
    ]
    deadline = math.ceil(max(command.deadline_s for _, command in together))
    blocks = "unlimited" if any(command.writes for _, command in together) else FILE_BLOCKS
    own = "\n".join(["D=${0%/*}", *each])
    return [
        _file('"$D/group.sh"', own),
        _file('"$D/group.in"', ""),
        f"run group {deadline} {blocks} group",
    ]


def _bounds(command: Command) -> str:
    """Seconds, blocks of the largest file it may write, and its name."""
    blocks = "unlimited" if command.writes else FILE_BLOCKS
    return f"{math.ceil(command.deadline_s)} {blocks} {command.name}"


def quoted(text: str) -> str:
    """For sh; shorter than shlex.quote where many quotes are in it."""
    return "'" + text.replace("'", "'\\''") + "'"


def _file(path: str, text: str) -> str:
    """A line that writes it; printf is the shell's own."""
    return f"printf '%s\\n' {quoted(text.rstrip(chr(10)))} >{path}" if text else f": >{path}"


def split(text: str | Iterable[str], nonce: str) -> dict[str, Output]:
    """Outputs by command name; one that is cut or garbled has ``rc`` None.

    Answers come in blocks: a line for each command, then the outputs of all, one after another.
    Commands whose block didn't start are left out: ask with ``.get(name, NO_ANSWER)``.
    """
    lines = text.splitlines() if isinstance(text, str) else list(text)
    found: dict[str, Output] = {}
    stamps: dict[str, str] = {}
    twice: set[str] = set()  # then neither answer can be trusted
    heads: list[list[str]] = []
    data: list[str] | None = None  # None outside of a block's outputs
    for line in lines:
        if not line.startswith(f"{nonce} "):
            if data is not None:
                data.append(line.strip())
            continue
        word, *rest = line[len(nonce) + 1 :].split()
        if word in ("start", "done") and len(rest) == 1:
            stamps[word] = rest[0]
        elif word == "begin" and len(rest) == 5 and data is None:
            heads.append(rest)
            if rest[0] in found:
                twice.add(rest[0])
            found.setdefault(rest[0], GARBLED)
        elif word == "data" and not rest and heads and data is None:
            data = []
        elif word == "end" and data is not None and rest == [str(len(heads))]:
            found |= _decode(heads, data)
            heads, data = [], None
        else:
            heads, data = [], None
    found |= dict.fromkeys(twice, GARBLED)
    if stamps.keys() == {"start", "done"} and all(s.isdigit() for s in stamps.values()):
        start, end = (int(stamps[key]) / 1e9 for key in ("start", "done"))
        found[CLOCK] = Output(rc=0, stdout=f"{start:.6f} {end:.6f}")
    return found


def _decode(heads: Sequence[Sequence[str]], data: Sequence[str]) -> dict[str, Output]:
    """The outputs of a block; none when a number is wrong or bytes are missing or too many."""
    try:
        content = base64.b64decode("".join(data), validate=True)
        numbers = [[int(word) for word in head[1:]] for head in heads]
    except (ValueError, binascii.Error):
        return {}
    kept = [(min(out, KEPT_STDOUT), min(err, KEPT_STDERR)) for _, _, out, err in numbers]
    if sum(map(sum, kept)) != len(content) or any(size < 0 for pair in kept for size in pair):
        return {}
    found, at = {}, 0
    for (name, *_), (rc, ms, size, _), (out, err) in zip(heads, numbers, kept, strict=True):
        texts = content[at : at + out], content[at + out : at + out + err]
        at += out + err
        stdout, stderr = (part.decode("utf-8", "replace") for part in texts)
        found[name] = Output(
            rc=rc,
            stdout=stdout,
            stderr=stderr,
            seconds=ms / 1000,
            truncated=size > KEPT_STDOUT,
        )
    return found


def budget(commands: Sequence[Command]) -> int:
    """Seconds that a node gets for all of them: more than usual only where one asks for more."""
    longest = max((command.deadline_s for command in commands), default=0.0)
    return BUDGET_S if longest <= BUDGET_S else math.ceil(longest) + BUDGET_S


def remote(
    execute: Callable[[str, float], str | Iterable[str]], clock: Callable[[], float] = time.time
) -> Runner:
    """A runner over ``execute``, which feeds a script to ``sh -s`` as root and returns stdout.

    ``execute`` is also told within how many seconds that has to end.

    It notes the controller's time around the execution: with the node's own two stamps that
    bounds the clock offset by the way there and back, however long the commands took.
    """

    def run(commands: Sequence[Command]) -> dict[str, Output]:
        nonce = secrets.token_hex(16)
        limit = budget(commands)
        text = script(commands, nonce, limit)
        sent = clock()
        answer = execute(text, limit + 2 * KILL_AFTER_S)
        received = clock()
        outputs = split(answer, nonce)
        if CLOCK in outputs:
            stamps = f"{sent:.6f} {received:.6f} {outputs[CLOCK].stdout}"
            outputs[CLOCK] = replace(outputs[CLOCK], stdout=stamps)
        return outputs

    return run
