"""The stack's models: the mark that their files were proved, and the files against it.

The mark holds each file's size and time of change (ctime), which no program can set. ``deep`` reads
every file.
"""

from __future__ import annotations

from typing import Any

from rackpin.audit.node.place import Place
from rackpin.audit.node.record import file_digest
from rackpin.audit.node.sheet import Sheet

MODEL_MARK = ".rackpin-model"
NS = 1_000_000_000


def look_at_models(place: Place, wish: dict[str, Any], sheet: Sheet, deep: bool) -> None:
    """Every model that an engine of this node serves."""
    for model in wish["models"]:
        text = place.read(f"{model['path']}/{MODEL_MARK}")
        digest, *lines = (text or "").splitlines() or ["missing"]
        subject = f"{model['path']}/{MODEL_MARK}"
        sheet.compare("model.mark", subject, model["digest"], digest)
        if digest == model["digest"]:
            _files(place, model, lines, sheet, deep)


def _files(place: Place, model: dict[str, Any], lines: list[str], sheet: Sheet, deep: bool) -> None:
    proved = {}
    for line in lines:
        size, _, rest = line.partition(" ")
        changed, _, name = rest.partition(" ")
        proved[name] = (size, changed)
    good = 0
    for name, sha256, size in model["files"]:
        path = place.at(f"{model['path']}/{name}")
        try:
            state = path.stat()
        except FileNotFoundError:
            sheet.differs("model.file", str(path), f"{size} bytes", "missing")
            continue
        time = f"{state.st_ctime_ns // NS}.{state.st_ctime_ns % NS:09d}"
        found = (str(state.st_size), time)
        if found[0] != str(size):
            sheet.differs("model.file", str(path), f"{size} bytes", f"{found[0]} bytes")
        elif name not in proved or proved[name] != found:
            sheet.differs("model.file", str(path), "unchanged since it was proved", "changed later")
        elif deep and (read := file_digest(str(path), "sha256").hex()) != sha256:
            sheet.differs("model.file", str(path), sha256[:12], read[:12])
        else:
            good += 1
    said = "read and hashed" if deep else "unchanged since they were proved"
    sheet.agrees("model", model["path"], f"{good} of {len(model['files'])} files {said}")
