"""What is installed in the environment in use, against the lock."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rackpin import layout
from rackpin.checks import probe
from rackpin.checks.base import (
    NO_ANSWER,
    NOTHING,
    Command,
    Context,
    Output,
    Outputs,
    Question,
    unseen,
)
from rackpin.findings import Finding, Level

# The link, what it points to, and whether that environment is whole.
CURRENT = Command(
    "versions.current",
    f"""\
[ -L {layout.CURRENT} ] || {{ echo "no link"; exit 0; }}
readlink -f {layout.CURRENT}
[ -f {layout.CURRENT}/.complete ] && echo complete || echo incomplete
""",
)
INSTALLED = Command(
    "versions.installed", f"{layout.PYTHON} -I -", deadline_s=20, stdin=probe.source("versions")
)
REMEDY = "run the deploy for this node: it builds the environment of the lock and moves the link"


def env_dir(ctx: Context) -> str:
    return f"{layout.ENV_DIR}/{ctx.lock.env_name}"


class Versions:
    id = "versions"
    title = "Environment in use against the lock"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [CURRENT, INSTALLED] if uses_environment(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not uses_environment(ctx):
            return []
        found = [judge_current(ctx, outputs.get(CURRENT.name, NO_ANSWER))]
        return found + judge_installed(ctx, outputs.get(INSTALLED.name, NO_ANSWER))


def uses_environment(ctx: Context) -> bool:
    return ctx.node.in_ray or bool(ctx.fleet.instances_on(ctx.node))


def judge_current(ctx: Context, output: Output) -> Finding:
    """``versions.current``: the link leads to this lock's environment, and that is whole."""
    expected = f"{layout.CURRENT} → {env_dir(ctx)}, with .complete in it"
    question = Question(
        ctx, "versions.current", CURRENT, output, expected, f"lock {ctx.lock.stack}"
    )
    if why := unseen(CURRENT, output):
        return question.not_run(why)
    target, _, state = output.stdout.strip().partition("\n")
    faults = []
    if target == "no link":
        faults.append(f"there is no link {layout.CURRENT}")
    elif not target.startswith("/") or state not in ("complete", "incomplete"):
        return question.not_run("the answer is not a path and a state")
    else:
        if target != env_dir(ctx):
            used = target.rpartition("/")[2]
            faults.append(f"the environment in use is {used}, not {ctx.lock.env_name}")
        if state == "incomplete":
            faults.append(f"{target} was never finished: .complete is missing")
    return question.verdict(f"in use: {ctx.lock.env_name}", faults, remedy=REMEDY)


def parse_installed(text: str) -> tuple[str, dict[str, str]]:
    """Python version, and version by normalised name. ValueError for anything else."""
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("python"), str):
        raise ValueError("no object with python and dists")
    dists = data.get("dists")
    if not isinstance(dists, dict) or not dists:
        raise ValueError("no distribution is listed")
    return data["python"], {str(canonicalize_name(k)): str(v) for k, v in dists.items()}


def judge_installed(ctx: Context, output: Output) -> list[Finding]:
    """``versions.python`` and ``versions.wheels``, from one look by the stack's own Python."""
    locked = {str(canonicalize_name(name)): v for name, v in ctx.lock.dists.items()}
    source = f"lock {ctx.lock.stack}"
    wish = f"Python {ctx.lock.python}"
    python = Question(ctx, "versions.python", INSTALLED, output, wish, source)
    wish = f"exactly the {len(locked)} distributions of the lock"
    wheels = Question(ctx, "versions.wheels", INSTALLED, output, wish, source)
    why = unseen(INSTALLED, output)
    if why is None and not output.ok:
        why = f"the stack's Python could not list itself (exit status {output.rc})"
    if why is None:
        try:
            version, dists = parse_installed(output.stdout)
        except ValueError as error:
            why = f"the probe's answer is unreadable: {error}"
    if why is not None:
        return [question.not_run(why, remedy=REMEDY) for question in (python, wheels)]
    right = re.fullmatch(re.escape(ctx.lock.python) + r"(\.\d+)*", version)
    faults = [] if right else [f"Python {version}"]
    return [
        python.verdict(f"Python {version}", faults, shown=version, remedy=REMEDY),
        judge_wheels(wheels, locked, dists),
    ]


def judge_wheels(question: Question, locked: dict[str, str], dists: dict[str, str]) -> Finding:
    groups = {
        "missing": [f"{name} {v}" for name, v in locked.items() if name not in dists],
        "at another version": [
            f"{name} is {dists[name]}, locked {version}"
            for name, version in locked.items()
            if name in dists and not same_version(dists[name], version)
        ],
        "not in the lock": [f"{name} {v}" for name, v in dists.items() if name not in locked],
    }
    faults = [
        f"{len(items)} {what}: {', '.join(sorted(items)[:5])}{' …' if len(items) > 5 else ''}"
        for what, items in groups.items()
        if items
    ]
    lines = [f"{what}: {item}" for what, items in groups.items() for item in sorted(items)]
    return question.verdict(
        f"all {len(locked)} locked distributions, none other",
        faults,
        shown="\n".join(lines) or f"{len(dists)} distributions",
        remedy=f"{REMEDY}; nobody installs by hand into {layout.ENV_DIR}",
    )


def same_version(one: str, other: str) -> bool:
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


CHECK = Versions()
