"""What a node with the test fleet's repositories and pins answers about apt."""

from __future__ import annotations

import base64
from dataclasses import replace

from rackpin.apt.pins import FILE
from rackpin.apt.state import KEYRINGS, AptState, parse_state
from rackpin.desired import Target
from rackpin.stages import apt as stage

# apt-cache policy as apt 2.6 prints it, with rackpin's pins in place.
POLICY = """\
nvidia-utils-535:
  Installed: 535.129.03-0ubuntu1
  Candidate: 535.129.03-0ubuntu1
  Version table:
     535.183.01-0ubuntu1 -1
        500 http://10.9.0.1:8901/nvidia  Packages
 *** 535.129.03-0ubuntu1 30000
        500 http://10.9.0.1:8901/nvidia  Packages
        100 /var/lib/dpkg/status
site-agent+x:
  Installed: (none)
  Candidate: 1:2.0-1
  Version table:
     1:2.0-1 30000
        500 file:/srv/debs stable/main amd64 Packages
"""
STATUS = """\
dpkg|amd64|install|installed|1.21.22
nvidia-utils-535|amd64|hold|installed|535.129.03-0ubuntu1
"""
LISTS = """\
file:///srv/debs/|stable|/var/lib/apt/lists/_srv_debs_dists_stable_main_binary-amd64_Packages
http://10.9.0.1:8901/nvidia/||/var/lib/apt/lists/10.9.0.1:8901_nvidia_Packages
"""
CUDA = """\
E: Unable to correct problems, you have held broken packages.
"""


def files_text(files: dict[str, str]) -> str:
    return "".join(
        f"{path}|{base64.b64encode(text.encode()).decode()}\n" for path, text in files.items()
    )


def state_text(
    target: Target,
    *,
    sources: dict[str, str] | None = None,
    preferences: dict[str, str] | None = None,
    held: str = "nvidia-utils-535\n",
    status: str = STATUS,
    policy: str = POLICY,
    proved: str | None = None,
    ours: bool = True,
) -> str:
    """The answer to the state script: the node as wished, with the site's files beside."""
    files = {f.path: f.content for f in stage.trusted_files(target)} if ours else {}
    keyrings = {path: text for path, text in files.items() if path.startswith(KEYRINGS)}
    lists = {path: text for path, text in files.items() if path.endswith(".sources")}
    pins = {path: text for path, text in files.items() if path == FILE}
    debian = {"/etc/apt/sources.list": "deb http://deb.debian.org/debian bookworm main\n"}
    return "\n".join(
        [
            "## sources",
            files_text({**debian, **(sources or {}), **lists}).rstrip(),
            "## preferences",
            files_text({**(preferences or {}), **pins}).rstrip(),
            "## keyrings",
            files_text(keyrings).rstrip(),
            "## proved",
            (stage.digest(target) if ours else "") if proved is None else proved,
            "## held",
            held.rstrip(),
            "## status",
            status.rstrip(),
            "## policy",
            policy.rstrip(),
            "## end",
            "",
        ]
    )


def state(target: Target, **changes: object) -> AptState:
    return parse_state(state_text(target, **changes).splitlines())  # type: ignore[arg-type]


def look_text(
    *,
    policy: str = POLICY,
    held: str = "nvidia-utils-535\n",
    upgrade: str = "",
    upgrade_rc: int = 0,
    cuda: str = CUDA,
) -> str:
    return (
        f"## policy\n{policy}## held\n{held}## dist-upgrade = {upgrade_rc}\n{upgrade}"
        f"## install cuda = {100 if cuda == CUDA else 0}\n{cuda}## end\n"
    )


def without_repository(target: Target, name: str) -> Target:
    """The same target whose inventory no longer has a repository and its pins."""
    config = target.fleet.config
    config = config.model_copy(
        update={
            "apt_repositories": [r for r in config.apt_repositories if r.name != name],
            "apt_pins": [p for p in config.apt_pins if p.origin != name],
        }
    )
    return replace(target, fleet=target.fleet.model_copy(update={"config": config}))
