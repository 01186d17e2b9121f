"""The units that should serve here: active, enabled, ours, and not overridden by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from rackpin.checks import unitinfo
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
from rackpin.checks.unitinfo import Expected
from rackpin.findings import Finding, Level

# No failed unit is an empty list: the mark tells it from no answer.
FAILED = Command(
    "units.failed",
    "systemctl list-units --failed --plain --no-legend --no-pager && echo '## end'",
)
# A drop-in with one of these changes what we judge or start; others are only worth a look.
_STRONG = re.compile(
    r"^\s*(Exec\w+|Environment\w*|Limit\w+|TasksMax|KillMode|User|Group|Memory\w+|CPU\w+|Allowed\w+"
    r"|Restart\w*|Timeout\w+|StartLimit\w+|Type|OOM\w+|PrivateDevices|Device\w+)\s*=",
    re.MULTILINE,
)
_VENDOR = ("/usr/lib/", "/lib/")  # the OS's own, for all services of a type
_PLACE = PurePosixPath("/etc/systemd/system")
RESTARTS_WARN = 3


class Units:
    id = "units"
    title = "Units that should serve are active, enabled and unchanged"
    level: Level = "quick"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        show = unitinfo.show_command(ctx)
        return [FAILED] if show is None else [show, drop_ins(ctx), journal(ctx), FAILED]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        found = [judge_unit(ctx, unit, outputs) for unit in unitinfo.expected_units(ctx)]
        return [*found, judge_failed(ctx, outputs.get(FAILED.name, NO_ANSWER))]


def _names(ctx: Context) -> str:
    return " ".join(expected.unit for expected in unitinfo.expected_units(ctx))


def drop_ins(ctx: Context) -> Command:
    shell = (
        f"for f in $(systemctl show -p DropInPaths --value -- {_names(ctx)}); do "
        'echo "## $f"; cat -- "$f"; done'
    )
    return Command("units.dropins", shell)


def journal(ctx: Context) -> Command:
    """The last words of those that are not active, after the errors before them.

    An engine that dies says why in one line, and then prints pages of what followed from it.
    """
    shell = (
        f'for u in {_names(ctx)}; do systemctl is-active -q -- "$u" || {{ echo "## $u"; '
        'journalctl -u "$u" -n 600 --no-pager -o cat | '
        "grep -E '^[^#]*[A-Za-z]*(Error|Exception|FATAL)[:(]' | tail -n 8; "
        'echo ...; journalctl -u "$u" -n 24 --no-pager -o cat; }; done'
    )
    return Command("units.journal", shell)


def judge_unit(ctx: Context, expected: Expected, outputs: Outputs) -> Finding:
    """``units.ray-head``, ``units.vllm@NAME``: everything wrong with it in one finding."""
    asked = unitinfo.show_command(ctx) or FAILED
    output = outputs.get(asked.name, NO_ANSWER)
    question = Question(
        ctx,
        f"units.{expected.short}",
        asked,
        output,
        f"active, enabled, its file in {_PLACE}, no foreign drop-in, no reload pending",
        "design: rackpin owns whole unit files",
    )
    if why := unseen(asked, output):
        return question.not_run(why)
    unit = unitinfo.parse_show(output.stdout).get(expected.unit)
    if unit is None or not {"ActiveState", "LoadState"} <= unit.keys():
        return question.not_run(f"systemctl says nothing of {expected.unit}")
    shown = "\n".join(f"{key}={value}" for key, value in unit.items())
    if unit["LoadState"] == "not-found":
        return question.verdict(
            "", [f"{expected.unit} is not installed"], shown=shown, remedy="run the deploy"
        )
    faults, remedies = state_faults(expected, unit)
    worries: list[str] = []
    for path, strong in foreign_drop_ins(unit, outputs.get("units.dropins", NO_ANSWER).stdout):
        text = f"drop-in {path} is not rackpin's"
        (faults if strong else worries).append(f"{text} and sets {strong}" if strong else text)
        remedies.append(f"move what {path} sets into the inventory, remove it, daemon-reload")
    restarts = int(unit["NRestarts"]) if unit.get("NRestarts", "").isdigit() else 0
    if restarts >= RESTARTS_WARN:
        worries.append(f"systemd restarted it {restarts} times")
        remedies.append(f"journalctl -u {expected.unit}: why it ended")
    if unit["ActiveState"] != "active":
        log = sections(outputs.get("units.journal", NO_ANSWER).stdout).get(expected.unit, "")
        shown = f"{log.strip() or '(no log lines)'}\n\n{shown}"
    return question.verdict(
        f"active since {unit.get('ActiveEnterTimestamp') or '?'}, {restarts} restarts",
        faults,
        worries,
        shown=shown,
        remedy="; ".join(dict.fromkeys(remedies)),
        metrics={"restarts_count": float(restarts)},
    )


def state_faults(expected: Expected, unit: dict[str, str]) -> tuple[list[str], list[str]]:
    """Faults and remedies that the properties of ``systemctl show`` give."""
    name, state = expected.unit, unit["ActiveState"]
    found: list[tuple[str, str]] = []
    if state == "activating":
        text = f"still starting ({unit.get('SubState', '?')})"
        found.append((text, f"wait and verify again; journalctl -fu {name} shows what it does"))
    elif state != "active":
        text = f"{state} ({unit.get('Result', '?')}, exit {unit.get('ExecMainStatus', '?')})"
        remedy = f"read its last lines, correct the cause, systemctl restart {name}"
        found.append((f"is {text}, not active", remedy))
    if unit.get("UnitFileState") != "enabled":
        text = f"is {unit.get('UnitFileState') or 'not enabled'}: a reboot won't bring it back"
        found.append((text, f"systemctl enable {name}, or run the deploy"))
    if unit.get("NeedDaemonReload") != "no":
        text = "its file changed since systemd read it (NeedDaemonReload)"
        found.append((text, "run the deploy, which reloads systemd, and restart it in a wave"))
    if unit.get("KillMode") not in ("control-group", "mixed"):
        text = f"KillMode={unit.get('KillMode')} would leave workers behind at a stop"
        found.append((text, f"KillMode=control-group in {name}"))
    fragment = unit.get("FragmentPath", "")
    if PurePosixPath(fragment).parent != _PLACE:
        text = f"its file is {fragment or 'nowhere'}"
        found.append((text, "remove that file and run the deploy"))
    if expected.instance is not None:
        limit = unitinfo.timespan(unit.get("TimeoutStartUSec", ""))
        wish = expected.instance.start_timeout_s
        if limit is None or limit < wish:
            text = f"start limit {unit.get('TimeoutStartUSec') or '?'} is under {wish} s"
            found.append((text, "run the deploy: a large model loads longer than the default"))
    return [text for text, _ in found], [remedy for _, remedy in found]


def foreign_drop_ins(unit: dict[str, str], contents: str) -> list[tuple[str, str]]:
    """Drop-ins that are not ours: (path, the judged settings in it, joined)."""
    texts = sections(contents)
    found = []
    for path in unit.get("DropInPaths", "").split():
        if path.startswith(_VENDOR) or "rackpin" in PurePosixPath(path).name:
            continue
        # One that couldn't be read may set anything.
        strong = sorted(set(_STRONG.findall(texts[path]))) if path in texts else ["(unreadable)"]
        found.append((path, ", ".join(strong)))
    return found


def judge_failed(ctx: Context, output: Output) -> Finding:
    """``units.others``: units outside of the stack that failed; a hint, no more."""
    question = Question(
        ctx, "units.others", FAILED, output, "no failed unit besides ours", "systemd"
    )
    why = unseen(FAILED, output)
    if why is None and not output.ok:
        why = f"systemctl failed with exit status {output.rc}: {one_line(output.stderr)}"
    listed, end, _ = output.stdout.partition("## end")
    names, odd = parse_failed(listed)
    if why is None and not end:
        why = "the answer is not whole"
    if why is None and odd:
        why = f"a line that is no unit: {one_line(odd[0], 120)}"
    if why is not None:
        return question.not_run(why)
    ours = {expected.unit for expected in unitinfo.expected_units(ctx)}
    return question.verdict(
        "no other unit failed",
        [],
        [f"{name} failed" for name in names if name not in ours],
        remedy="systemctl status UNIT; systemctl reset-failed UNIT once it is understood",
    )


def parse_failed(text: str) -> tuple[list[str], list[str]]:
    """Unit names, and lines that aren't ``UNIT LOAD ACTIVE SUB DESCRIPTION``."""
    names, odd = [], []
    for line in text.splitlines():
        words = line.replace("●", " ").split()
        if len(words) >= 4 and "." in words[0] and words[2] == "failed":
            names.append(words[0])
        elif words:
            odd.append(line)
    return names, odd


CHECK = Units()
