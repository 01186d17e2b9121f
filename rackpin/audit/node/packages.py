"""Debian packages against the lock, the driver family's strangers, holds and pins."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rackpin.audit.node.place import Place
from rackpin.audit.node.sheet import Sheet, Unseen

_FORMAT = "${Package}\\t${Architecture}\\t${db:Status-Abbrev}\\t${Version}\\n"
_VERIFY_S = 300.0
# dpkg is told to leave these out on minimal systems.
_LEFT_OUT = tuple(f"/usr/share/{name}/" for name in ("doc", "man", "locale", "info", "lintian"))


class Deb:
    """One package as dpkg knows it. ``state`` is ``ii``, ``hi`` (held), ``iU``, ``rc``, …"""

    def __init__(self, name: str, arch: str, state: str, version: str) -> None:
        self.name, self.arch, self.state, self.version = name, arch, state.strip(), version

    @property
    def held(self) -> bool:
        return self.state[:1] == "h"

    @property
    def installed(self) -> bool:
        return self.state[1:2] == "i"

    @property
    def gone(self) -> bool:
        """Not there, or nothing but its configuration."""
        return self.state[1:2] in ("n", "c")


def parse_debs(text: str) -> dict[str, Deb]:
    """Packages by name (``NAME:ARCH`` for a second architecture). Unseen for other text."""
    found: dict[str, Deb] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 4:
            raise Unseen(f"dpkg-query printed a line that is no package: {line[:80]}")
        deb = Deb(*fields)
        if deb.gone:
            continue
        other = deb.name in found and deb.arch not in ("amd64", "all")
        found[f"{deb.name}:{deb.arch}" if other else deb.name] = deb
    if not found:
        raise Unseen("dpkg-query lists no package at all")
    return found


def look_at_packages(place: Place, wish: dict[str, Any], sheet: Sheet, deep: bool) -> None:
    os_key = os_of(place)
    if os_key not in wish["os"]:
        sheet.differs("os.release", "/etc/os-release", " or ".join(wish["os"]), os_key)
    else:
        sheet.agrees("os", "/etc/os-release", os_key)
    debs = parse_debs(place.ask("dpkg-query", "-W", "-f", _FORMAT))
    required, known = wish["debs"].get(os_key, {}), wish["debs_known"].get(os_key, {})
    if os_key in wish["os"]:  # else the lock has nothing to compare with
        compare_debs(required, known, debs, sheet)
        if os_key in wish["family_known"]:
            driver_strangers({**known, **required}, debs, wish["driver_family"], sheet)
        else:
            sheet.could_not(
                "deb",
                f"the lock's packages for {os_key} aren't resolved, so a stranger among the "
                f"driver's can't be told: rackpin lock {wish['stack']}",
            )
    compare_holds(wish["holds"].get(os_key, []), debs, sheet)
    pinned = wish["candidates"].get(os_key, {})
    if pinned:
        text = place.ask("apt-cache", "policy", *sorted(pinned), deadline_s=30)
        compare_candidates(pinned, text, sheet)
    if deep:
        there = [name for name in sorted({**known, **required}) if name in debs]
        if there:
            # status 1: something differs, and it is printed
            text = place.ask("dpkg", "--verify", *there, good=(0, 1), deadline_s=_VERIFY_S)
            compare_verified(text, len(there), sheet)


def os_of(place: Place) -> str:
    """``debian-12``, as the lock's tables name it."""
    text = place.read("/etc/os-release") or place.read("/usr/lib/os-release") or ""
    fields = {key: value.strip("\"'") for key, value in re.findall(r"(?m)^(\w+)=(.*)$", text)}
    if not fields.get("ID"):
        raise Unseen("/etc/os-release: names no ID")
    return f"{fields['ID']}-{fields.get('VERSION_ID', '')}"


def compare_debs(
    required: dict[str, str | None],
    known: dict[str, str | None],
    debs: dict[str, Deb],
    sheet: Sheet,
) -> None:
    """``required`` must be there; of ``known`` only what is there counts. None: any version."""
    for name, version in sorted({**known, **required}.items()):
        deb = debs.get(name)
        if deb is None:
            if name in required:
                sheet.differs("deb.missing", name, version or "installed", "not installed")
        elif not deb.installed:
            sheet.differs("deb.state", name, version or "installed", f"{deb.version} ({deb.state})")
        elif version is None:
            sheet.agrees("deb", name, f"{deb.version} (the lock names no version)")
        else:
            sheet.compare("deb.version", name, version, deb.version)


def driver_strangers(
    locked: Iterable[str], debs: dict[str, Deb], family: list[str], sheet: Sheet
) -> None:
    """Packages of the driver family that no line of the lock has."""
    names = set(locked)
    pattern = re.compile("|".join(f"(?:{item})" for item in family))
    found = [n for n, d in debs.items() if pattern.match(d.name) and d.name not in names]
    for name in sorted(found):
        deb = debs[name]
        sheet.differs("deb.driver", name, "none but the lock's", f"{deb.version} ({deb.state})")
    if not found:
        sheet.agrees("deb", "driver family", "no package besides the lock's")


def compare_holds(names: list[str], debs: dict[str, Deb], sheet: Sheet) -> None:
    """dpkg's selections are what ``apt-mark showhold`` prints."""
    for name in sorted(names):
        if name in debs:
            sheet.compare("apt.hold", name, "held", "held" if debs[name].held else "not held")


def compare_candidates(pinned: dict[str, str], text: str, sheet: Sheet) -> None:
    """``apt-cache policy NAME…``: what apt would install next."""
    found = dict(re.findall(r"(?m)^(\S+):\n(?:  .*\n)*?  Candidate: (\S+)", text))
    for name, version in sorted(pinned.items()):
        sheet.compare("apt.candidate", name, version, found.get(name, "unknown to apt"))


def compare_verified(text: str, count: int, sheet: Sheet) -> None:
    """``dpkg --verify``: ``??5?????? c /path`` or ``missing /path``; conffiles are the site's."""
    wrong = []
    for line in text.splitlines():
        match = re.match(r"(\S{9}|missing)\s+(c )?\s*(/.*)", line)
        if match and not match[2] and not match[3].startswith(_LEFT_OUT):
            wrong.append((match[3], "missing" if match[1] == "missing" else "other content"))
    for path, what in wrong:
        sheet.differs("deb.files", path, "as its package brought it", what)
    if not wrong:
        sheet.agrees("deb", "files", f"those of {count} packages are as the packages brought them")
