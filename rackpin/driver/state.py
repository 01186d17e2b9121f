"""What the survey finds of GPUs, driver, kernels and Secure Boot; read from one script's answer."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from rackpin.audit.node.boot import grub_choice, grub_kernel, parse_loaded, version_key
from rackpin.audit.node.sheet import Unseen
from rackpin.driver.table import table
from rackpin.parse.dkms import DkmsModule, dkms_line
from rackpin.parse.lspci import lspci
from rackpin.parse.sections import CutAnswer, sections


class DriverStateError(ValueError):
    """The answer is cut, or a command of it failed."""


def state_script() -> str:
    """POSIX sh text that prints the state."""
    text = files("rackpin.driver").joinpath("look.sh").read_text(encoding="utf-8")
    return f"KEYS={shlex.quote(' '.join(table()['signing_keys']))}\n{text}"


@dataclass(frozen=True)
class DriverState:
    """GPUs and driver of one node as found. Kernels are named as ``uname -r`` does."""

    gpus: int = 0
    nvswitches: int = 0
    modules: frozenset[str] = frozenset()  # loaded; with _ in their names, as lsmod has them
    loaded: str = ""  # version of the NVIDIA module in the kernel
    flavour: str = ""  # "open" or "closed", of what is loaded
    params: Mapping[str, str] = field(default_factory=dict)  # of what is loaded, without NVreg_
    secure_boot: bool | None = False  # None: can't be told
    enrolled: bool = False  # a key that DKMS signs with is in the firmware's list
    running: str = ""
    boot_id: str = ""
    kernels: tuple[str, ...] = ()  # in /boot
    initrds: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()  # kernels that modules can be built for
    # kernel -> module file -> version; "" where modinfo can't read the file
    built: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dkms: tuple[DkmsModule, ...] = ()
    next: str = ""  # kernel of the next boot; "" on a machine without any of its own
    next_fault: str = ""  # why it can't be told
    next_fixed: str = ""  # GRUB's default where it isn't simply the first entry
    foreign: tuple[str, ...] = ()  # driver files that no package has
    engines: tuple[str, ...] = ()  # units of ours that run
    holders: tuple[str, ...] = ()  # "PID NAME" of others that have a card open
    errors: tuple[str, ...] = ()  # the compiler's, of a build that failed
    dpkg_broken: bool = False


def _ran(parts: Mapping[str, list[str]], name: str, what: str) -> list[str]:
    """What a command printed that must have worked."""
    *lines, last = parts[name] or [""]
    if last != "= 0":
        raise DriverStateError(f"{what} failed ({last.removeprefix('= ') or 'no status'})")
    return lines


def parse_state(lines: Sequence[str]) -> DriverState:
    """The state script's answer. :class:`DriverStateError` when something couldn't be looked at."""
    try:
        parts = sections(lines, "## ")
    except CutAnswer as error:
        raise DriverStateError(f"the {error}") from error
    try:
        found = lspci(_ran(parts, "pci", "looking for GPUs (lspci, /sys/bus/pci)"))
        modules = _ran(parts, "modules", "lsmod")
        loaded, flavour = _loaded(parts)
        after, fault, fixed = _next(parts)
        images = parts["images"]
        dkms = _ran(parts, "dkms", "dkms status") if parts["dkms"] else []
        daemons = table()["daemons"]
        return DriverState(
            gpus=found.nvidia_gpus or 0,
            nvswitches=found.nvswitches or 0,
            modules=frozenset(line.split()[0] for line in modules[1:] if line.strip()),
            loaded=loaded,
            flavour=flavour,
            params=dict(re.findall(r"(?m)^(\w+): (.*)$", "\n".join(parts["params"]))),
            secure_boot=secure_boot(parts["secureboot"]),
            enrolled=any(
                re.search(r"is already enrolled|is already in", line) for line in parts["keys"]
            ),
            running=_one(parts, "running"),
            boot_id=_one(parts, "boot"),
            kernels=_after(images, "vmlinuz-"),
            initrds=_after(images, "initrd.img-"),
            headers=tuple(line.strip() for line in parts["headers"] if line.strip()),
            built=_built(parts["built"]),
            dkms=tuple(m for m in map(dkms_line, dkms) if m and m.module.startswith("nvidia")),
            next=after,
            next_fault=fault,
            next_fixed=fixed,
            foreign=tuple(line.strip() for line in parts["foreign"] if line.strip()),
            engines=tuple(line.strip() for line in parts["engines"] if line.strip()),
            holders=tuple(
                line for line in parts["holders"] if line.partition(" ")[2] not in daemons
            ),
            errors=tuple(line.strip() for line in parts["errors"] if line.strip()),
            dpkg_broken=any(line.strip() for line in parts["audit"]),
        )
    except KeyError as error:
        raise DriverStateError(f"the answer is not whole: no section {error}") from error


def _one(parts: Mapping[str, list[str]], name: str) -> str:
    text = next((line.strip() for line in parts[name] if line.strip()), "")
    if not text:
        raise DriverStateError(f"the answer is not whole: section {name!r} is empty")
    return text


def _after(names: Sequence[str], prefix: str) -> tuple[str, ...]:
    found = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return tuple(sorted(found, key=version_key))


def _loaded(parts: Mapping[str, list[str]]) -> tuple[str, str]:
    text = "\n".join(parts["loaded"])
    if text.strip():
        try:
            return parse_loaded(text)
        except Unseen as error:
            raise DriverStateError(str(error)) from error
    return "".join(parts["version"]).strip(), ""


def _next(parts: Mapping[str, list[str]]) -> tuple[str, str, str]:
    """The kernel of the next boot, why it can't be told, and a default that somebody has set.

    It is GRUB's choice, else the newest in /boot.
    """

    def text(name: str) -> str:
        return base64.b64decode("".join(parts[name])).decode("utf-8", "replace")

    config = text("grub")
    if config.strip():
        kernel = grub_kernel(config, text("grubenv"))
        choice = grub_choice(config, text("grubenv"))
        fixed = "" if choice == "0" else choice
        return kernel or "", "" if kernel else f"GRUB's default {choice!r} isn't in grub.cfg", fixed
    kernels = _after(parts["images"], "vmlinuz-")
    return (kernels[-1] if kernels else ""), "", ""


def secure_boot(lines: Sequence[str]) -> bool | None:
    """Whether Secure Boot is on: mokutil's words, or the EFI variable's five bytes."""
    text = " ".join(line.strip() for line in lines)
    if "SecureBoot enabled" in text:
        # The kernel takes unsigned modules while validation is off in shim.
        return "validation is disabled" not in text
    if "SecureBoot disabled" in text or "Setup Mode" in text:
        return False
    if text == "no EFI" or re.search(r"EFI variables are not supported|doesn't support", text):
        return False
    numbers = text.split()
    if len(numbers) == 5 and all(n.isdecimal() for n in numbers):  # four bytes of attributes
        return numbers[-1] == "1"
    return None


def _built(lines: Sequence[str]) -> dict[str, dict[str, str]]:
    """``/lib/modules/KERNEL/updates/dkms/FILE.ko[.xz]|VERSION`` by kernel and module."""
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        path, _, version = line.partition("|")
        match = re.fullmatch(r"/lib/modules/([^/]+)/updates/dkms/([^/]+)\.ko(\.\w+)?", path)
        if match:
            found.setdefault(match[1], {})[match[2]] = version.strip()
    return found
