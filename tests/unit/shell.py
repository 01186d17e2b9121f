"""Shell text run as a node would."""

from __future__ import annotations

import subprocess


def sh(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run through ``sh -s``, as the survey and operations do."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"} | env
    return subprocess.run(
        ["sh", "-s"], input=script, capture_output=True, text=True, timeout=60, env=environment
    )
