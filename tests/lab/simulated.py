"""Cards and adapters in a lab host's /sys. They are files: no driver is there, nothing is sent."""

from __future__ import annotations

import base64
import re
import subprocess

from tests.lab.fleet import FleetLab, Run
from tests.unit.fabric_samples import Tree

# /sys with the samples' directories in it: sysfs itself takes none, so another file system holds
# mounts of all that was there.
MOUNT = r"""set -e
new=/run/simulated/sys
show() { # every directory below /sys/$1 but those that the samples have, in place
  mkdir -p "$new/$1"
  for e in /sys/$1/* ; do
    n=$1/${e##*/}
    case " $2 " in *" $n "*) continue ;; esac
    if [ -L "$e" ]; then ln -s "$(readlink "$e")" "$new/$n"
    elif [ -d "$e" ]; then mkdir -p "$new/$n"; mount --rbind "$e" "$new/$n"; fi
  done
}
show "" " /class /bus /devices"
show class "class/infiniband class/iommu"
show bus "bus/pci"
show devices ""
mount --rbind /run/simulated/sys /sys
"""


def changes(run: Run) -> list[str]:
    """The operations that changed something."""
    assert run.code == 0, run.tail
    done = re.findall(r"Starting operation: (.+)\n(?:(?!-->).*\n)*? +\[\w+\] Success", run.text)
    assert done or "] Success" not in run.text, run.tail
    return [name.strip() for name in done]


def carry(site: FleetLab, host: str, tree: Tree) -> None:
    """Put the tree on the host, and its directories into /sys."""
    packed = subprocess.run(
        ["tar", "-C", str(tree.root), "-cz", "."], capture_output=True, check=True, timeout=60
    )
    text = base64.b64encode(packed.stdout).decode()
    done = site.feed(
        host,
        f"mkdir -p /run/simulated && base64 -d <<'X' | tar -C /run/simulated -xz && echo ok\n"
        f"{text}\nX\n",
    )
    assert done.strip() == "ok"
    assert site.ask(host, MOUNT + "ls -d /sys/class/net/host0 /sys/bus/pci/devices/*")
