"""Nothing upgrades or restarts the stack behind our back (F001-F004)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin.apt.pins import unattended_patterns
from rackpin.checks.base import (
    NO_ANSWER,
    NOTHING,
    Command,
    Context,
    Outputs,
    Question,
    sections,
    unseen,
)
from rackpin.desired import Target
from rackpin.findings import Finding, Level
from rackpin.stages import apt
from rackpin.stages.base import data

UNATTENDED = "/etc/apt/apt.conf.d/91-rackpin-unattended"
# dpkg's states: the second letter says what is, "hi" is installed and held.
COMMAND = Command(
    "guard",
    """\
echo '## packages'
for p in unattended-upgrades needrestart; do
  dpkg-query -W -f='${db:Status-Abbrev} ${Package}\\n' $p 2>/dev/null
done
echo '## apt'; apt-config dump Unattended-Upgrade || exit $?
echo '## needrestart'
for f in /etc/needrestart/needrestart.conf /etc/needrestart/conf.d/*.conf; do
  [ -f "$f" ] && grep -HE '^[^#]*\\$nrconf\\{restart\\}' "$f"
done
echo '## end'
""",
)


def guarded(ctx: Context) -> list[str]:
    """Every pattern that must be blacklisted: the driver's and the kernel's, and all pins."""
    names = [str(name) for name in data("guarded-packages.yaml")]
    return unattended_patterns(apt.pins(Target(ctx.fleet, ctx.node, ctx.lock)), names)


class Upgrades:
    id = "guard"
    title = "Automatic upgrades and restarts are kept off the stack"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [COMMAND]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        output = outputs.get(COMMAND.name, NO_ANSWER)
        upgrades = Question(
            ctx,
            "guard.upgrades",
            COMMAND,
            output,
            "apt-config dump lists every guarded name",
            "rackpin/data/guarded-packages.yaml; failures F001",
        )
        needrestart = Question(
            ctx,
            "guard.needrestart",
            COMMAND,
            output,
            "$nrconf{restart} = 'l' (list only)",
            "failures F024-F026: a prompt nobody sees, a restart nobody asked for",
        )
        parts = sections(output.stdout)
        why = unseen(COMMAND, output)
        whole = {"packages", "apt", "needrestart", "end"} <= parts.keys()
        if why is None and not (output.ok and whole):
            why = "dpkg and apt gave no whole answer"
        if why is not None:
            return [question.not_run(why) for question in (upgrades, needrestart)]
        states = [line.split() for line in parts["packages"].splitlines()]
        installed = {words[1] for words in states if len(words) == 2 and words[0][1:2] == "i"}
        return [
            judge_upgrades(upgrades, "unattended-upgrades" in installed, parts["apt"]),
            judge_needrestart(needrestart, "needrestart" in installed, parts["needrestart"]),
        ]


def parse_blacklist(text: str) -> set[str]:
    """The effective list, from ``apt-config dump``: what stands after all files were merged."""
    pattern = r'^Unattended-Upgrade::Package-Blacklist::[^ ]* "(.*)";$'
    return {match[1] for match in re.finditer(pattern, text, re.MULTILINE) if match[1]}


def judge_upgrades(question: Question, installed: bool, apt: str) -> Finding:
    if not installed:
        return question.verdict("unattended-upgrades is not installed", [], shown=apt)
    listed = parse_blacklist(apt)
    wanted = guarded(question.ctx)
    missing = [name for name in wanted if name not in listed]
    text = f"{len(missing)} of {len(wanted)} guarded names are not blacklisted: "
    return question.verdict(
        f"all {len(wanted)} guarded names are blacklisted",
        [text + ", ".join(missing[:5])] if missing else [],
        shown=apt,
        remedy=f"run the deploy; if {UNATTENDED} is there, a later file of apt.conf.d clears it",
    )


def judge_needrestart(question: Question, installed: bool, lines: str) -> Finding:
    if not installed:
        return question.verdict("needrestart is not installed", [], shown=lines)
    # Perl files are read in order: the last assignment counts; without any it asks.
    modes = re.findall(r"\$nrconf\{restart\}\s*=\s*['\"]?(\w)", lines)
    mode = modes[-1] if modes else "i"
    return question.verdict(
        "needrestart only lists",
        [] if mode == "l" else [f"needrestart's mode is {mode!r}: it restarts or asks"],
        shown=lines,
        remedy="run the deploy; a later file in /etc/needrestart/conf.d sets another mode",
    )


CHECK = Upgrades()
