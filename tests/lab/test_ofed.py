"""DOCA's kernel modules follow kernel and driver: real DKMS, compiler and headers on a lab host.

The modules are small ones with the names and places of the real ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rackpin.stack import wheelhouse
from rackpin.stack.hostpins import RdmaPin
from rackpin.stack.lock import STACKS, load_stack, write_lock
from rackpin.stack.pins import load_pins
from tests.lab.fleet import FleetLab, booted, changes

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1200)]
NAME, HOST = "test-ofed", "ofed-1"
STACK = load_stack("debian12-r535")
assert STACK.lock.host.kernel is not None and STACK.lock.host.driver is not None
KERNEL, OTHER = STACK.lock.host.kernel.release, "6.1.0-50-amd64"
DRIVER = STACK.lock.host.driver.version
DOCA = "24.10-2.1.8.0"
LAB = f"""
name: {NAME}
base: {{ suite: bookworm, components: [main, contrib, non-free, non-free-firmware] }}
hosts:
  - {{ name: {HOST}, groups: [head], sku: l40s-8, hardware: l40s-8,
       faults: [not-installed, kernel={KERNEL}] }}
"""
PREPARE = f"""set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install linux-headers-{KERNEL} gcc-12 dkms make \
  >/dev/null 2>&1
module() {{  # PACKAGE VERSION FILE
  d=/usr/src/$1-$2; mkdir -p $d
  printf '#include <linux/module.h>\\nMODULE_LICENSE("GPL"); MODULE_VERSION("%s");\\n' $2 >$d/$3.c
  echo "obj-m := $3.o" >$d/Makefile
  cat >$d/dkms.conf <<END
PACKAGE_NAME=$1
PACKAGE_VERSION=$2
BUILT_MODULE_NAME[0]=$3
DEST_MODULE_LOCATION[0]=/updates/dkms
MAKE[0]="make -C /lib/modules/\\$kernelver/build M=\\$dkms_tree/$1/$2/build modules"
CLEAN="true"
AUTOINSTALL=yes
END
  dkms add -m $1 -v $2 >/dev/null
}}
module mlnx-ofed-kernel 24.10 mlx5_core
module nvidia-current {DRIVER} nvidia-peermem
dkms install -m nvidia-current -v {DRIVER} -k {KERNEL} >/dev/null
dkms status
"""
SYMBOLS = "/usr/src/ofa_kernel/default/Module.symvers"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    directory = Path(tmp_path_factory.mktemp("ofed"))
    (directory / "lab.yaml").write_text(LAB)
    wheelhouse.build(STACK, say=print)
    with booted(directory / "lab.yaml", NAME, directory) as lab:
        lab.environment["RACKPIN_STACKS"] = str(make_stack(directory / "stacks"))
        yield lab


def make_stack(root: Path) -> Path:
    """debian12-r535 with DOCA as its network's software; its packages are there already."""
    name = STACK.pins.name
    root.mkdir()
    shutil.copytree(STACKS / name, root / name)
    pins = yaml.safe_load((root / name / "pins.yaml").read_text())
    pins["rdma"] = {"stack": "doca", "version": DOCA}
    (root / name / "pins.yaml").write_text(yaml.safe_dump(pins))
    lock = STACK.lock
    packages = {key: [p for p in some if p.role != "rdma"] for key, some in lock.packages.items()}
    made = lock.but(
        pins_sha256=load_pins(root / name).sha256,
        host=lock.host.model_copy(update={"rdma": RdmaPin(stack="doca", version=DOCA)}),
        packages=packages,
    )
    write_lock(made, root)
    load_stack(name, root)
    return root


def test_modules_follow_the_kernel_and_each_other(site: FleetLab) -> None:
    stack = ("--data", f"stack={STACK.pins.name}", "--data", "instances=[]")
    site.ask(HOST, PREPARE, 400)

    first = site.run("fabric", *stack)  # DOCA has nothing for the running kernel yet
    assert "fabric: kernel modules" in changes(first), first.tail
    built = site.ask(HOST, "dkms status mlnx-ofed-kernel")
    assert built == f"mlnx-ofed-kernel/24.10, {KERNEL}, x86_64: installed"
    assert changes(site.run("fabric", *stack)) == []

    # DOCA's symbols are newer than nvidia-peermem: it is built again, against them
    file = f"/lib/modules/{KERNEL}/updates/dkms/nvidia-peermem.ko"
    before = int(site.ask(HOST, f"stat -c %Y {file}"))
    site.ask(HOST, f"mkdir -p $(dirname {SYMBOLS}); touch {SYMBOLS}")
    again = site.run("fabric", *stack)
    assert "fabric: kernel modules" in changes(again), again.tail
    assert int(site.ask(HOST, f"stat -c %Y {file}")) > before
    assert changes(site.run("fabric", *stack)) == []

    # another kernel without headers: the node stops, with what dkms says
    site.faults(HOST, "not-installed", f"kernel={OTHER}")
    moved = site.run("fabric", *stack)
    assert moved.code == 1, moved.tail
    assert OTHER in moved.text and "headers" in moved.text.lower(), moved.tail
