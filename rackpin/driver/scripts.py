"""What a node runs for the driver stage: POSIX sh texts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from rackpin.driver.want import Want


def build_log_script() -> str:
    """What the compiler said of modules that could not be built; to stderr."""
    return (
        'for l in /var/lib/dkms/nvidia*/*/build/make.log; do [ -e "$l" ] || continue; '
        'echo "last lines of $l:"; grep -E -m 3 \'error:|ERROR\' "$l"; tail -n 12 "$l"; '
        "done >&2"
    )


def build_script(want: Want, kernels: Iterable[str]) -> str:
    """Build and install the modules for these kernels; a failed one leaves its log and is found.

    Prints nothing of thousands of lines; the proof after it looks at what is there.
    """
    lines = ["LC_ALL=C; export LC_ALL"]
    module = f"-m {shlex.quote(want.module)} -v {shlex.quote(want.version)}"
    for kernel in kernels:
        of = f"{module} -k {shlex.quote(kernel)}"
        # --force: files that are not what DKMS built, e.g. of another hand, are replaced.
        lines.append(f"dkms install {of} --force >/run/rackpin-dkms.log 2>&1 </dev/null || {{")
        lines.append("  tail -n 5 /run/rackpin-dkms.log >&2")
        lines.append(f"  {build_log_script()}; }}")
    return "\n".join([*lines, "rm -f /run/rackpin-dkms.log", ""])


def load_script(modules: Iterable[str]) -> str:
    """Load modules in order; the kernel's own words when one is refused."""
    steps = " && ".join(f"modprobe {shlex.quote(name)}" for name in modules)
    return f"{steps} || {{ dmesg 2>/dev/null | grep -E 'NVRM|nvidia' | tail -n 5 >&2; exit 1; }}"


def stop_script(units: Iterable[str]) -> str:
    """End units as they end themselves; each has its own deadline."""
    return f"systemctl stop -- {' '.join(map(shlex.quote, units))}"


# Detached, so that the answer comes back before the connection goes.
REBOOT = "setsid sh -c 'sleep 1; systemctl reboot' </dev/null >/dev/null 2>&1 &"
# Units that start at boot have started or failed; whatever it answers, the node is up.
SETTLE = "systemctl is-system-running --wait; true"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
