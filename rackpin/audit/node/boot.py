"""Which kernel runs, which one the next boot takes, and which NVIDIA module each of them has."""

from __future__ import annotations

import os
import re
from typing import Any

from rackpin.audit.node.place import Place
from rackpin.audit.node.sheet import Sheet, Unseen

GRUB_CFG = "/boot/grub/grub.cfg"
MODULES = ("nvidia", "nvidia-current")  # Debian's packages name it by branch
_WORD = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s{}'\"]+|[{}]")


def version_key(version: str) -> list[tuple[int, int | str]]:
    """Sorts kernel versions: ``6.1.0-9`` before ``6.1.0-10``, release candidates first."""
    version = version.replace("-rc", "~rc")
    parts = re.findall(r"\d+|[a-z]+|~", version)
    return [(2, int(p)) if p.isdigit() else (0 if p == "~" else 1, p) for p in parts]


def grub_entries(text: str) -> list[tuple[list[set[str]], str]]:
    """Boot entries in order: the names of each level (position, title, id) and the kernel."""
    entries: list[tuple[list[set[str]], str]] = []
    levels: list[int] = [0]  # how many entries each open level has had
    stack: list[tuple[str, set[str]]] = []  # open braces: what opened them
    text = re.sub(r"\$\{(\w+)\}", r"$\1", text)  # braces are blocks from here on
    for line in text.splitlines():
        words = [w if w in "{}" else w.strip("'\"") for w in _WORD.findall(line.split(" #")[0])]
        head = words[0] if words else ""
        if head in ("menuentry", "submenu") and words[-1] == "{":
            ids = [words[i + 1] for i, w in enumerate(words[:-1]) if "menuentry_id_option" in w]
            ids += [w.removeprefix("--id=") for w in words if w.startswith("--id=")]
            stack.append((head, {str(levels[-1]), words[1], *ids}))
            levels[-1] += 1
            levels.append(0)
        elif head in ("linux", "linux16", "linuxefi") and len(words) > 1:
            path = [names for what, names in stack if what in ("menuentry", "submenu")]
            kernel = words[1].rpartition("/vmlinuz-")[2]
            if path:
                entries.append((path, kernel))
        elif head == "}" or (words and words[-1] == "}"):
            if stack and stack.pop()[0] in ("menuentry", "submenu"):
                levels.pop()
        elif words and words[-1] == "{":
            stack.append((head, set()))
    return entries


def grub_choice(text: str, environment: str) -> str:
    """The entry that ``grub.cfg`` boots by itself: ``0``, a title, an id, or ``1>2``."""
    saved: dict[str, str] = dict(re.findall(r"(?m)^(\w+)=(.*)$", environment))
    if saved.get("next_entry") and "next_entry" in text:
        return saved["next_entry"]
    choices = re.findall(r"(?m)^\s*set default=[\"']?([^\"'\n]*)[\"']?", text)
    fixed: list[str] = [c for c in choices if "next_entry" not in c]
    choice = fixed[-1] if fixed else "0"
    return (saved.get("saved_entry") or "0") if "saved_entry" in choice else choice


def grub_kernel(text: str, environment: str) -> str | None:
    """The kernel version of the chosen entry; None when the entry isn't there."""
    wanted = grub_choice(text, environment).split(">")
    for path, kernel in grub_entries(text):
        if len(path) >= len(wanted) and all(
            name in path[level] for level, name in enumerate(wanted)
        ):
            return kernel
    return None


def next_kernel(place: Place) -> tuple[str, str]:
    """Version and where it is known from; "" on a machine that has no kernel of its own."""
    text = place.read(GRUB_CFG)
    if text:
        kernel = grub_kernel(text, place.read("/boot/grub/grubenv") or "")
        if kernel is None:
            raise Unseen(f"{GRUB_CFG}: the entry that is the default isn't in it")
        return kernel, "grub's default"
    names = [n for n in place.names("/boot") if n.startswith("vmlinuz-")]
    versions = sorted((n.removeprefix("vmlinuz-") for n in names), key=version_key)
    return (versions[-1], "newest in /boot") if versions else ("", "no kernel in /boot")


def look_at_boot(place: Place, wish: dict[str, Any], sheet: Sheet) -> None:
    booted = (place.read("/proc/sys/kernel/osrelease") or os.uname().release).strip()
    after, source = next_kernel(place)
    pinned, driver = wish["kernel"], wish["driver"]
    if pinned:
        sheet.compare("kernel.booted", "running", pinned, booted)
        if after:
            sheet.compare("kernel.next", f"next boot ({source})", pinned, after)
        else:
            sheet.could_not("kernel", f"next boot: {source}")
    else:
        sheet.agrees("kernel", "running", f"{booted} (not pinned)")
        sheet.agrees("kernel", f"next boot ({source})", after or "none")
    if driver:
        compare_loaded(place, driver, sheet)
        if after:
            version = module_of(place, after)
            subject = f"module for {after}"
            sheet.compare("driver.next", subject, driver["version"], version or "not built")
        else:
            sheet.could_not("driver", f"next boot: {source}")


def compare_loaded(place: Place, driver: dict[str, Any], sheet: Sheet) -> None:
    """Version, and open or closed flavour, of the module in the kernel."""
    text = place.read("/proc/driver/nvidia/version")
    version, flavour = parse_loaded(text) if text else ("", "")
    if not text:
        version = (place.read("/sys/module/nvidia/version") or "").strip()
    sheet.compare("driver.loaded", "version", driver["version"], version or "no module is loaded")
    if flavour and driver.get("flavour"):
        sheet.compare("driver.loaded", "flavour", driver["flavour"], flavour)


def parse_loaded(text: str) -> tuple[str, str]:
    """``/proc/driver/nvidia/version``: version and ``open`` or ``closed``."""
    line = next((x for x in text.splitlines() if x.startswith("NVRM version:")), "")
    match = re.search(r"\s(\d{3}\.\d+(?:\.\d+)?)\s", line + " ")
    if not match:
        raise Unseen("/proc/driver/nvidia/version: has no version in it")
    return match[1], "open" if "Open Kernel Module" in line else "closed"


def module_of(place: Place, kernel: str) -> str:
    """Version of the NVIDIA module that a kernel would load; "" when it has none."""
    for name in MODULES:
        try:
            return place.ask("modinfo", "-k", kernel, "-F", "version", name).strip()
        except Unseen as error:
            if "not installed" in str(error):
                raise
    return ""
