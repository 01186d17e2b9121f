"""The Python environment in use: its distributions against the lock, its files by RECORD.

The mark ``.complete`` was written when the environment was whole: the *seal*. The kernel notes
a time (ctime) at each change of a file that no program can set, so a file whose ctime is not
after the seal is as it was built; any other file is read and hashed. ``deep`` reads them all.
"""

from __future__ import annotations

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rackpin.audit.node.place import Place
from rackpin.audit.node.record import Row, content_digest, record_digest, record_rows
from rackpin.audit.node.sheet import Sheet, Unseen

READ_S = 20.0  # for files that changed since the seal, when not deep
HASHERS = 4
_VENV = re.compile(
    r"\.complete|\.gitignore|\.lock|CACHEDIR\.TAG|pyvenv\.cfg|lib64"
    r"|bin/(python[\d.]*|activate[\w.]*|deactivate\.bat|pydoc\.bat)"
    r"|lib/python[\d.]+/site-packages/_virtualenv\.(py|pth)"
)
_MAY_CHANGE = (".lock", ".complete")


class Tree:
    """Every file under ``top``: size, ctime in ns, and whether it is a plain file."""

    def __init__(self, top: Path) -> None:
        self.top = str(top)
        self.files: dict[str, tuple[int, int, bool]] = {}  # by path below top
        todo = [self.top]
        skip = len(self.top) + 1
        while todo:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                        continue
                    stat = entry.stat(follow_symlinks=False)
                    plain = entry.is_file(follow_symlinks=False)
                    self.files[entry.path[skip:]] = (stat.st_size, stat.st_ctime_ns, plain)


class Dist:
    """One installed distribution, by its metadata folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.name
        self.name, self.version = folder.name.split("-")[0], "?"
        text = (folder / "METADATA").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key == "Name":
                self.name = value.strip()
            elif key == "Version":
                self.version = value.strip()
            elif not line:
                break  # the headers end here
        self.name = re.sub(r"[-_.]+", "-", self.name).lower()
        record = (folder / "RECORD").read_bytes().decode("utf-8", "surrogateescape")
        self.rows: list[Row] = record_rows(record)


def look_at_environment(place: Place, wish: dict[str, Any], sheet: Sheet, deep: bool) -> None:
    """The environment in use, whichever that is, against the locked one."""
    link, path = wish["current"], wish["path"]
    try:
        used = str(place.at(link).readlink())
    except FileNotFoundError:
        used = "no link"
    except OSError:
        used = "not a link"
    sheet.compare("env.current", link, path, used)
    if not used.startswith("/") or not place.at(used).is_dir():
        used = path
    if not place.at(used).is_dir():
        sheet.differs("env.complete", used, "an environment", "no directory")
        sheet.differs("wheel.missing", f"all {len(wish['dists'])}", "installed", "nothing")
        return
    mark = (place.read(f"{used}/.complete") or "").strip()
    sheet.compare("env.complete", f"{used}/.complete", wish["digest"], mark or "missing")
    _python(place, used, wish["python"], sheet)
    site = place.at(f"{used}/lib/python{wish['python']}/site-packages")
    if not site.is_dir():
        sheet.differs("wheel.missing", f"all {len(wish['dists'])}", "installed", f"no {site.name}")
        return
    try:
        tree = Tree(place.at(used))
        dists = installed(site, sheet)
    except OSError as error:
        raise Unseen(f"{error.filename}: {error.strerror}") from error
    compare_dists(dists, wish["dists"], sheet)
    sealed = seal(place.at(used), tree) if wish["sealed"] and mark else None
    compare_files(tree, site, dists, wish, sheet, sealed, deep)


def _python(place: Place, env: str, version: str, sheet: Sheet) -> None:
    settings = dict(
        (key.strip(), value.strip())
        for key, _, value in (
            line.partition("=") for line in (place.read(f"{env}/pyvenv.cfg") or "").splitlines()
        )
    )
    built = settings.get("version_info", settings.get("version", "no pyvenv.cfg"))
    if not re.match(re.escape(version) + r"(\.|$)", built):
        sheet.differs("env.python", "pyvenv.cfg", version, built)
    elif settings.get("include-system-site-packages") != "false":
        sheet.differs("env.python", "pyvenv.cfg", "no system packages", "system packages count")
    else:
        sheet.agrees("env", "Python", built)
    try:
        program = place.at(f"{env}/bin/python").readlink().name
    except OSError:
        program = "no link"
    sheet.compare("env.python", "bin/python", f"python{version}", program)


def installed(site: Path, sheet: Sheet) -> list[Dist]:
    """All distributions; one whose metadata can't be read is a difference of its own."""
    found = []
    for folder in sorted(site.iterdir()):
        if folder.name.endswith((".egg-info", ".egg", ".egg-link")):
            sheet.differs("wheel.extra", folder.name, "only wheels", "installed without a RECORD")
        if not folder.name.endswith(".dist-info"):
            continue
        try:
            found.append(Dist(folder))
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else str(error)
            sheet.differs("wheel.record", folder.name, "METADATA and RECORD", f"unreadable: {said}")
    return found


def compare_dists(dists: list[Dist], locked: dict[str, str], sheet: Sheet) -> None:
    seen: dict[str, str] = {}
    for dist in dists:
        if dist.name in seen or dist.name not in locked:
            wish = f"{locked[dist.name]}, once" if dist.name in locked else "not in the lock"
            sheet.differs("wheel.extra", dist.name, wish, dist.version)
        else:
            sheet.compare("wheel.version", dist.name, locked[dist.name], dist.version)
        seen[dist.name] = dist.version
    for name in sorted(locked.keys() - seen.keys()):
        sheet.differs("wheel.missing", name, locked[name], "not installed")


