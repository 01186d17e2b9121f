"""apt takes what the pins say, from the repositories that the inventory names (F002, F011-F019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rackpin.apt import proof
from rackpin.apt.pins import FILE, conflicts
from rackpin.apt.scripts import look_script
from rackpin.apt.state import AptState, StateError, parse_state, state_script
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
from rackpin.desired import Target
from rackpin.findings import Finding, Level
from rackpin.parse.apt_sources import same_suite, same_uri
from rackpin.stages import apt as stage

LISTS = Command(
    "apt.lists",
    "apt-get indextargets --format '$(REPO_URI)|$(RELEASE)|$(FILENAME)' 'Created-By: Packages'",
    writes=True,
)
RUN = "run the deploy; it names what is wrong before it changes anything"


def state_command(target: Target) -> Command:
    return Command("apt.state", state_script(stage.names(target)), deadline_s=20, writes=True)


def look_command(target: Target) -> Command:
    text = look_script(stage.names(target), proof.draggers(target))
    return Command("apt.look", text, deadline_s=45, slow=True, writes=True)


class Apt:
    id = "apt"
    title = "Packages come from the pinned places, at the pinned versions"
    level: Level = "node"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        target = _target(ctx)
        asked = []
        if stage.repositories(target) or stage.pins(target):
            asked.append(state_command(target))
        if stage.repositories(target):
            asked.append(LISTS)
        if stage.pins(target):
            asked.append(look_command(target))
        return asked

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        target = _target(ctx)
        output = outputs.get("apt.state", NO_ANSWER)
        found = []
        if stage.repositories(target):
            found.append(judge_sources(ctx, output, outputs.get(LISTS.name, NO_ANSWER)))
        if stage.pins(target):
            found.append(judge_pins(ctx, output, outputs.get("apt.look", NO_ANSWER)))
        return found


def _target(ctx: Context) -> Target:
    return Target(ctx.fleet, ctx.node, ctx.lock)


def unquoted(output: Output) -> Output:
    """Without what was printed: a source file may hold the password of somebody's mirror."""
    return replace(output, stdout="")


def read_state(command: Command, output: Output) -> AptState | str:
    """The state, or why it can't be judged."""
    if why := unseen(command, output):
        return why
    try:
        return parse_state(output.stdout.splitlines())
    except StateError as error:
        return str(error)


def judge_sources(ctx: Context, output: Output, lists: Output) -> Finding:
    """``apt.sources``: source and key files as wished, nobody else's for the same repository."""
    target = _target(ctx)
    asked = state_command(target)
    expected = "each repository in one owned file, with its pinned key and its lists"
    source = "failures F018-F022"
    question = Question(ctx, "apt.sources", asked, unquoted(output), expected, source)
    state = read_state(asked, output)
    if isinstance(state, str):
        return question.not_run(state)
    if why := unseen(LISTS, lists) or (None if lists.ok else "apt-get indextargets failed"):
        return replace(question, output=unquoted(lists)).not_run(why)
    faults = [line.removeprefix("E: ") for line in state.errors]
    for file in stage.trusted_files(target):
        if file.path != FILE and state.files.get(file.path) != file.content:
            faults.append(f"{file.path} {'differs' if file.path in state.files else 'is missing'}")
    off, problems = stage.superseded(target, state)
    faults += [f"{one.place} names a repository of rackpin's too" for one in off]
    faults += [f"{problem.key} {problem.message}" for problem in problems]
    if state.proved != stage.digest(target):
        faults.append("these sources and pins were never proved on this node")
    rows = [line.split("|") for line in lists.stdout.splitlines() if line.count("|") == 2]
    # apt has no word at all for the suite "/"
    there = {(same_uri(uri), same_suite(suite or "/")): file for uri, suite, file in rows}
    shown = []  # not all of them: another repository's address may hold a password
    for one in stage.repositories(target):
        listed = there.get((same_uri(one.uri), same_suite(one.suite)), "")
        shown.append(f"{one.name}: {listed or 'no list'}")
        if not listed:
            faults.append(f"apt has no package list of {one.name} ({one.uri} {one.suite})")
    unsigned = [one.name for one in stage.repositories(target) if one.trusted]
    good = f"{len(stage.repositories(target))} repositories"
    good += f", without a key as the inventory says: {', '.join(unsigned)}" if unsigned else ""
    return question.verdict(good, faults, shown="\n".join(shown), remedy=RUN)


def judge_pins(ctx: Context, output: Output, look: Output) -> Finding:
    """``apt.pins``: candidate = pin, installed = pin, held, and no simulated command moves one."""
    target = _target(ctx)
    asked = look_command(target)
    expected = "candidate = pin, held; dist-upgrade and metapackages move none in simulation"
    source = "failures F001-F002, F011-F016"
    question = Question(ctx, "apt.pins", asked, look, expected, source)
    state = read_state(state_command(target), output)
    if isinstance(state, str):
        return replace(question, output=unquoted(output)).not_run(state)
    if why := unseen(asked, look):
        return question.not_run(why)
    faults = []
    wish = next(f for f in stage.trusted_files(target) if f.path == FILE)
    if state.preferences.get(FILE) != wish.content:
        faults.append(f"{FILE} {'differs' if FILE in state.preferences else 'is missing'}")
    pins = stage.pins(target)
    installed = [pin for pin in pins if pin.name in state.status]
    for pin in installed:
        there = state.status[pin.name]
        if there.version != pin.version:
            faults.append(f"{pin.name} is {there.version}, the pin {pin.version}")
        if not there.installed:
            faults.append(f"{pin.name} is {there.state}")
    faults += proof.look_faults(target, state, look.stdout if look.ok else "")
    return question.verdict(
        f"{len(pins)} pins, {len(installed)} of them installed and held",
        faults,
        conflicts(pins, state.site_pins),
        remedy=RUN if faults else "the site's own pins can stay; remove them to end this warning",
    )


CHECK = Apt()
