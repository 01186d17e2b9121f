"""From lab/hardware/NAME.yaml and a node's name to a :class:`Node`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml
from pydantic import ValidationError

from rackpin.lab.errors import LabError
from rackpin.lab.hardware import drivers, faults, identity
from rackpin.lab.hardware.model import Gpu, Nic, Node, Preset, Slot

DIRECTORY = Path(__file__).resolve().parents[3] / "lab" / "hardware"


def names(directory: Path = DIRECTORY) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.yaml"))


@cache
def preset(name: str, directory: Path = DIRECTORY) -> Preset:
    """Read one preset; LabError when there is none of that name or it says something wrong."""
    if name not in names(directory):
        raise LabError(drivers.unknown("hardware", name, names(directory)))
    file = directory / f"{name}.yaml"
    try:
        found = Preset.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise LabError(f"{file}: not YAML: {error}") from error
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()]
        raise LabError(f"{file}:", *wrong) from error
    if found.name != name:
        raise LabError(f"{file}: name is {found.name!r}; make it {name!r}, as the file is called")
    return found


def healthy(kind: Preset, name: str) -> Node:
    """The node as it leaves the factory, driver installed."""
    switched = kind.nvlink is not None and kind.nvlink.switched
    return Node(
        name=name,
        preset=kind,
        driver=kind.driver,
        cuda=drivers.cuda(kind.driver),
        library=None,
        gpus=[gpu(kind, name, minor, slot) for minor, slot in enumerate(kind.slots)],
        nics=[_nic(name, one) for one in kind.nics],
        fabric="running" if switched else "none",
        fabric_version=kind.driver if switched else None,
    )


def gpu(kind: Preset, name: str, minor: int, slot: Slot, board: str = "first") -> Gpu:
    """The card in a slot; another ``board`` is another card of the same kind."""
    words = (name, minor, board)
    return Gpu(
        slot=slot,
        minor=minor,
        uuid=identity.gpu_uuid(*words),
        serial=identity.serial(*words),
        fabric_id=identity.uuid("fabric", *words),
        vbios=kind.card.vbios,
        width=kind.card.pcie.width,
        ecc=kind.card.ecc,
    )


def _nic(name: str, one: Nic) -> Nic:
    lid = identity.number(4000, name, one.device) + 2 if one.link_layer == "InfiniBand" else 0
    return one.model_copy(update={"guid": identity.guid(name, one.device), "lid": lid})


def node(name: str, hardware: str, wished: Sequence[str] = (), directory: Path = DIRECTORY) -> Node:
    """A node with a preset's hardware and faults (``NAME`` or ``NAME=WHERE``).

    ``wished`` comes on top of the preset's own. LabError lists all faults that can't be had.
    """
    kind = preset(hardware, directory)
    return faults.apply(healthy(kind, name), [*kind.faults, *wished])
