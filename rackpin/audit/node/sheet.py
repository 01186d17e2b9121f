"""What an audit found, as plain data: differences, what could not be looked at, and the same."""

from __future__ import annotations

import time
from typing import Any

SCHEMA_VERSION = 1
KEPT = 40  # differences of one kind that are listed; all are counted
FOUND_CHARS = 300

_DEPLOY = "run the deploy of this node"
_REBUILD = "drain the node, remove .complete in the environment, run the deploy: it builds it anew"
# Every kind of difference: what it means, and what to do. The word before the dot is its area.
KINDS: dict[str, tuple[str, str]] = {
    "os.release": ("the lock wasn't made for this OS", "install a listed release, or lock for it"),
    "env.current": ("another environment is in use", f"{_DEPLOY}: it moves the link back"),
    "env.complete": ("the environment isn't whole", f"{_DEPLOY}: it builds the environment"),
    "env.python": ("the environment runs another Python", _REBUILD),
    "wheel.missing": ("a locked distribution isn't installed", _REBUILD),
    "wheel.version": ("a distribution is installed at another version", _REBUILD),
    "wheel.extra": (
        "a distribution is installed that isn't locked",
        "pin it (dists in pins.yaml) or remove it; nobody installs by hand into an environment",
    ),
    "wheel.file": ("a file isn't what its RECORD says", _REBUILD),
    "wheel.record": ("a RECORD isn't the one that was installed", _REBUILD),
    "wheel.stray": (
        "a file in the environment belongs to no distribution",
        "find out who put it there, then remove it",
    ),
    "wheel.bytecode": (
        "compiled bytecode was written after the build; no RECORD covers it",
        "remove the file: Python compiles it anew from the proved source",
    ),
    "file.missing": ("a file that rackpin owns isn't there", f"{_DEPLOY}: it puts it there"),
    "file.edited": (
        "a file that rackpin owns has other content",
        f"move what was changed into the inventory, then {_DEPLOY}",
    ),
    "file.mode": ("mode or owner was changed", f"{_DEPLOY}: it sets them"),
    "model.mark": (
        "the files of a model were not proved to be the lock's",
        f"{_DEPLOY}: it reads all of them and fetches what differs",
    ),
    "model.file": (
        "a file of a model was changed after it was proved",
        f"{_DEPLOY}: it reads all of them and fetches what differs",
    ),
    "unit.dropin": (
        "a drop-in changes one of our units",
        "move what it sets into the inventory, remove it, systemctl daemon-reload",
    ),
    "unit.shadowed": ("another unit file is in force", f"remove it, then {_DEPLOY}"),
    "unit.disabled": ("a unit won't come back at boot", f"{_DEPLOY}: it enables it"),
    "unit.reload": ("systemd hasn't read the unit's file yet", f"{_DEPLOY}: it reloads systemd"),
    "unit.extra": (
        "a unit of this kind that the inventory doesn't have",
        "systemctl disable --now UNIT, remove its file; or put it back into the inventory",
    ),
    "deb.missing": ("a locked package isn't installed", f"{_DEPLOY}: it installs it"),
    "deb.version": ("a package is installed at another version", f"{_DEPLOY}, or lock anew"),
    "deb.state": ("a package is half installed", "dpkg --configure -a; then see dpkg --audit"),
    "deb.driver": (
        "a package of the driver family isn't in the lock",
        "find out what pulled it in (apt-mark showmanual, /var/log/apt), remove it",
    ),
    "deb.files": ("files of a package differ from what it brought", "apt-get install --reinstall"),
    "apt.hold": ("a pinned package isn't held", f"{_DEPLOY}: it holds it"),
    "apt.candidate": (
        "apt would install another version",
        "apt-cache policy NAME shows which preferences or repository win",
    ),
    "driver.loaded": ("the loaded kernel module isn't the locked one", "reboot it in a wave"),
    "driver.next": (
        "the next boot would not load the locked module",
        "don't reboot; run the driver stage, and see dkms status",
    ),
    "kernel.booted": ("another kernel is running", "reboot it in a wave"),
    "kernel.next": (
        "the next boot would take another kernel",
        "remove or hold the newer linux-image, or set GRUB_DEFAULT, then update-grub",
    ),
    "nccl.mapped": (
        "an engine has another NCCL loaded than the lock's",
        "look for LD_PRELOAD, LD_LIBRARY_PATH, VLLM_NCCL_SO_PATH; restart it in a wave",
    ),
    "running.env": ("processes use another environment", "restart their unit in a wave"),
    "image.label": ("the image isn't labelled with this lock", "build the image from this lock"),
}


class Unseen(Exception):
    """A thing could not be looked at; the text says why."""


class Sheet:
    """Collects the answers about one machine. The same and the unseen count too."""

    def __init__(self) -> None:
        self.drift: list[dict[str, str]] = []
        self.counts: dict[str, int] = {}
        self.unseen: list[dict[str, str]] = []
        self.same: list[dict[str, str]] = []
        self.proves: list[str] = []  # what "the same" is worth, in words
        self.began = time.monotonic()

    def differs(self, kind: str, subject: str, expected: str, found: str) -> None:
        remedy = KINDS[kind][1]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= KEPT:
            found = found if len(found) <= FOUND_CHARS else found[: FOUND_CHARS - 1] + "…"
            self.drift.append(
                {
                    "kind": kind,
                    "subject": subject,
                    "expected": expected,
                    "found": found,
                    "remedy": remedy,
                }
            )

    def compare(self, kind: str, subject: str, expected: str, found: str) -> bool:
        """One value against the wish; True when it is the same."""
        if expected == found:
            self.agrees(kind.split(".")[0], subject, found)
            return True
        self.differs(kind, subject, expected, found)
        return False

    def agrees(self, area: str, subject: str, found: str) -> None:
        self.same.append({"area": area, "subject": subject, "found": found})

    def could_not(self, area: str, why: str) -> None:
        self.unseen.append({"area": area, "why": " ".join(why.split())[:FOUND_CHARS]})

    def as_target(self, name: str) -> dict[str, Any]:
        """The part of the document that is about this machine."""
        state = "could_not_look" if self.unseen else "drift" if self.counts else "same"
        return {
            "name": name,
            "state": state,
            "seconds": round(time.monotonic() - self.began, 3),
            "counts": dict(sorted(self.counts.items())),
            "drift": self.drift,
            "unseen": self.unseen,
            "same": self.same,
            "proves": self.proves,
        }
