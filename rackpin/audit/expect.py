"""Makes the expectation of a node or an image from stages, inventory and lock."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from rackpin import layout
from rackpin.apt import wanted
from rackpin.audit import locked
from rackpin.audit.expectation import (
    INTERFACE_MARK,
    Block,
    Directory,
    Environment,
    Expectation,
    File,
    PinnedModel,
)
from rackpin.audit.node.main import EXPECTED
from rackpin.audit.node.units import UNIT_DIR
from rackpin.desired import OWNED_MARK, Desired, OwnedFile, Target
from rackpin.stack.environment import env_path
from rackpin.stack.lock import Lock
from rackpin.stages.base import HOSTS_BEGIN, HOSTS_END, SWAP_MASK, hosts_file


def environment(lock: Lock, sealed: bool = True) -> Environment:
    return Environment(
        path=env_path(lock),
        current=layout.CURRENT,
        digest=lock.env_digest,
        python=lock.python,
        dists=dict(sorted(lock.dists.items())),
        sealed=sealed,
    )


def anywhere(target: Target) -> Target:
    """The node as it is known without it: nothing that it derives from its own hardware."""
    if target.interface == INTERFACE_MARK and target.fabric is None:
        return target
    return target.once(_anywhere)


def _anywhere(target: Target) -> Target:
    return dataclasses.replace(target, interface=INTERFACE_MARK, fabric=None)


def for_node(target: Target, without: str = "", more: Iterable[Desired] = ()) -> Expectation:
    """The expectation of a node, from all stages but ``without``, and ``more`` beside them."""
    from rackpin.stages import STAGES  # late: one of the stages asks for this

    known = anywhere(target)
    wishes = [known.once(stage) for name, stage in STAGES.items() if name != without]
    return from_wishes(known, [*wishes, *more])


def from_wishes(target: Target, wishes: list[Desired]) -> Expectation:
    """All stages' wishes of one node, joined with what the lock says."""
    fleet, node, lock = target.fleet, target.node, target.lock
    files = [file for wish in wishes for file in wish.files]
    folders = [folder for wish in wishes for folder in wish.directories]
    paths = [PurePosixPath(file.path) for file in files]
    packages = [name for wish in wishes for name in wish.packages]
    links = {SWAP_MASK: "/dev/null"} if any(SWAP_MASK in w.foreign for w in wishes) else {}
    pins = {pin.name: pin.version for pin in wanted.pins(target)}
    keys = [os.key for os in lock.os]
    closure = locked.debs_closure(lock)
    required = {
        key: {name: closure.get(key, {}).get(name) for name in packages} | of_lock
        for key, of_lock in locked.debs(lock, node.gpus > 0, nvswitch=node.nvswitch).items()
    }
    nccl = locked.nccl(lock)
    own = fleet.instances_on(node) if nccl and node.gpus else []
    return Expectation(
        kind="host",
        name=node.name,
        address=node.address,
        fleet=fleet.config.fleet,
        stack=lock.stack,
        lock=lock.digest,
        os=keys,
        environment=environment(lock),
        files=[expected_file(file) for file in files],
        directories=[Directory(**dataclasses.asdict(folder)) for folder in folders],
        links=links,
        blocks=[hosts_block(target)],
        models=pinned_models(target),
        unit_files=sorted(
            {path.name for path in paths if str(path.parent) == UNIT_DIR} | maybe_units(target)
        ),
        units=sorted({unit for wish in wishes for unit in wish.units}),
        debs=required,
        debs_known={key: {**closure.get(key, {}), **pins} for key in keys},
        family_known=[key for key in keys if locked.family_known(lock, required.get(key, {}), key)],
        holds={target.os_key: sorted(pins)},
        candidates={target.os_key: pins} if pins else {},
        driver=locked.driver(lock) if node.gpus else None,
        kernel=locked.kernel(lock) if node.gpus else None,
        nccl=nccl,
        engines=[layout.vllm_unit(i.name) for i in own],
    )


def pinned_models(target: Target) -> list[PinnedModel]:
    from rackpin.stages.serve import placed  # late, as above

    return [
        PinnedModel(path=model.path, digest=model.digest, files=list(model.rows))
        for model in placed(target)
    ]


def maybe_units(target: Target) -> set[str]:
    """Units that a node has or not by its hardware, which only the node's own survey tells."""
    from rackpin.stages import fabric  # late, as above

    return set(fabric.UNITS) if target.node.gpus else set()


def for_image(lock: Lock, name: str) -> Expectation:
    """The expectation of an image: the same environment, no unit, no driver."""
    required = locked.debs(lock, gpus=False, image=True)
    return Expectation(
        kind="image",
        name=name,
        stack=lock.stack,
        lock=lock.digest,
        os=[os.key for os in lock.os],
        environment=environment(lock, sealed=False),
        debs=required,
        debs_known={
            key: locked.in_image(closure) for key, closure in locked.debs_closure(lock).items()
        },
        family_known=[key for key in required if locked.family_known(lock, required[key], key)],
    )


def expected_file(file: OwnedFile) -> File:
    # The list itself names the mark, whatever the NIC is.
    moving = INTERFACE_MARK in file.content and file.path != EXPECTED
    if moving and file.secret:
        raise ValueError(f"{file.path}: a secret file must not depend on the NIC")
    return File(
        path=file.path,
        sha256="" if moving else file.sha256,
        content=file.content if moving else None,
        mode=file.mode,
        owner=file.owner,
        group=file.group,
        secret=file.secret,
    )


def hosts_block(target: Target) -> Block:
    lines = hosts_file("", target.fleet, target.node).splitlines()
    begin, end = lines.index(HOSTS_BEGIN), lines.index(HOSTS_END)
    return Block(path="/etc/hosts", begin=HOSTS_BEGIN, end=HOSTS_END, lines=lines[begin + 1 : end])


def owned_json(expectation: Expectation) -> str:
    """The text of the file on the node, with the mark that says whose it is."""
    first = f"{OWNED_MARK}: what rackpin-audit.timer compares this node with"
    body = expectation.model_dump_json(indent=1)
    return f'{{\n "_owned": "{first}",{body.removeprefix("{")}\n'


def with_records(expectation: Expectation, records: Mapping[str, str]) -> Expectation:
    """The same, with what the RECORDs of the locked wheels say."""
    env = expectation.environment.model_copy(update={"records": dict(records)})
    return expectation.model_copy(update={"environment": env})
