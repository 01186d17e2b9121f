"""Files that stages own: content, mode and owner, against what inventory and lock make of them."""

from __future__ import annotations

import grp
import hashlib
import pwd
import stat
import time
from pathlib import Path
from typing import Any

from rackpin.audit.node.place import Place
from rackpin.audit.node.sheet import Sheet, Unseen


def look_at_files(place: Place, wish: dict[str, Any], sheet: Sheet) -> None:
    """Owned files, directories, links, and rackpin's own block in files that it shares."""
    interface = None
    for file in wish["files"]:
        expected = file["sha256"]
        if file["content"] is not None:  # depends on the NIC that has the node's address
            if interface is None:
                interface = interface_of(place, wish["address"])
            if not interface:
                sheet.could_not("file", f"{file['path']}: no interface has {wish['address']}")
                continue
            text = file["content"].replace(wish["interface_mark"], interface)
            expected = hashlib.sha256(text.encode()).hexdigest()
        _file(place, file, expected, sheet)
    for folder in wish["directories"]:
        path = place.at(folder["path"])
        if not path.is_dir():
            sheet.differs("file.missing", folder["path"], "a directory", kind_of(path))
        else:
            _mode(path, folder, sheet)
    for link, target in sorted(wish["links"].items()):
        path = place.at(link)
        found = str(path.readlink()) if path.is_symlink() else kind_of(path)
        kind = "file.missing" if found == "missing" else "file.edited"
        if found == target:
            sheet.agrees("file", link, target)
        else:
            sheet.differs(kind, link, f"link to {target}", found)
    for block in wish["blocks"]:
        _block(place, block, sheet)


def _file(place: Place, file: dict[str, Any], expected: str, sheet: Sheet) -> None:
    name, path = file["path"], place.at(file["path"])
    kind = kind_of(path)
    if kind == "missing":
        sheet.differs("file.missing", name, "rackpin's file", kind)
        return
    if kind != "file":
        sheet.differs("file.edited", name, "a file", f"a {kind}")
        return
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        sheet.could_not("file", f"{name}: {error.strerror}")
        return
    if found == expected:
        sheet.agrees("file", name, "secret, as wished" if file["secret"] else found[:12])
    else:
        # A digest of a secret would let a weak one be guessed.
        hashes = ("", "") if file["secret"] else (f" {expected[:12]}", f" {found[:12]}")
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(path.stat().st_mtime))
        sheet.differs(
            "file.edited", name, f"content{hashes[0]}", f"other content{hashes[1]}, written {when}"
        )
    _mode(path, file, sheet)


def kind_of(path: Path) -> str:
    """``missing``, ``link``, ``file``, ``directory`` or ``something else``."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        raise Unseen(f"{path}: {error.strerror}") from error
    for what, test in (("link", stat.S_ISLNK), ("file", stat.S_ISREG), ("directory", stat.S_ISDIR)):
        if test(mode):
            return what
    return "something else"


def _mode(path: Path, wish: dict[str, Any], sheet: Sheet) -> None:
    state = path.lstat()
    try:
        user = pwd.getpwuid(state.st_uid).pw_name
    except KeyError:
        user = str(state.st_uid)
    try:
        group = grp.getgrgid(state.st_gid).gr_name
    except KeyError:
        group = str(state.st_gid)
    expected = f"{wish['mode']} {wish['owner']}:{wish['group']}"
    found = f"{stat.S_IMODE(state.st_mode):o} {user}:{group}"
    if found != expected:
        sheet.differs("file.mode", wish["path"], expected, found)


def _block(place: Place, block: dict[str, Any], sheet: Sheet) -> None:
    lines = (place.read(block["path"]) or "").splitlines()
    subject = f"{block['path']} (rackpin's block)"
    try:
        begin = lines.index(block["begin"])
        inside = lines[begin + 1 : lines.index(block["end"], begin)]
    except ValueError:
        sheet.differs("file.missing", subject, f"{len(block['lines'])} lines", "no such block")
        return
    if inside == block["lines"]:
        sheet.agrees("file", subject, f"{len(inside)} lines")
        return
    missing = [line for line in block["lines"] if line not in inside]
    extra = [line for line in inside if line not in block["lines"]]
    sheet.differs(
        "file.edited",
        subject,
        "; ".join(missing) or "no more lines, in the inventory's order",
        "; ".join(extra) or f"{len(inside)} lines",
    )


def interface_of(place: Place, address: str) -> str:
    """The NIC that has this address; "" when none has."""
    for line in place.ask("ip", "-o", "-4", "addr", "show").splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[3].split("/")[0] == address:
            return fields[1]
    return ""
