"""The JSON schema of ``report.json``: ``python -m rackpin.report.schema`` writes its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rackpin.findings import SCHEMA_VERSION, Report

FILE = Path(__file__).parents[2] / "docs" / "report.schema.json"  # of a checkout


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the report as it is written."""
    made = Report.model_json_schema(mode="serialization")
    for model in (made, *made["$defs"].values()):
        if "properties" in model:  # defaults are written too, so a reader may rely on every key
            model["required"] = sorted(model["properties"])
    version = made["properties"]["schema_version"]
    version.pop("default", None)
    version["const"] = SCHEMA_VERSION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rackpin report, version {SCHEMA_VERSION}",
        **{key: value for key, value in made.items() if key != "title"},
    }


def text() -> str:
    """The file's content."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(FILE)
