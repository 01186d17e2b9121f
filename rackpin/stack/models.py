"""Models by their files: a manifest beside the pins says which, each with its sha256."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from rackpin.stack.items import ModelFile
from rackpin.stack.model import Model, StackError, explain
from rackpin.stack.pins import Pins
from rackpin.stack.wheelfile import sha256_of


class ModelManifest(Model):
    """``{"files": [{"path", "sha256", "size", "url"}]}``; url only where a public place has it."""

    files: list[ModelFile] = Field(min_length=1)


def manifest_of(
    directory: Path, url: str = "", told: Callable[[str], None] = lambda path: None
) -> str:
    """The manifest of a model's directory, as text. ``url``: where its files lie publicly."""
    try:
        paths = sorted(p for p in directory.rglob("*") if p.is_file())
    except OSError as error:
        raise StackError(f"{directory}: {error.strerror}") from None
    if not paths:
        raise StackError(f"{directory}: holds no file; give the directory of a model")
    rows: list[dict[str, Any]] = []
    for path in paths:
        name = path.relative_to(directory).as_posix()
        told(name)
        row = {"path": name, "sha256": sha256_of(path), "size": path.stat().st_size}
        rows.append({**row, "url": f"{url.rstrip('/')}/{name}"} if url else row)
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    return f'{{"files": [\n  {lines}\n]}}\n'


def read_models(pins: Pins, root: Path) -> dict[str, list[ModelFile]]:
    """The files of each model that the pins name, sorted by path. Raises :class:`StackError`."""
    found = {}
    for name, pin in sorted(pins.models.items()):
        file = root / pins.name / pin.manifest
        where = f"stacks/{pins.name}/pins.yaml: models.{name}.manifest: {file}"
        try:
            manifest = ModelManifest.model_validate_json(file.read_text(encoding="utf-8"))
        except ValidationError as error:
            remedy = "make it anew with rackpin model DIRECTORY"
            raise StackError(explain(error, file, remedy, ModelManifest)) from None
        except (OSError, UnicodeDecodeError) as error:
            raise StackError(
                f"{where}: can't be read ({error}); run: rackpin model DIRECTORY > {file}"
            ) from None
        files = sorted(manifest.files, key=lambda item: item.path)
        if len({item.path for item in files}) < len(files):
            raise StackError(f"{where}: names a path twice; make it anew with rackpin model")
        found[name] = files
    return found