def seal(env: Path, tree: Tree) -> int | None:
    """When the environment was whole, ns; None for a copy, whose file times say nothing.

    A later touch of the mark moves its own time and not the folder's.
    """
    when = min((env / ".complete").stat().st_ctime_ns, env.stat().st_mtime_ns)
    late = sum(changed > when for _, changed, _ in tree.files.values())
    return when if late <= len(tree.files) // 2 else None


def compare_files(
    tree: Tree,
    site: Path,
    dists: list[Dist],
    wish: dict[str, Any],
    sheet: Sheet,
    sealed: int | None,
    deep: bool,
) -> None:
    """Every file of every RECORD, and every file of no RECORD; ``sealed`` None: not known."""
    prefix = os.path.relpath(site, tree.top)
    known: set[str] = set()
    read: list[tuple[str, str, str]] = []  # path, expected digest, distribution
    for dist in dists:
        locked = dist.name in wish["dists"]
        if locked:
            _record(dist, tree, prefix, wish, sheet, sealed)
        for path, digest, size in dist.rows:
            name = os.path.normpath(f"{prefix}/{path}")
            known.add(name)
            if not digest or name.endswith(".pyc") or not locked:
                continue  # RECORD itself, bytecode compiled at the build, or a stranger's
            state = tree.files.get(name)
            subject, wanted = f"{name} ({dist.name})", digest[:19]
            if state is None or not state[2]:
                what = "missing" if state is None else "not a plain file"
                sheet.differs("wheel.file", subject, wanted, what)
            elif size and int(size) != state[0]:
                sheet.differs("wheel.file", subject, f"{size} bytes", f"{state[0]} bytes")
            elif deep or sealed is None or state[1] > sealed:
                read.append((name, digest, dist.name))
    strays(tree, known, sheet, sealed)
    left = _read(tree, read, sheet, None if deep else READ_S)
    if left:
        sheet.could_not(
            "wheel",
            f"{left} files changed since the environment was built and {READ_S:g} s were not "
            "enough to read them: audit it with --deep",
        )
    if deep or sealed is None:
        said = f"the content of all {len(read)} files was read and hashed"
        if sealed is None and wish["sealed"]:
            said += "; the environment isn't where it was built (a copy, a restore), so its times "
            said += "don't help and its compiled bytecode isn't proved"
    else:
        said = (
            f"{len(known)} files have their size and were not changed since the build, or were "
            f"read and hashed ({len(read)}); decay of the disk and a clock set back need --deep"
        )
    sheet.proves.append(f"wheels: {said}")
    sheet.agrees("wheel", "files", said)


def _record(
    dist: Dist, tree: Tree, prefix: str, wish: dict[str, Any], sheet: Sheet, sealed: int | None
) -> None:
    """The RECORD itself: the locked wheel's where that is known, else unchanged since the seal."""
    expected = wish["records"].get(dist.name)
    state = tree.files.get(f"{prefix}/{dist.folder}/RECORD")
    if expected and record_digest(dist.rows) != expected:
        sheet.differs("wheel.record", dist.name, "the locked wheel's", "another list of files")
    elif not expected and sealed is not None and state and state[1] > sealed:
        sheet.differs("wheel.record", dist.name, "unchanged since the build", "changed")


def strays(tree: Tree, known: set[str], sheet: Sheet, sealed: int | None) -> None:
    """Files of no RECORD: the environment's own, bytecode of a proved source, or a stranger's."""
    for name, (_, changed, _) in sorted(tree.files.items()):
        late = sealed is not None and changed > sealed
        if name.endswith(".pyc"):
            folder, _, cache = name.rpartition("/__pycache__/")
            if f"{folder}/{cache.split('.')[0]}.py" not in known:
                sheet.differs("wheel.stray", name, "no such file", "bytecode without its source")
            elif late:
                sheet.differs("wheel.bytecode", name, "compiled at the build", "compiled later")
        elif name in known:
            continue
        elif not _VENV.fullmatch(name):
            sheet.differs("wheel.stray", name, "no such file", "in no RECORD")
        elif late and name not in _MAY_CHANGE:
            sheet.differs("wheel.stray", name, "as it was built", "changed later")


def _read(tree: Tree, read: list[tuple[str, str, str]], sheet: Sheet, limit_s: float | None) -> int:
    """Hash files and compare; returns how many there was no time for."""
    end = None if limit_s is None else time.monotonic() + limit_s

    def one(item: tuple[str, str, str]) -> str | None:
        if end is not None and time.monotonic() > end:
            return None
        try:
            return content_digest(f"{tree.top}/{item[0]}", item[1].partition("=")[0])
        except (OSError, ValueError) as error:
            return f"unreadable: {error}"

    with ThreadPoolExecutor(min(HASHERS, os.cpu_count() or 1)) as pool:
        found = list(pool.map(one, read))
    for (name, digest, dist), answer in zip(read, found, strict=True):
        if answer is not None and answer != digest:
            subject = f"{name} ({dist})"
            if answer.startswith("unreadable"):
                sheet.could_not("wheel", f"{subject}: {answer}")
            else:
                sheet.differs("wheel.file", subject, digest[:19], answer[:19])
    return sum(answer is None for answer in found)
