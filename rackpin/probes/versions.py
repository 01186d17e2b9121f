"""Print the distributions of the environment this runs in, as one line of JSON.

Standard library only, and quick: it runs on nodes, in every survey.
Output: {"python": "3.11.2", "dists": {"torch": "2.13.0+cpu", …}}; a distribution whose
metadata can't be read has version "?" or is missing, and is then found to differ.
"""

import json
import platform
import re
import sys
from pathlib import Path


def dists(paths: list[str]) -> dict[str, str]:
    """Version by normalised name, from the metadata folders' own text."""
    found: dict[str, str] = {}
    for path in paths:
        for folder in sorted(Path(path).glob("*.dist-info")):
            name, version = "", "?"
            try:
                with (folder / "METADATA").open(encoding="utf-8", errors="replace") as stream:
                    for line in stream:
                        if line.startswith("Name:"):
                            name = line[5:].strip()
                        elif line.startswith("Version:"):
                            version = line[8:].strip()
                        elif not line.strip():
                            break  # the headers end here
            except OSError:
                name = folder.name.split("-")[0]
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return found


if __name__ == "__main__":
    site = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    print(json.dumps({"python": platform.python_version(), "dists": dists(site)}))
