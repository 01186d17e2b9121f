"""What a node is made of: board, cards, adapters, interfaces."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from rackpin.parse.sections import CutAnswer
from rackpin.parse.sections import sections as read_sections

MEMORY_STEP_KIB = 2**20  # a kernel keeps some MiB more or less for itself; a DIMM is GiB
# Before a program opened the card the driver prints question marks for its UUID and VBIOS.
UNKNOWN = re.compile(r"\?{2}")


class IdentityError(Exception):
    """The node's answer is cut or can't be read."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Card(_Part):
    """A GPU; ``uuid``, ``vbios`` and ``serial`` are empty while nobody has told them."""

    model: str = ""
    uuid: str = ""
    vbios: str = ""
    serial: str = ""  # only nvidia-smi tells it


class Adapter(_Part):
    slot: str = ""
    guid: str = ""
    board: str = ""  # PSID
    firmware: str = ""


class Nic(_Part):
    slot: str = ""
    mac: str = ""


class Disk(_Part):
    model: str = ""
    serial: str = ""
    sectors: int = 0  # of 512 bytes


class Identity(_Part):
    """One node as it was found. Keys are PCI slots for cards, names for all others."""

    board: dict[str, str] = Field(default_factory=dict)
    machine_id: str = ""
    driver: bool = False  # was a driver loaded that can tell the cards
    gpus: dict[str, Card] = Field(default_factory=dict)
    hcas: dict[str, Adapter] = Field(default_factory=dict)
    nics: dict[str, Nic] = Field(default_factory=dict)
    pci: dict[str, str] = Field(default_factory=dict)  # slot → "vendor:device class"
    memory_kib: int = 0
    disks: dict[str, Disk] = Field(default_factory=dict)
    host_keys: list[str] = Field(default_factory=list)  # SHA256:… of its ssh keys

    def with_serials(self, serials: Mapping[str, str]) -> Identity:
        """The same with what nvidia-smi said of each slot's serial number."""
        cards = {
            slot: card.model_copy(update={"serial": serials.get(slot, card.serial)})
            for slot, card in self.gpus.items()
        }
        return self.model_copy(update={"gpus": cards})


@lru_cache(maxsize=1)
def _shell() -> str:
    return Path(__file__).with_name("identity.sh").read_text(encoding="utf-8")


def script(root: str = "") -> str:
    """The POSIX sh text that looks, below another root for tests."""
    return f"root={shlex.quote(root)}\n{_shell()}"


def parse(lines: Sequence[str]) -> Identity:
    """Read the script's sections. Raises :class:`IdentityError`."""
    try:
        found = read_sections(list(lines))
        return _identity(found)
    except CutAnswer as error:
        raise IdentityError(f"the {error}") from error
    except (KeyError, IndexError, ValueError) as error:
        raise IdentityError(f"the node's identity can't be read: {error!r}") from error


def _identity(found: dict[str, list[str]]) -> Identity:
    def rows(part: str, fields: int) -> list[list[str]]:
        made = [[word.strip() for word in line.split("|")] for line in found[part] if line]
        if any(len(row) != fields for row in made):
            raise ValueError(f"a line of {part} has other than {fields} fields")
        return made

    return Identity(
        board={name: value for name, value in rows("board", 2)},
        machine_id="".join(found["machine"]).strip(),
        driver=bool(found["driver"]),
        gpus={
            slot.lower(): Card(model=model, uuid=known(uuid), vbios=known(vbios))
            for slot, model, uuid, vbios in rows("gpus", 4)
        },
        hcas={
            name: Adapter(slot=slot, guid=guid, board=board, firmware=firmware)
            for name, slot, guid, board, firmware in rows("hcas", 5)
        },
        nics={name: Nic(slot=slot, mac=mac) for name, slot, mac in rows("nics", 3)},
        pci={
            slot: f"{vendor[2:]}:{device[2:]} {kind[2:]}"
            for slot, vendor, device, kind in rows("pci", 4)
        },
        memory_kib=int(found["memory"][0]),
        disks={
            name: Disk(model=model, serial=serial, sectors=int(size or 0))
            for name, model, serial, size in rows("disks", 4)
        },
        host_keys=sorted(fingerprint(line) for line in found["keys"]),
    )


def fingerprint(key: str) -> str:
    """As ``ssh-keygen -l`` prints it, of the public key in base64; ValueError when it isn't."""
    digest = hashlib.sha256(base64.b64decode(key, validate=True)).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def known(text: str) -> str:
    return "" if UNKNOWN.search(text) else text
