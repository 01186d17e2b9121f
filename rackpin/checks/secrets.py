"""API keys stay in root-only files: not in a process list, not in a unit, not readable (F117)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin import layout
from rackpin.checks.base import (
    NO_ANSWER,
    SERVING,
    Command,
    Context,
    Output,
    Outputs,
    Question,
    one_line,
    sections,
    unseen,
)
from rackpin.findings import Finding, Level

# The keys go from the files through a pipe into grep: never into an argument or the answer.
# Shorter ones than 8 characters would be found everywhere by chance, and are reported as weak.
COMMAND = Command(
    "secrets",
    f"""\
cd {layout.INSTANCE_DIR} || exit 66
keys() {{
  sed -n 's/^[[:space:]]*[A-Z_]*\\(KEY\\|TOKEN\\|SECRET\\|PASSWORD\\)=//p' ./*.env |
    sed "s/^[\\"']//; s/[\\"'][[:space:]]*$//" | grep -E '^.{{8,}}$'
}}
echo '## files'; stat -c '%a %U:%G %n' ./*.env
echo '## keys'; keys | wc -l
echo '## ps'
for f in $(keys | grep -aslFf - /proc/[0-9]*/cmdline); do
  p=${{f#/proc/}}; p=${{p%/cmdline}}; echo "$p $(cat /proc/$p/comm 2>/dev/null)"
done
echo '## text'
keys | grep -rsIlFf - /etc/systemd/system /run/systemd/system /etc/default \\
  {layout.INSTANCE_DIR}/*.json {layout.ETC}/node.env
echo '## journal'
for f in ./*.env; do
  u=${{f#./}}; u=${{u%.env}}
  n=$( {{ {{ journalctl -q -u "vllm@$u.service" -n 3000 --no-pager -o cat; echo $? >&4; }} |
    grep -acFf /dev/fd/3 3<<KEYS
$(keys)
KEYS
  }} 4>&1 )
  echo "$u" $n
done
echo '## end'
""",
    deadline_s=15,
)


class Secrets:
    id = "secrets.ps"
    title = "No key where others can read it"
    level: Level = "quick"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [COMMAND] if ctx.fleet.instances_on(ctx.node) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not ctx.fleet.instances_on(ctx.node):
            return []
        output = outputs.get(COMMAND.name, NO_ANSWER)
        return [judge_leaks(ctx, output), judge_files(ctx, output)]


def unread(output: Output) -> str | None:
    """Why the answer can't be judged."""
    if why := unseen(COMMAND, output):
        return why
    if not {"files", "keys", "ps", "text", "journal", "end"} <= sections(output.stdout).keys():
        return f"the answer is not whole: {one_line(output.stderr) or 'no error text'}"
    return None


def judge_leaks(ctx: Context, output: Output) -> Finding:
    """``secrets.ps``: the keys of the env files, searched in process list, units and journal."""
    expected = "no key in a command line, a unit file or the journal"
    question = Question(ctx, "secrets.ps", COMMAND, output, expected, "failures F117")
    why = unread(output)
    parts = sections(output.stdout)
    if why is None:
        count, wanted = parts["keys"].strip(), len(ctx.fleet.instances_on(ctx.node))
        if not count.isdigit() or int(count) < wanted:
            why = f"{count or 'no'} keys of 8 or more characters found, {wanted} engines need one"
    if why is not None:
        remedy = f"look at {layout.INSTANCE_DIR}/*.env on the node; run the deploy"
        return question.not_run(why, remedy=remedy)
    faults = []
    for pid, _, name in (line.partition(" ") for line in parts["ps"].splitlines()):
        faults.append(f"a key is in the command line of {name or 'a process'}[{pid}]")
    faults += [f"a key is in {path}" for path in parts["text"].splitlines()]
    for line in parts["journal"].splitlines():
        name, *numbers = line.split() or [""]  # journalctl's own status, then grep's count
        if len(numbers) != 2 or numbers[0] != "0" or not numbers[1].isdigit():
            faults.append(f"the journal of vllm@{name} could not be searched")
        elif numbers[1] != "0":
            faults.append(f"a key is in the journal of vllm@{name}")
    return question.verdict(
        f"{parts['keys'].strip()} keys, found nowhere else",
        faults,
        shown="\n".join(faults),
        remedy="make a new key (the old one is known now), give it only by api_key_file, restart "
        "the engine in a wave",
    )


def judge_files(ctx: Context, output: Output) -> Finding:
    """``secrets.files``: one env file for each engine here, root's, mode 0600."""
    expected = f"{layout.INSTANCE_DIR}/NAME.env: mode 600, root:root"
    question = Question(ctx, "secrets.files", COMMAND, output, expected, "failures F117")
    if (why := unread(output)) is not None:
        return question.not_run(why)
    text = sections(output.stdout)["files"]
    matches = (re.fullmatch(r"([0-7]+) (\S+) (?:\./)?(.+)\.env", x) for x in text.splitlines())
    found = {m[3]: (m[1], m[2]) for m in matches if m}
    names = [instance.name for instance in ctx.fleet.instances_on(ctx.node)]
    faults = [f"{name}.env is missing" for name in names if name not in found]
    for name, (mode, owner) in found.items():
        if int(mode, 8) & 0o077 or owner != "root:root":
            faults.append(f"{name}.env is {owner} with mode {mode}")
    remedy = f"chown root:root and chmod 600 in {layout.INSTANCE_DIR}; then make a new key"
    return question.verdict(f"{len(found)} files, root only", faults, shown=text, remedy=remedy)


CHECK = Secrets()
