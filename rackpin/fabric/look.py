"""The answer of ``look.sh`` as a :class:`Fabric`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from rackpin.fabric.model import (
    Boot,
    Bridge,
    Dkms,
    Fabric,
    Gdrcopy,
    Gid,
    Gpu,
    Hca,
    Port,
    natural,
)
from rackpin.parse.sections import CutAnswer
from rackpin.parse.sections import sections as read_sections

SLOT = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class LookError(Exception):
    """The node's answer is cut or not of this kind."""


@lru_cache(maxsize=2)
def shell(name: str) -> str:
    """A piece of shell that stands beside this file."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def script(root: str = "") -> str:
    """The POSIX sh text that looks, below another root for tests."""
    return f"root={shlex.quote(root)}\n{shell('pci.sh')}{shell('look.sh')}"


def parse(lines: Sequence[str]) -> Fabric:
    """Read the script's sections. Raises :class:`LookError`."""
    try:
        sections = read_sections(lines)
    except CutAnswer as error:
        raise LookError(f"the {error}") from error
    try:
        return _fabric(sections)
    except (KeyError, IndexError, ValueError) as error:
        raise LookError(f"the answer can't be read: {error!r}") from error


def _fabric(sections: dict[str, list[str]]) -> Fabric:
    def one(key: str) -> str:
        return sections[key][0] if sections[key] else ""

    flavour = " ".join(sections["flavour"])
    return Fabric(
        gpus=tuple(sorted((_gpu(line) for line in sections["gpus"]), key=lambda gpu: gpu.slot)),
        hcas=_hcas(sections["hcas"]),
        bridges=tuple(
            sorted((_bridge(line) for line in sections["bridges"]), key=lambda b: b.slot)
        ),
        kernel=one("kernel"),
        virt=one("virt") or "unknown",  # never taken for bare metal
        boot=Boot(
            running=tuple(one("cmdline").split()),
            next=tuple(one("next").split()[2:]) if sections["next"] else None,
            written=tuple(word for line in sections["grub"] for word in grub_words(line)),
        ),
        modules=frozenset(sections["modules"]),
        peer_api={"yes": True, "no": False}.get(one("peer_api")),
        open_modules=_is_open(flavour) if flavour else None,
        gdrcopy=_gdrcopy(sections["gdrcopy"]),
        subnet_manager=bool(sections["opensm"]),
        iommu=bool(sections["iommu"]),
        dkms=Dkms(
            status=tuple(sections["dkms"]),
            modules=tuple(sorted(_built(line) for line in sections["built"])),
            ofed=one("ofed"),
            symbols=max(map(int, sections["symbols"])) if sections["symbols"] else None,
        ),
        names=names(sections["names"]),
    )


def names(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Slot and name of each line of the node's table of adapters."""
    rows = [line.split() for line in lines if not line.startswith("#")]
    return tuple(sorted((row[0], row[1]) for row in rows if len(row) == 2 and SLOT.match(row[0])))


def grub_words(line: str) -> list[str]:
    """``GRUB_CMDLINE_LINUX="a b"`` gives a and b; what only a shell could tell is left out."""
    _, _, value = line.partition("=")
    try:
        words = shlex.split(value, comments=True)
    except ValueError:
        return []
    return [word for word in " ".join(words).split() if "$" not in word]


def _gdrcopy(lines: Sequence[str]) -> Gdrcopy:
    found = dict(line.split(" ", 1) for line in lines)
    return Gdrcopy(found.get("loaded", ""), found.get("built", ""), "node" in found)


def _is_open(text: str) -> bool:
    return "Open Kernel Module" in text or "MIT" in text


def _built(line: str) -> tuple[str, int]:
    path, _, when = line.rpartition(" ")
    return path.rpartition("/")[2], int(when)


def _path(text: str) -> tuple[str, ...]:
    parts = text.split("/")
    roots = [i for i, part in enumerate(parts) if re.match(r"pci[0-9a-f]{4,8}:", part)]
    return tuple(parts[roots[-1] :]) if roots else ()


def _numa(text: str) -> int | None:
    return int(text) if text not in ("", "-1") else None


def _gpu(line: str) -> Gpu:
    slot, path, numa, iommu = line.split("|")
    return Gpu(slot, _path(path), _numa(numa), iommu)


def _bridge(line: str) -> Bridge:
    slot, word = line.split("|")
    if word in ("none", "unseen"):
        return Bridge(slot, None, word == "none")
    return Bridge(slot, int(word))


def _hcas(lines: Sequence[str]) -> tuple[Hca, ...]:
    found: list[Hca] = []
    for line in lines:
        kind, *rest = line.split("|")
        if kind == "hca":
            found.append(_hca(rest))
        elif kind == "port":
            found[-1] = replace(found[-1], ports=(*found[-1].ports, _port(rest)))
        elif kind == "gid":
            hca = found[-1]
            port = replace(hca.ports[-1], gids=(*hca.ports[-1].gids, _gid(rest)))
            found[-1] = replace(hca, ports=(*hca.ports[:-1], port))
    return tuple(sorted(map(_in_order, found), key=lambda hca: natural(hca.name)))


def _in_order(hca: Hca) -> Hca:
    ports = [replace(p, gids=tuple(sorted(p.gids, key=lambda g: g.index))) for p in hca.ports]
    return replace(hca, ports=tuple(sorted(ports, key=lambda p: p.number)))


def _hca(fields: list[str]) -> Hca:
    name, path, numa, board, guid, nets, relaxed, virtual = fields
    chain = _path(path)
    slot = chain[-1] if chain and SLOT.fullmatch(chain[-1]) else ""
    order = {"1": True, "0": False}.get(relaxed)
    return Hca(
        slot=slot,
        path=chain,
        numa=_numa(numa),
        name=name,
        board=board,
        guid=guid,
        netdevs=tuple(sorted(nets.split())),
        relaxed_ordering=order,
        virtual=bool(virtual),
    )


def _port(fields: list[str]) -> Port:
    number, state, physical, rate, layer, sm_lid, traffic_class = fields
    return Port(
        number=int(number),
        state=state.rpartition(":")[2].strip().upper(),
        physical=physical.rpartition(":")[2].strip(),
        rate_gbps=float(rate.split()[0]) if rate else 0.0,
        layer=layer,
        sm_lid=int(sm_lid or "0", 16),
        traffic_class=int(traffic_class) if traffic_class.isdigit() else None,
    )


def _gid(fields: list[str]) -> Gid:
    index, gid, kind, netdev = fields
    return Gid(int(index), gid, "v2" if "v2" in kind else "v1", netdev)
