"""gdrcopy on a Debian host: DKMS, compiler, headers and the driver's source are real, cards not.

The module is a small one of the same shape. RACKPIN_GDRCOPY names an archive of the real source
to be built in its place.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from rackpin.stack import wheelhouse
from rackpin.stack.items import Source
from rackpin.stack.lock import STACKS, load_stack, write_lock
from rackpin.stack.pins import load_pins
from tests.lab.fleet import FleetLab, booted, changes
from tests.unit.test_nccl_build import archive

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1800)]
NAME = "test-gdrcopy"
HOST = "gdr-1"
STACK = load_stack("debian12-r535")
assert STACK.lock.host.kernel is not None and STACK.lock.host.driver is not None
KERNEL = STACK.lock.host.kernel.release
DRIVER = next(
    deb.version
    for deb in STACK.lock.require_debs("debian-12").debs
    if deb.name == "nvidia-kernel-dkms"
)
LAB = f"""
name: {NAME}
base: {{ suite: bookworm, components: [main, contrib, non-free, non-free-firmware] }}
hosts:
  - {{ name: {HOST}, groups: [head], sku: l40s-8, hardware: l40s-8,
       faults: [not-installed, kernel={KERNEL}] }}
"""
# The driver's headers are taken from its source, as the real module does.
MODULE = """
#include <linux/module.h>
#include "nv-p2p.h"
static unsigned page = NVIDIA_P2P_PAGE_SIZE_64KB;
static int __init start(void) { return page == 1 ? 0 : -1; }
static void __exit end(void) {}
module_init(start); module_exit(end);
MODULE_LICENSE("Dual MIT/GPL"); MODULE_VERSION("9.1"); MODULE_DESCRIPTION("a test");
"""
KBUILD = """
ifneq ($(KERNELRELEASE),)
obj-m := gdrdrv.o
ccflags-y += -I$(NVIDIA_SRC_DIR)
else
export NVIDIA_SRC_DIR
all:
\tsh $(CONF_SCRIPT_DIR)/ask.sh $(KVER)
\t$(MAKE) -C /lib/modules/$(KVER)/build M=$(CURDIR) modules
clean:
\trm -f *.o *.ko
endif
"""
LIBRARY = """
config:
lib:
\t$(CC) -shared -fPIC -Wl,-soname,libgdrapi.so.2 -o libgdrapi.so.2.5 gdrapi.c
"""
SMALL = {
    "src/gdrdrv/gdrdrv.c": MODULE,
    "src/gdrdrv/Makefile": KBUILD,
    "src/Makefile": LIBRARY,
    "src/gdrapi.c": "#include <dlfcn.h>\nint gdr_open(void) { return 0; }\n",
    "scripts/ask.sh": '#!/bin/sh\n[ -d "/lib/modules/$1/build" ]\n',
}
# As the driver stage would leave it, without building the driver for ten minutes.
PREPARE = f"""set -e
export DEBIAN_FRONTEND=noninteractive
cd /root
apt-get -qq update
apt-get -qq -y --no-install-recommends install linux-headers-{KERNEL} gcc-12 dkms make python3 \
  libc6-dev >/dev/null 2>&1
