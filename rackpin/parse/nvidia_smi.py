"""All forms of nvidia-smi's output that say what GPUs and what driver a host has."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackpin.parse import nvidia_smi_query as query
from rackpin.parse import nvidia_smi_xml as xml
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nvidia_smi_csv import read_csv
from rackpin.parse.nvidia_smi_errors import Failure, failures, library_version, worst
from rackpin.parse.nvidia_smi_list import MigInstance, devices, kernel_module, versions
from rackpin.parse.nvidia_smi_model import Gpu, error_class
from rackpin.parse.nvidia_smi_table import MigDevice, Process, tables
from rackpin.parse.text import ends_whole, lines, missing_tool

VERSION, KERNEL = "--version", "/proc/driver/nvidia/version"


@dataclass(frozen=True)
class Smi:
    """``form`` is ``table``, ``query``, ``csv``, ``list``, ``xml``, ``error``, ``--version`` or
    ``/proc/driver/nvidia/version``; ``error`` the class of what went wrong, ``errors`` the words.

    ``attached`` is the GPU count that ``-q`` says itself; ``complete`` is None when the form
    doesn't tell whether something is missing; ``mig`` is True when any GPU has it enabled.
    """

    form: str
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    mig: bool | None = None
    attached: int | None = None
    complete: bool | None = None
    error: str | None = None
    errors: tuple[str, ...] = ()
    failed_gpus: tuple[str, ...] = ()  # bus ids of GPUs that couldn't be asked
    mig_devices: tuple[MigDevice | MigInstance, ...] = ()
    processes: tuple[Process, ...] | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    same_width: bool | None = None
    nvml: str | None = None
    flavour: str | None = None  # of the kernel module: open, proprietary
    notes: tuple[str, ...] = field(default=())


def read(text: str) -> Smi:
    """Read one output. Raises NotThisKind for a text that none of the forms is in."""
    found = lines(text)
    whole = ends_whole(found)
    said = failures(found)
    readers: tuple[Callable[[], Smi | None], ...] = (
        lambda: _logs("xml", xml.logs("\n".join(found))) if xml.is_xml(text) else None,
        lambda: _logs("query", query.logs(found, whole)),
        lambda: _table(found),
        lambda: _version(found, whole),
        lambda: _list(found, whole),
        lambda: _csv(_unfailed(found, said), whole),
    )
    for reader in readers:
        if reading := reader():
            return _with_failures(reading, said, found)
    if said:
        return _with_failures(Smi("error"), said, found)
    if absent := missing_tool(found, "nvidia-smi"):
        return Smi("error", error="other", errors=(absent,))
    raise NotThisKind("none of nvidia-smi's forms: no table, no -q log, no CSV header, no GPU line")


def _with_failures(smi: Smi, said: Sequence[Failure], found: Sequence[str]) -> Smi:
    cells = [text for one in smi.gpus for text in one.fields.values()]
    errors = tuple(failure.text for failure in said)
    for one in smi.gpus:
        who = one.index if one.index is not None else one.bus_id or one.uuid
        errors += tuple(f"GPU {who}: {name} is {one.fields[name]}" for name in one.bad)
    error = worst(said) or error_class(cells) or smi.error
    buses = dict.fromkeys(failure.bus_id for failure in said if failure.bus_id)
    flags = {one.mig for one in smi.gpus} - {None}
    return replace(
        smi,
        error=error,
        errors=(*errors, *(text for text in smi.errors if text not in errors)),
        failed_gpus=tuple(bus for bus in buses if bus),
        complete=False if said and smi.gpus else smi.complete,
        mig=smi.mig if not flags else True in flags,
        nvml=smi.nvml or library_version(found),
    )


def _logs(form: str, found: Sequence[query.Log]) -> Smi | None:
    if not found:
        return None
    best, notes = _first_whole(found, lambda log: log.complete is not False)
    return Smi(
        form,
        best.driver,
        best.cuda,
        tuple(best.gpus),
        attached=best.attached,
        complete=best.complete,
        notes=notes,
    )


def _table(found: Sequence[str]) -> Smi | None:
    made = [one for one in tables(found) if one.driver or one.gpus or one.notes]
    if not made:
        return None
    best, notes = _first_whole(made, lambda table: table.closed and table.ended)
    complete = (True if best.ended else None) if best.closed else False
    smi = Smi("table", best.driver, best.cuda, tuple(best.gpus), complete=complete, notes=notes)
    errors = tuple(note for note in best.notes if "Version is" in note)
    return replace(
        smi,
        error="other" if errors else None,
        errors=errors,
        mig_devices=tuple(best.mig_devices),
        processes=tuple(best.processes),
    )


def _first_whole(found: Sequence[Any], whole: Callable[[Any], bool]) -> tuple[Any, tuple[str, ...]]:
    """The first snapshot that is whole, else that with the most GPUs; a note when they differ."""
    best = next((one for one in found if whole(one)), max(found, key=lambda one: len(one.gpus)))
    own = [one.identity for one in best.gpus]
    if any(whole(one) and [other.identity for other in one.gpus] != own for one in found):
        return best, ("a second output, of other GPUs, in the same text is not read",)
    return best, ()


def _version(found: Sequence[str], whole: bool) -> Smi | None:
    if said := versions(found, whole):
        cuda = said.get("cuda", "")
        return Smi(
            VERSION,
            said.get("driver"),
            cuda if cuda[:1].isdigit() else None,
            nvml=said.get("nvml"),
        )
    if module := kernel_module(found):
        return Smi(KERNEL, module.version, flavour=module.flavour)
    return None


def _list(found: Sequence[str], whole: bool) -> Smi | None:
    gpus, instances = devices(found, whole)
    if not gpus:
        return None
    if any(re.match(r"[\s#>]*Link \d+[:,]", line) for line in found):
        raise NotThisKind("this is nvidia-smi nvlink (kind nvlink)")
    mig = True if instances else None  # without any, MIG may be on and empty
    return Smi("list", gpus=tuple(gpus), mig=mig, mig_devices=tuple(instances))


def _unfailed(found: Sequence[str], said: Sequence[Failure]) -> list[str]:
    texts = {failure.text for failure in said}
    return [line for line in found if line.strip() not in texts]


def _csv(found: Sequence[str], whole: bool) -> Smi | None:
    table = read_csv(found, whole)
    if table is None:
        return None
    return Smi(
        "csv",
        table.driver,
        gpus=table.gpus,
        columns=table.columns,
        rows=table.rows,
        same_width=table.same_width,
        complete=None if table.same_width else False,
        notes=table.notes,
    )
