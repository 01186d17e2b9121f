"""Kernel settings that are live, against the table, the inventory and the owned file (F152)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

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
from rackpin.findings import Finding, Level, Outcome
from rackpin.stages.base import sysctl_settings

OWNED = "/etc/sysctl.d/90-rackpin.conf"
# Earlier directories win for one file name; /etc/sysctl.conf is read last by `sysctl --system`.
_DIRS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
_RANGES = "net.ipv4.ip_local_reserved_ports"  # the kernel prints 1,2,3 as 1-3


def settings(ctx: Context) -> tuple[dict[str, str], dict[str, str]]:
    """Wished value by key, and the same of the keys that the inventory says can't be set."""
    wish: dict[str, str] = {}
    skip: dict[str, str] = {}
    for item in sysctl_settings(ctx.fleet):
        (skip if item["skipped"] else wish)[item["key"]] = normal(item["key"], str(item["value"]))
    return wish, skip


def command(ctx: Context) -> Command:
    """Live values from /proc/sys (no tool needed), the owned file, every other file's lines."""
    wish, skip = settings(ctx)
    globs = " ".join(f"{directory}/*.conf" for directory in _DIRS)
    shell = f"""\
echo '## live'
cd /proc/sys && grep -sH '' {" ".join(key.replace(".", "/") for key in [*wish, *skip])} |
  sed 's/:/ = /'
echo '## owned'; cat {OWNED} 2>&1
echo '## files'; grep -sHE '^[[:space:]]*-?[a-z][^#;]*=' {globs} /etc/sysctl.conf
echo '## end'
"""
    return Command("sysctl", shell)


class Sysctl:
    id = "sysctl.live"
    title = "Kernel settings in effect"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command(ctx)]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        asked, output = command(ctx), outputs.get("sysctl", NO_ANSWER)
        wish, skip = settings(ctx)
        source = "rackpin/data/sysctl.yaml; inventory: sysctl"
        question = Question(ctx, self.id, asked, output, f"{len(wish)} settings as wished", source)
        parts = sections(output.stdout)
        why = unseen(asked, output)
        if why is None and not {"live", "owned", "files", "end"} <= parts.keys():
            why = "the answer is not whole"
        if why is None and not parse_lines(parts["live"]):
            why = "nothing in /proc/sys could be read"
        if why is not None:
            return [question.not_run(why)]
        live = parse_lines(parts["live"])
        found = [judge_live(question, wish, live, parts["owned"], parts["files"])]
        return found + (
            [judge_skipped(replace(question, check="sysctl.skipped"), live, skip)] if skip else []
        )


def normal(key: str, value: str) -> str:
    """A value in the form that compares: one space between words, lists of ports spelled out."""
    if key != _RANGES:
        return " ".join(value.split())
    ports: set[int] = set()
    for part in value.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            ports.update(range(int(first), min(int(last or first), 65535) + 1))
    return ",".join(map(str, sorted(ports)))


def parse_lines(text: str) -> dict[str, str]:
    """``key = value`` lines of sysctl or of its files, both in the form that compares."""
    found = {}
    for line in text.splitlines():
        line = line.strip()
        if not line or line[0] in "#;" or "=" not in line:
            continue
        key, value = line.split("=", 1)
        # A leading "-" means "ignore errors"; net/ipv4/x is net.ipv4.x.
        key = key.strip().lstrip("-").strip().replace("/", ".")
        found[key] = normal(key, value)
    return found


def later_files(text: str, wish: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Lines of files that are read after ours and set a key of ours otherwise: path, key, value.

    ``text`` is what ``grep -H`` prints: ``PATH:key = value``.
    """
    lines: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        path, colon, setting = line.partition(":")
        if colon and path.startswith("/"):
            lines.setdefault(path, {}).update(parse_lines(setting))
    found = []
    for path in sorted(lines):
        name = PurePosixPath(path).name
        rank = [f"{directory}/{name}" for directory in _DIRS]
        shadowed = path in rank and any(better in lines for better in rank[: rank.index(path)])
        later = path == "/etc/sysctl.conf" or name > PurePosixPath(OWNED).name
        if later and not shadowed:
            found += [
                (path, key, value)
                for key, value in lines[path].items()
                if key in wish and value != wish[key]
            ]
    return found


def judge_live(
    question: Question, wish: dict[str, str], live: dict[str, str], owned: str, files: str
) -> Finding:
    """``sysctl.live``: fail for a live value that differs, warn for a file that will win later."""
    own, rivals = parse_lines(owned), later_files(files, wish)
    faults, worries, shown = [], [], []
    for key, value in wish.items():
        has = live.get(key, "not readable")
        by = next((path for path, other, _ in reversed(rivals) if other == key), "")
        shown.append(f"{key} = {has}, wished {value}")
        if has != value:
            faults.append(f"{key} is {has}, not {value}" + (f" (set by {by})" if by else ""))
        elif by:
            worries.append(f"{by} will set {key} otherwise at the next boot")
    lacking = [key for key, value in wish.items() if own.get(key) != value]
    if lacking:
        worries.append(f"{OWNED} lacks {', '.join(lacking[:3])}{' …' if len(lacking) > 3 else ''}")
    shown += [f"{path}: {key} = {value}" for path, key, value in rivals]
    remedy = f"sysctl -p {OWNED}, or run the deploy. A host that can't set a key: sysctl_skip"
    if rivals:
        remedy = f"remove the line from {rivals[0][0]} (it is read after {OWNED}); then {remedy}"
    good = f"all {len(wish)} settings are live"
    return question.verdict(good, faults, worries, shown="\n".join(shown), remedy=remedy)


def judge_skipped(question: Question, live: Mapping[str, str], skip: Mapping[str, str]) -> Finding:
    """``sysctl.skipped``: what this fleet said it can't set, with what it has."""
    lines = [f"{k} = {live.get(k, 'not readable')}, wished {v}" for k, v in skip.items()]
    differ = sum(live.get(key) != value for key, value in skip.items())
    question = replace(
        question, expected="every setting as wished", source="inventory: sysctl_skip"
    )
    return question.answer(
        Outcome.NOT_RUN,
        f"not checked: sysctl_skip of the inventory leaves out {len(skip)} settings, "
        f"{differ} of them differ",
        shown="\n".join(lines),
        remedy="set these on the host's own kernel if they matter, and take them off sysctl_skip",
        required=False,
    )


CHECK = Sysctl()
