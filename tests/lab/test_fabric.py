"""A bare host with cards and adapters in its /sys: what the fabric stage makes of it, once.

The cards are files: no driver is there and nothing is sent. Programs, units, their order are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.lab.hardware.sysfs import ACS_ON
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from tests.lab.fleet import FleetLab, booted, changes

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
NAME = "test-fabric"
HOST = "head1"
LAB = f"""
name: {NAME}
base: {{ suite: bookworm }}
hosts:
  - {{ name: {HOST}, groups: [head], sku: lab-cpu, hardware: h100-sxm-8, faults: [no-cards] }}
"""
NDR = "=" + ",".join(f"mlx5_{i}" for i in range(8))
PROGRAMS = r"""set -e
mkdir -p /boot/grub /etc/default
printf 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n' >/etc/default/grub
printf 'menuentry x {\n linux /vmlinuz root=/dev/x quiet\n}\n' >/boot/grub/grub.cfg
cat >/usr/local/bin/update-grub <<'X'
#!/bin/sh
for f in /etc/default/grub /etc/default/grub.d/*.cfg; do [ -e "$f" ] && . "$f"; done
printf 'menuentry x {\n linux /vmlinuz root=/dev/x %s\n}\n' "$GRUB_CMDLINE_LINUX_DEFAULT" \
  >/boot/grub/grub.cfg
X
chmod 755 /usr/local/bin/update-grub
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    directory = Path(tmp_path_factory.mktemp("fabric"))
    (directory / "lab.yaml").write_text(LAB)
    with booted(directory / "lab.yaml", NAME, directory) as lab:
        yield lab


def test_fabric(site: FleetLab) -> None:
    # -- no card: said, and nothing is touched
    bare = site.run("fabric")
    assert changes(bare) == []
    assert "no NVIDIA card on its PCI bus" in bare.text
    assert site.ask(HOST, "ls /etc/nccl.conf /etc/rackpin 2>/dev/null | wc -l") == "0"

    # -- eight cards with eight adapters, one without a link; ACS as a vendor left it
    site.faults(HOST, "acs-on", "hca-down=mlx5_5")
    site.feed(HOST, PROGRAMS)
    first = site.run("fabric")
    assert changes(first), "files, units"
    conf = site.ask(HOST, "cat /etc/nccl.conf").splitlines()
    assert f"NCCL_IB_HCA={NDR}" in conf and "NCCL_SOCKET_IFNAME==host0" in conf
    assert f"NCCL_IB_HCA={NDR}" in site.ask(HOST, "cat /etc/rackpin/nccl.env").splitlines()
    assert "mlx5_5 port 1 is DOWN/Polling" in first.text
    for unit in ("rackpin-acs.service", "rackpin-hca-names.service"):
        assert site.show(HOST, unit, "ActiveState") == "active"
        assert site.show(HOST, unit, "UnitFileState") == "enabled"
    journal = site.ask(HOST, "journalctl -u rackpin-acs -o cat")
    assert journal.count(f"was {ACS_ON}, is off") == 24  # of each switch the root port and two more
    assert "iommu=pt" in site.ask(HOST, "cat /boot/grub/grub.cfg")
    table = site.ask(HOST, "grep -v '^#' /etc/rackpin/hca-names").splitlines()
    assert len(table) == 8 and "0000:18:00.0 mlx5_0" in table

    # -- again: nothing, by the survey alone
    second = site.run("fabric")
    assert changes(second) == []
    assert second.asked == {"executions": {HOST: 1}, "misses": 0}
    assert "reboot pending: iommu=pt" in second.text

    # -- a bridge that has ACS on again, an edited file, an adapter that came under another name
    config = "/sys/devices/pci0000:15/0000:15:01.0/config"
    site.ask(HOST, f"printf '\\035\\000' | dd of={config} bs=1 seek=334 conv=notrunc 2>/dev/null")
    site.ask(HOST, "echo NCCL_DEBUG=TRACE >>/etc/nccl.conf")
    site.ask(HOST, "cd /sys/class/infiniband && mv mlx5_0 mlx5_20")
    third = site.run("fabric")
    done = "\n".join(changes(third))
    assert "fabric: ACS" in done and "fabric: file /etc/nccl.conf" in done
    assert "mlx5_20 at 0000:18:00.0 should be mlx5_0" in third.text
    assert "TRACE" not in site.ask(HOST, "cat /etc/nccl.conf")
    assert site.ask(HOST, f"od -An -tu2 -j 334 -N 2 {config}") == "0"
    assert "0000:18:00.0 mlx5_0" in site.ask(HOST, "cat /etc/rackpin/hca-names"), "stays pinned"


@pytest.mark.slow
def test_the_whole_way_with_cards(site: FleetLab) -> None:
    """After the test above: the units have what was found, and the whole is once only."""
    wheelhouse.build(load_stack("cpu-lab"), say=print)
    assert site.run("site").ok.ready
    pid = site.show(HOST, "ray-head.service", "MainPID")
    env = site.ask(HOST, f"tr '\\0' '\\n' </proc/{pid}/environ").splitlines()
    listed = NDR.replace("mlx5_0,", "") + ",mlx5_20"  # as it is called now
    assert f"NCCL_IB_HCA={listed}" in env
    assert "NCCL_SOCKET_IFNAME==host0" in env
    again = site.run("site")
    assert again.ok and again.node(HOST).changes == []
    assert again.asked == {"executions": {HOST: 2}, "misses": 0}
