"""The last audit as a Prometheus textfile, replaced in one step."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from rackpin.audit.node.sheet import KINDS

_SUCCESS = "rackpin_audit_last_success_timestamp_seconds"


def metrics_text(target: dict[str, Any], wish: dict[str, Any], now: float, last: float) -> str:
    """Text of the file. ``last``: epoch of the last audit that saw everything, 0 for never."""
    seen_all = not target["unseen"]
    areas = sorted({kind.split(".")[0] for kind in KINDS} | {u["area"] for u in target["unseen"]})
    unseen = [item["area"] for item in target["unseen"]]
    labels = ",".join(f'{key}="{wish[key]}"' for key in ("stack", "lock"))
    lines = [
        "# HELP rackpin_audit_drift Differences from the lock and the inventory, by kind.",
        "# TYPE rackpin_audit_drift gauge",
        *(f'rackpin_audit_drift{{kind="{k}"}} {target["counts"].get(k, 0)}' for k in sorted(KINDS)),
        "# HELP rackpin_audit_could_not_look Questions of an area without an answer.",
        "# TYPE rackpin_audit_could_not_look gauge",
        *(f'rackpin_audit_could_not_look{{area="{a}"}} {unseen.count(a)}' for a in areas),
        "# HELP rackpin_audit_last_run_timestamp_seconds When the last audit ended.",
        "# TYPE rackpin_audit_last_run_timestamp_seconds gauge",
        f"rackpin_audit_last_run_timestamp_seconds {now:.0f}",
        f"# HELP {_SUCCESS} When an audit last saw all it looks at, drift or not.",
        f"# TYPE {_SUCCESS} gauge",
        f"{_SUCCESS} {now if seen_all else last:.0f}",
        "# HELP rackpin_audit_duration_seconds How long the last audit took.",
        "# TYPE rackpin_audit_duration_seconds gauge",
        f"rackpin_audit_duration_seconds {target['seconds']:.3f}",
        "# HELP rackpin_audit_lock_info The lock that the node should carry.",
        "# TYPE rackpin_audit_lock_info gauge",
        f"rackpin_audit_lock_info{{{labels}}} 1",
    ]
    return "\n".join(lines) + "\n"


def last_success(path: Path) -> float:
    """The time in a file of an earlier audit; 0 when there is none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    match = re.search(rf"(?m)^{_SUCCESS} (\d+)$", text)
    return float(match[1]) if match else 0.0


def write_metrics(path: Path, text: str) -> None:
    """A scrape sees the old file or the new one. OSError when it can't be written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")  # not *.prom: nobody reads it
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
