"""The lab: real Debian hosts (systemd, sshd, apt) on one machine."""

from rackpin.lab.errors import LabError
from rackpin.lab.lifecycle import down, reboot, reset, up
from rackpin.lab.machine import preflight
from rackpin.lab.state import HostState, LabState, load

__all__ = [
    "HostState",
    "LabError",
    "LabState",
    "down",
    "load",
    "preflight",
    "reboot",
    "reset",
    "up",
]