apt-get -qq download nvidia-kernel-dkms={DRIVER}
dpkg -x nvidia-kernel-dkms_*.deb /
echo 'nvidia {STACK.lock.host.driver.version}' >/run/rackpin-lab/loaded
ls -d /usr/src/nvidia-current-*
"""


PACKAGE = """set -e
mkdir -p /root/p/DEBIAN /root/p/usr/src/gdrdrv-2.4
echo 'PACKAGE_NAME=gdrdrv' >/root/p/usr/src/gdrdrv-2.4/dkms.conf
printf 'Package: gdrdrv-dkms\\nVersion: 2.4\\nArchitecture: all\\nMaintainer: x <x@localhost>\\n\
Description: x\\n' >/root/p/DEBIAN/control
dpkg-deb -b /root/p /root/p.deb >/dev/null
dpkg -i /root/p.deb >/dev/null
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    directory = Path(tmp_path_factory.mktemp("gdrcopy"))
    (directory / "lab.yaml").write_text(LAB)
    served = directory / "served"
    served.mkdir()
    real = os.environ.get("RACKPIN_GDRCOPY")
    data = Path(real).read_bytes() if real else archive(SMALL)
    (served / "source.tar.gz").write_bytes(data)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(served))
    wheelhouse.build(STACK, say=print)
    with booted(directory / "lab.yaml", NAME, directory) as lab:
        server = ThreadingHTTPServer((lab.lab.control_address, 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://{lab.lab.control_address}:{server.server_port}/source.tar.gz"
        lab.environment["RACKPIN_STACKS"] = str(make_stack(directory / "stacks", data, url))
        try:
            yield lab
        finally:
            server.shutdown()
            server.server_close()


def make_stack(root: Path, data: bytes, url: str) -> Path:
    """debian12-r535 with gdrcopy, its network's packages left out."""
    name = STACK.pins.name
    root.mkdir()
    shutil.copytree(STACKS / name, root / name)
    pins = yaml.safe_load((root / name / "pins.yaml").read_text())
    pin = {"version": "2.5.1", "commit": "c" * 40, "sha256": hashlib.sha256(data).hexdigest()}
    (root / name / "pins.yaml").write_text(yaml.safe_dump({**pins, "gdrcopy": pin}))
    lock = STACK.lock
    packages = {key: [p for p in some if p.role != "rdma"] for key, some in lock.packages.items()}
    source = Source(
        version="2.5.1", commit="c" * 40, url=url, sha256=str(pin["sha256"]), size=len(data)
    )
    made = lock.but(
        pins_sha256=load_pins(root / name).sha256,
        sources={"gdrcopy": source},
        packages=packages,
    )
    write_lock(made, root)
    load_stack(name, root)
    return root


def test_gdrcopy_is_built_once_and_again_when_it_is_taken_away(site: FleetLab) -> None:
    stack = ("--data", f"stack={STACK.pins.name}", "--data", "instances=[]")
    refused = site.run("fabric", *stack)
    assert refused.code == 1, refused.tail
    assert "gdrcopy 2.5.1: headers of the running kernel" in refused.text, refused.tail
    assert site.ask(HOST, "ls -A /usr/src; ls -A /etc/rackpin 2>/dev/null", check=False) == ""

    assert "nvidia-current-535" in site.ask(HOST, PREPARE, 400)
    site.ask(HOST, PACKAGE)
    owned = site.run("fabric", *stack)
    assert owned.code == 1, owned.tail
    assert "gdrdrv-2.4 belongs to the package gdrdrv-dkms" in owned.text, owned.tail
    assert (
        site.ask(HOST, "dpkg -r gdrdrv-dkms >/dev/null; ls /usr/local/lib/libgdr* | wc -l") == "0"
    )

    first = site.run("fabric", *stack)
    assert "fabric: gdrcopy" in changes(first), first.tail
    assert site.ask(HOST, "dkms status gdrdrv") == f"gdrdrv/2.5.1, {KERNEL}, x86_64: installed"
    file = f"/lib/modules/{KERNEL}/updates/dkms/gdrdrv.ko"
    assert site.ask(HOST, f"/sbin/modinfo -F vermagic {file}").split()[0] == KERNEL
    loads = "python3 -c 'import ctypes; ctypes.CDLL(\"libgdrapi.so{}\").gdr_open'"
    for name in ("", ".2"):
        site.ask(HOST, loads.format(name))
    assert site.show(HOST, "rackpin-gdrcopy.service", "ActiveState") == "active"
    assert site.ask(HOST, "stat -c '%F %a' /dev/gdrdrv") == "character special file 666"

    second = site.run("fabric", *stack)
    assert changes(second) == []
    assert second.asked == {"executions": {HOST: 1}, "misses": 0}

    # somebody takes the module away, and puts a library of his own
    site.ask(
        HOST,
        "dkms remove -m gdrdrv -v 2.5.1 --all >/dev/null; cd /usr/local/lib; rm libgdrapi.so.2; "
        "echo own >libgdrapi.so.2",
    )
    assert "fabric: gdrcopy" in changes(site.run("fabric", *stack))
    assert site.ask(HOST, "dkms status gdrdrv") == f"gdrdrv/2.5.1, {KERNEL}, x86_64: installed"
    assert site.ask(HOST, "cat /var/lib/rackpin/backup/libgdrapi.so.2.*") == "own"
    assert changes(site.run("fabric", *stack)) == []
