"""What the files in ``deploys/`` are written with: look at the whole fleet, then change a node.

The first deploy file of a run, on whichever host comes first, surveys all connected hosts,
checks them all, and refuses the run with every problem listed, before any of them is changed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.lock import RLock
from pyinfra import host
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import ctx_host

from rackpin import runlog
from rackpin.apt import wanted
from rackpin.bundle import remote
from rackpin.desired import Desired, Target
from rackpin.driver import preflight as driver_preflight
from rackpin.driver import want as driver
from rackpin.driver.state import DriverState
from rackpin.fabric.fleet import uneven
from rackpin.fabric.select import Choice, choose
from rackpin.facts import ABSENT, NodeSurvey, Packages, Paths, Survey
from rackpin.facts_apt import Apt
from rackpin.facts_driver import Gpu
from rackpin.facts_fabric import FabricFact
from rackpin.facts_models import ModelFact
from rackpin.inventory_problems import FLEET, Problem, render
from rackpin.operations import after_change, owned_directory, owned_file
from rackpin.preflight import check_node, model_problems
from rackpin.requests import requests
from rackpin.requests import survey as survey_given
from rackpin.stack import wheelhouse
from rackpin.stages import STAGES, apt
from rackpin.stages.python import complete_mark
from rackpin.stages.serve import placed

# What a changed file asks for, in this order, once per stage.
TRIGGERS = {
    "daemon-reexec": "systemctl daemon-reexec",
    "daemon-reload": "systemctl daemon-reload",
    "sysctl": "sysctl -q -p /etc/sysctl.d/90-rackpin.conf",
    "tmpfiles": "systemd-tmpfiles --create /etc/tmpfiles.d/90-rackpin.conf",
    "journald": "systemctl try-restart systemd-journald",
    "chrony": "systemctl try-restart chrony",
    "ldconfig": "ldconfig",
    "update-grub": "update-grub",
    # A host without any kernel of its own gets its first with the driver.
    "initramfs": "if command -v update-initramfs >/dev/null; then update-initramfs -u -k all; fi",
}


class PreflightError(PyinfraError):
    """Something on some node is wrong, and nothing was changed anywhere."""

    def __init__(self, problems: list[Problem], nodes: list[str]) -> None:
        self.problems = problems
        text = render(problems, "the fleet as it was found", nodes)
        super().__init__(f"{text}\n\n  (a node can be left out with --exclude NODE)")


@dataclass(frozen=True)
class Here:
    """The node a deploy file is working on."""

    run: runlog.RunLog
    target: Target
    survey: NodeSurvey

    def wish(self, stage: str) -> Desired:
        return self.target.once(STAGES[stage])


_lock = RLock()


def here(refuse: bool = True) -> Here:
    """Inventory, lock and survey of this node; the first call checks the whole fleet.

    ``refuse=False`` is for stages that change nothing: problems are left to their checks.
    """
    run = runlog.begin(host.state)
    with _lock:
        if run.refused is not None:
            raise run.refused  # the hosts that waited must not ask the whole fleet again
        if run.surveys is None:
            try:
                run.surveys = survey_fleet(run, refuse)
            except PreflightError as error:
                run.refused = error
                raise
    survey: NodeSurvey = run.surveys[host.name]
    interface = survey.addresses.get(run.fleet.nodes[host.name].address, "")
    fabric = host.get_fact(FabricFact)
    target = run.targets[host.name]
    if (target.interface, target.fabric) != (interface, fabric):
        target = run.targets[host.name] = target.seen(interface, fabric)
    return Here(run, target, survey)


def survey_fleet(run: runlog.RunLog, refuse: bool) -> dict[str, NodeSurvey]:
    """Survey all connected hosts in parallel; raise :class:`PreflightError` with all problems."""
    problems = source_problems(run)
    hosts = sorted(run.state.inventory.get_active_hosts(), key=lambda h: h.name)
    surveys: dict[str, NodeSurvey] = {}
    rails: dict[str, Choice] = {}

    def look(target_host: Any) -> list[Problem]:
        with ctx_host.use(target_host):
            try:
                return survey_host(run, target_host, surveys, rails)
            except Exception as error:  # one node's odd answer must not hide the others' problems
                what = f"{type(error).__name__}: {error}"
                return [Problem(target_host.name, "survey", what, "see the node's log and network")]

    for job in gevent.joinall([gevent.spawn(look, h) for h in hosts], raise_error=True):
        problems += job.value
    run.notes += uneven(rails)
    if problems and (refuse or len(surveys) < len(hosts)):
        raise PreflightError(problems, list(run.fleet.nodes))
    return surveys


def source_problems(run: runlog.RunLog) -> list[Problem]:
    """Whether what nodes will fetch is where they fetch it."""
    if bundle := run.fleet.config.bundle:
        return [
            Problem(FLEET, "bundle", text, "nodes have no other way out")
            for text in remote.problems(bundle.url, run.lock)
        ]
    remedy = f"run: rackpin wheelhouse build {run.lock.stack}"
    return [Problem(FLEET, "wheelhouse", str(text), remedy) for text in wheelhouse.verify(run.lock)]


def survey_host(
    run: runlog.RunLog,
    target_host: Any,
    surveys: dict[str, NodeSurvey],
    rails: dict[str, Choice],
) -> list[Problem]:
    """Everything wrong with one node; what it is goes into ``surveys`` and ``rails``."""
    node = run.fleet.nodes[target_host.name]
    target = run.targets[node.name] = Target(run.fleet, node, run.lock)
    asked = time.time()
    target_host.connector.survey(requests(target))
    answered = time.time()
    survey = target_host.get_fact(Survey, **survey_given(target))
    if survey is None:
        return [Problem(node.name, "survey", "no answer that can be read", "see the output above")]
    surveys[node.name] = survey
    stage = target.once(STAGES["python"])
    paths = target_host.get_fact(Paths, paths=stage.paths)
    problems = check_node(
        run.fleet,
        node,
        run.lock,
        survey,
        environment_exists=paths.get(complete_mark(run.lock), ABSENT).kind == "file",
        clock=(asked, answered),
    )
    problems += [
        Problem(node.name, "apt", text, "without it the node can't tell whose packages these are")
        for text in wanted.missing_keys(target)
    ]
    if why := wanted.unpinned(target):
        run.notes.append(f"{node.name}: its packages have no pins: {why}")
    found = target_host.get_fact(FabricFact)
    if found is not None and found.gpus:
        rails[node.name] = choose(found)
    if found is None:
        problems.append(Problem(node.name, "fabric", "its /sys could not be read", "see its log"))
    problems += driver_problems(target, target_host)
    for model in placed(target):
        problems += model_problems(
            node.name, model, target_host.get_fact(ModelFact, path=model.path)
        )
    state = target_host.get_fact(Apt, names=apt.names(target))
    return [*problems, *(apt.superseded(target, state)[1] if state else ())]


def driver_problems(target: Target, target_host: Any) -> list[Problem]:
    """What is wrong for the driver stage; nothing for a node that has no driver to get."""
    want = driver.want(target)
    if want is None:
        return []
    state = target_host.get_fact(Gpu)
    if not isinstance(state, DriverState):
        what = f"could not be looked at: {state or 'no answer'}"
        return [Problem(target.node.name, "driver", what, "install or mend what failed")]
    pins = driver.versions(target)
    names = target.once(STAGES["driver"]).packages
    return driver_preflight.problems(
        target.node.name,
        want,
        state,
        installed=target_host.get_fact(Packages, names=names),
        wished={name: pins.get(name) for name in names},
        fabric={name: pins.get(name) for name in driver.fabric_packages(target)},
    )


def apply_files(stage: str, wish: Desired) -> None:
    """Directories and owned files of a stage, then what their changes ask for."""
    for directory in wish.directories:
        owned_directory(
            name=f"{stage}: directory {directory.path}", directory=directory, stage=wish
        )
    for file in wish.files:
        owned_file(name=f"{stage}: file {file.path}", file=file, stage=wish)
    for trigger, command in TRIGGERS.items():
        if trigger in wish.triggers:
            after_change(name=f"{stage}: {trigger}", trigger=trigger, command=command, stage=wish)
