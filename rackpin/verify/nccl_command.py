"""The shell of one collective: it runs under systemd's eyes and answers in sections.

NCCL's log goes into a file of each node, so that none of its lines lies among the rows; what it
says of the way is fetched after the run, also after one that hung.
"""

from __future__ import annotations

from rackpin import layout
from rackpin.checks import allreduce
from rackpin.checks.base import Command
from rackpin.verify import launch, mpi
from rackpin.verify.launch import Session
from rackpin.verify.nccl_run import Collective

# Bytes of one run's answer, which has a bound of its own: a hundred nodes fit.
ROWS_KEPT, ROWS_A_RANK, ERRORS_KEPT = 8_192, 110, 8_192
LOG_KEPT, LOG_LEAST, LOGS_KEPT = 8_192, 1_500, 120_000  # of one node, of all together

# Runs the program of one rank: RUN, then variables and the program with its arguments.
RANK = f"""\
run=$1
shift
if [ -r {layout.NCCL_ENV} ]; then
  while IFS= read -r line; do
    case $line in [A-Za-z_]*=*) export "$line" ;; esac
  done <{layout.NCCL_ENV}
fi
unset NCCL_DEBUG_SUBSYS
export NCCL_DEBUG=INFO NCCL_DEBUG_FILE="${{0%/*}}/log.$run.%h.%p"
exec env "$@"
"""
# What NCCL's log says of the way, each thing once and short, as many nodes' share one answer: RUN.
# The last line says that it is whole.
DIGEST = r"""
cd "${0%/*}" || exit 70
for f in log."$1".*; do
  [ -f "$f" ] || continue
  awk '
    !/NCCL (INFO|WARN)|NCCL version/ { next }
    { text = $0; sub(/^.*NCCL /, "NCCL ", text) }
    / via / {
      sub(/^.* via /, "", text); sub(/ comm .*$/, "", text); gsub(/\([0-9]+\)/, "", text)
      text = "NCCL INFO [0] via " text
    }
    { key = text }
    key !~ / via / { gsub(/[0-9]+/, "#", key) }
    / via / || /NET\/[A-Za-z]+ ?: (Using|No device)/ || /Using network|NVLS multicast/ ||
      /NCCL version/ || (/NCCL WARN/ && warned++ < 5) {
      if (!seen[key]++) print substr(text, 1, 600)
    }
  ' "$f"
  rm -f "$f"
done
echo "NCCL end"
"""
FILES = {"rank": RANK, "digest": DIGEST}


def command(one: Collective, session: Session) -> Command:
    """What the first node is asked; several nodes must be prepared, and trust it."""
    at, unit = session.directory, f"{session.name}-{one.number}"
    many = len(one.nodes) > 1
    if not many:
        at = f"/run/{unit}"
    words = " ".join(f"{name}={value}" for name, value in one.environment.items())
    start = mpi.mpirun(session, one.nodes) + " " if many else ""
    rank = f"sh {at}/rank {one.number} {words} {one.program}"
    arguments = allreduce.arguments(one.size, one.gpus)
    kept = min(LOG_KEPT, max(LOG_LEAST, LOGS_KEPT // len(one.nodes)))
    digest = f"sh {at}/digest {one.number}"
    lines = [f"cd {at} || exit 70", "umask 077", f"export HOME={at} TMPDIR={at}"]
    if not many:
        lines += [f"cat >{name} <<'X'\n{text}X" for name, text in FILES.items()]
        lines.append(
            f"[ -x {one.program} ] || {{ echo '{one.program} is not there' >&2; exit 127; }}"
        )
    rows, errors = f"rows.{one.number}", f"errors.{one.number}"
    lines += [
        f"timeout -k 5 {one.deadline_s} {start}{rank} {arguments} >{rows} 2>{errors} </dev/null",
        "r=$?",
        'part() { echo "## $1"; head -c "$2" | sed \'s/^/|/\'; echo; }',
        'echo "$r" | part status 20',
        f"part rows {ROWS_KEPT + ROWS_A_RANK * one.ranks} <{rows}",
        f"part errors {ERRORS_KEPT} <{errors}",
    ]
    for place, node in enumerate(one.nodes[1:]):
        reach = f"timeout -k 2 {launch.LOG_S} {session.agent} {session.addresses[node]}"
        lines.append(f"{reach} {digest} >part.{one.number}.{place} 2>/dev/null </dev/null &")
    lines.append("wait")
    lines.append(f"{digest} | part 'log {one.nodes[0]}' {kept}")
    for place, node in enumerate(one.nodes[1:]):
        lines.append(f"part 'log {node}' {kept} <part.{one.number}.{place}")
    lines.append(f"rm -f {rows} {errors} part.{one.number}.*")
    lines.append("echo '## end'")
    life = one.deadline_s + launch.LOG_S + 15
    unit_of = launch.properties(unit, life) if not many else _without_directory(unit, life)
    shell = f"exec systemd-run --wait --pipe --unit={unit}.service {unit_of} sh -s"
    return Command("nccl.run", shell, life + 10.0, stdin="\n".join(lines) + "\n", writes=True)


def _without_directory(unit: str, life: int) -> str:
    """The session's directory is the sshd's; the run's unit needs none."""
    words = launch.properties(unit, life)
    return words.replace(f"-p RuntimeDirectory={unit} -p RuntimeDirectoryMode=0700 ", "")
