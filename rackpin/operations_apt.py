"""The apt stage's operations.

Proofs look from inside their generator, as verify does: they renew apt's lists and change
nothing else, so they yield a command only to fail their node.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from rackpin import deadlines, layout
from rackpin.apt import proof, scripts
from rackpin.apt.state import AptState
from rackpin.desired import Target
from rackpin.isolated import operation, refuse
from rackpin.operations import feed
from rackpin.parse import apt_preferences as preferences
from rackpin.parse.apt_preferences import Pin
from rackpin.parse.apt_sources import Source, without
from rackpin.runlog import RunLog
from rackpin.stages import apt as stage
from rackpin.stages.apt import Plan


def stop(run: RunLog, when: str, faults: list[str]) -> StringCommand:
    """Fail this node, and let the report say why."""
    text = f"{when}: {'; '.join(faults)}"
    run.nodes[host.name].error = text
    return refuse(text)


@operation()
def prove_before(run: RunLog, target: Target, state: AptState, plan: Plan) -> Iterator[Any]:
    """
    Try the new sources, keys and pins beside the real ones; refuse before any change.

    + run: the log of this run
    + target: the node, its fleet and lock
    + state: apt as the survey found it
    + plan: what is to be done
    """
    if not plan.prove:
        host.noop("sources, keys and pins are as proved before")
    elif host.state.is_executing:
        text = tried(target, state, plan, {})
        # What breaks a pin is switched off, and nothing else of the site's.
        if off := proof.trial_breaking(target, state, text):
            texts = without_pins(state, off)
            text = tried(target, state, plan, texts)
            run.overruled[host.name] = texts
            run.notes += [f"{host.name}: {one.place} breaks a pin: switched off" for one in off]
        if faults := proof.trial_faults(target, state, text):
            yield stop(run, "nothing was changed", faults)


def tried(target: Target, state: AptState, plan: Plan, more: dict[str, str]) -> str:
    """What a node says to its new sources, keys and pins; ``more``: further changed files."""
    files = {file.path: file.content for file in stage.trusted_files(target)}
    script = scripts.trial_script(
        {**changed_sources(state, plan), **more, **files},
        plan.remove,
        stage.names(target),
        [repository.uri for repository in stage.repositories(target)],
        stage.proxies(target),
        stage.only(target),
        sorted(stage.hashes(target)),
    )
    return feed(script, deadlines.APT_S, "apt")


def without_pins(state: AptState, off: list[Pin]) -> dict[str, str]:
    """Other people's preference files with these stanzas switched off; text by path."""
    why = "switched off by rackpin: it breaks a pin of 00-rackpin.pref"
    texts = state.preferences
    return {
        path: preferences.without(texts[path], [pin for pin in off if pin.file == path], why)
        for path in dict.fromkeys(pin.file for pin in off)
    }


def rewritten(path: str, text: str) -> StringCommand:
    """Replace a file of somebody else's in one step; the file as it was is kept."""
    old, new = shlex.quote(path), shlex.quote(f"{path}.rackpin-new")
    backup = shlex.quote(f"{layout.BACKUPS}{path}")
    return StringCommand(
        f"set -e; umask 077; mkdir -p $(dirname {backup}); "
        f"cp -a --backup=numbered {old} {backup}; "
        f"cp -a {old} {new}; cat >{new}; sync {new}; mv -f {new} {old}",
        _stdin=text,
    )


def changed_sources(state: AptState, plan: Plan) -> dict[str, str]:
    """Other people's source files with what is ours now switched off; text by path."""
    texts = {}
    for path, entries in groupby(plan.disable, lambda source: source.file):
        text = state.sources[path]
        last_first: list[Source] = sorted(entries, key=lambda source: -source.first)
        for source in last_first:
            text = without(text, source, "switched off by rackpin, which has this repository now:")
        texts[path] = text
    return texts


@operation()
def switch_off(state: AptState, plan: Plan) -> Iterator[Any]:
    """
    Switch off others' entries for repositories that are ours now; the file as it was is kept.

    + state: apt as the survey found it
    + plan: what is to be done
    """
    for path, text in changed_sources(state, plan).items():
        yield rewritten(path, text)
    if not plan.disable:
        host.noop("no other source file names a repository of ours")


@operation()
def overrule(run: RunLog) -> Iterator[Any]:
    """
    Switch off others' stanzas that the proof showed to break a pin; the file as it was is kept.

    + run: the log of this run, in which the proof left the new texts
    """
    texts = run.overruled.get(host.name, {}) if host.state.is_executing else {}
    for path, text in texts.items():
        yield rewritten(path, text)
    if not texts:
        host.noop("no stanza of the site's breaks a pin")


@operation()
def remove_own(plan: Plan) -> Iterator[Any]:
    """
    Remove rackpin's own source, key and pin files that nothing wishes any more.

    + plan: what is to be done
    """
    if not plan.remove:
        host.noop("no file of an earlier wish is left")
        return
    yield "rm -f -- " + " ".join(map(shlex.quote, plan.remove))


@operation()
def repair_dpkg(broken: bool) -> Iterator[Any]:
    """
    Finish what an interrupted dpkg has left; removes no package.

    + broken: the survey found dpkg interrupted or half configured
    """
    if not broken:
        host.noop("dpkg is whole")
        return
    yield StringCommand("sh", "-s", _stdin=scripts.repair_script(), _timeout=deadlines.APT_S)


@operation()
def hold(state: AptState, plan: Plan) -> Iterator[Any]:
    """
    Hold every installed pinned package; release what was held for earlier pins only.

    + state: apt as the survey found it
    + plan: what is to be done
    """
    if not (plan.hold or plan.release):
        host.noop("every installed pinned package is held")
        return
    held = sorted({*state.held, *plan.hold} - set(plan.release))
    release = [name for name in plan.release if name in state.status and state.status[name].held]
    script = scripts.holds_script(plan.hold, release, held)
    yield StringCommand("sh", "-s", _stdin=script, _timeout=deadlines.APT_S)


@operation()
def prove_after(run: RunLog, target: Target, state: AptState, plan: Plan) -> Iterator[Any]:
    """
    Prove that the pins in place do what they should; then write down what was proved.

    + run: the log of this run
    + target: the node, its fleet and lock
    + state: apt as the survey found it
    + plan: what was to be done
    """
    if not (plan.prove or plan.hold):
        host.noop("the pins' effect was proved before")
        return
    names = stage.names(target)
    if host.state.is_executing and names:
        look = scripts.look_script(names, proof.draggers(target))
        text = feed(look, deadlines.APT_S, "apt")
        if faults := proof.look_faults(target, state, text):
            yield stop(run, "the pins are in place without their effect", faults)
            return
    if plan.prove:
        yield f"mkdir -p -m 755 {layout.APT} && echo {stage.digest(target)} >{layout.APT_PROVED}"
