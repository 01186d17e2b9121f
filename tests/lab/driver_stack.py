"""A stack for Ubuntu 22.04 with NVIDIA's packages whose debs are a test repository's.

The packages do at their edge what the real ones do: a kernel lies in /boot, headers make its
modules buildable, nvidia-dkms builds by DKMS when it is configured.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import yaml

from rackpin.stack.items import Deb, DebClosure
from rackpin.stack.lock import STACKS, load_stack, write_lock
from rackpin.stack.packages import host_of, packages_of
from rackpin.stack.pins import load_pins
from tests.fixtures_debs import Repository
from tests.fixtures_debs_names import DRIVER, Package, family, package
from tests.lab.fleet import FleetLab

NAME = "ubuntu-driver"
KERNEL = "6.5.0-45-generic"
OLD_KERNEL = "5.15.0-97-generic"  # what such a host came with
OS = "ubuntu-22.04"
VENDOR = "nvidia-cuda"  # the repository's name in the lock, and in the inventory that stands in
_RELEASE = "6.5.0-45.45~22.04.1"

# dkms 2.8.7 of Ubuntu 22.04 as far as anybody asks it (apt runs scripts with its own PATH, so it
# must lie in /usr/sbin); builds fail while /etc/sim/dkms-fails is.
DKMS = r"""#!/bin/sh
t=/var/lib/dkms
if [ "$1" = status ]; then
  for d in $t/*/*/*/x86_64; do
    [ -d "$d" ] || continue
    IFS=/; set -- $d; unset IFS
    echo "$5, $6, $7, x86_64: installed"
  done; exit 0
fi
while [ $# -gt 0 ]; do case $1 in -m) m=$2;; -v) v=$2;; -k) k=$2;; esac; shift; done
[ -e "/lib/modules/$k/build/Makefile" ] || {
  echo "Error! Your kernel headers for kernel $k cannot be found" >&2; exit 1; }
if [ -e /etc/sim/dkms-fails ]; then
  mkdir -p $t/$m/$v/build
  echo 'nvidia-drm-drv.c:748:40: error: DRM_UNLOCKED undeclared here' >$t/$m/$v/build/make.log
  echo "Error! Bad return status for module build on kernel: $k (x86_64)" >&2; exit 10
fi
rm -rf $t/$m/$v/build
mkdir -p "$t/$m/$v/$k/x86_64" "/lib/modules/$k/updates/dkms"
for f in nvidia nvidia-modeset nvidia-drm nvidia-uvm nvidia-peermem; do
  echo "sim-module:$v:$CC" >"/lib/modules/$k/updates/dkms/$f.ko"; done
"""
_BUILD = f"""#!/bin/sh
set -e
k=$(ls -d /lib/modules/*/build | sort -V | tail -n 1 | cut -d / -f 4)
dkms install -m nvidia -v {DRIVER} -k $k
"""
_KERNEL = f"#!/bin/sh\nmkdir -p /boot\ntouch /boot/vmlinuz-{KERNEL} /boot/initrd.img-{KERNEL}\n"
_HEADERS = f"#!/bin/sh\nd=/lib/modules/{KERNEL}/build\nmkdir -p $d\ntouch $d/Makefile\n"
_TOOLKIT = """#!/bin/sh
mkdir -p /usr/local/cuda-12.2/bin
update-alternatives --install /usr/local/cuda cuda /usr/local/cuda-12.2 122
"""
NCCL = "2.19.3-1+cuda12.2"
TOOLKIT = [
    replace(package("cuda-toolkit-12-2", "12.2.2-1"), scripts={"postinst": _TOOLKIT}),
    package("libnccl2", NCCL),
    package("libnccl-dev", NCCL, f"libnccl2 (= {NCCL})"),
]
PERFTEST = "4.4+0.37-1"
# Ubuntu 22.04's own
ADAPTERS = [
    package(name, version)
    for names, version in (
        ("rdma-core libibverbs1 ibverbs-providers ibverbs-utils librdmacm1", "39.0-1"),
        ("infiniband-diags", "39.0-1"),
        ("perftest", PERFTEST),
        ("libopenmpi-dev openmpi-bin", "4.1.2-2ubuntu1"),
    )
    for name in names.split()
]


def packages() -> list[Package]:
    """NVIDIA's driver family and Ubuntu's kernel, with scripts that act as theirs."""
    scripts = {
        "nvidia-dkms-535": _BUILD,
        "nvidia-fabricmanager-535": _unit("nvidia-fabricmanager"),
    }
    kernel = [
        replace(package(f"linux-image-{KERNEL}", _RELEASE), scripts={"postinst": _KERNEL}),
        replace(package(f"linux-headers-{KERNEL}", _RELEASE), scripts={"postinst": _HEADERS}),
        package(f"linux-modules-extra-{KERNEL}", _RELEASE),
        package("gcc-12", "12.3.0-1ubuntu1~22.04"),
    ]
    drivers = [
        replace(one, scripts={"postinst": scripts[one.name]}) if one.name in scripts else one
        for one in family(DRIVER)
    ]
    return [*kernel, *drivers, *TOOLKIT, *ADAPTERS]


def _unit(name: str) -> str:
    """A package's own unit, as nvidia-fabricmanager brings one that nobody has enabled."""
    path = f"/lib/systemd/system/{name}.service"
    return (
        f"#!/bin/sh\nprintf '[Service]\\nExecStart=/bin/false\\n"
        f"[Install]\\nWantedBy=multi-user.target\\n' >{path}\nsystemctl daemon-reload\n"
    )


def make_stack(root: Path, repository: Repository) -> Path:
    """Write the stack below ``root``, locked to the repository's debs; returns ``root``."""
    pins = yaml.safe_load((STACKS / "cpu-lab" / "pins.yaml").read_text(encoding="utf-8"))
    pins |= {
        "name": NAME,
        "os": [{"id": "ubuntu", "version": "22.04"}],
        "kernel": {"release": KERNEL, "compiler": "gcc-12"},
        "driver": {
            "version": DRIVER,
            "branch": "535",
            "flavour": "closed",
            "source": "nvidia",
            "fabric_manager": True,
        },
        "cuda": {"version": "12.2.2"},
        "nccl": {"host": {"version": "2.19.3", "cuda": "12.2"}},
        "rdma": {"stack": "inbox"},
        "debs": {OS: []},
    }
    pins.pop("images")
    (root / NAME).mkdir(parents=True)
    (root / NAME / "pins.yaml").write_text(yaml.safe_dump(pins), encoding="utf-8")
    read = load_pins(root / NAME)
    debs = [_deb(repository, one) for one in sorted(packages(), key=lambda p: p.name)]
    lock = load_stack("cpu-lab").lock.but(
        stack=NAME,
        pins_sha256=read.sha256,
        os=read.os,
        host=host_of(read),
        debs=read.debs,
        packages={OS: packages_of(read, read.os[0])},
        debs_closure={OS: DebClosure(debs=debs)},
        images={},
    )
    write_lock(lock, root)
    load_stack(NAME, root)  # proves that they belong together
    return root


def _is_vendors(name: str) -> bool:
    return any(word in name for word in ("nvidia", "cuda", "nccl"))


def _deb(repository: Repository, one: Package) -> Deb:
    file = repository.deb(one.name, one.version)
    content = file.read_bytes()
    return Deb(
        name=one.name,
        version=one.version,
        architecture=one.architecture,
        filename=str(file.relative_to(repository.path)),
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        # Ubuntu's own archive is the host's; only the vendor's repository is ours to place.
        repository=VENDOR if _is_vendors(one.name) else "ubuntu",
    )


def as_ubuntu(site: FleetLab, host: str, os_release: str) -> None:
    """A bare Debian host says that it is Ubuntu, and has its dkms."""
    site.feed(
        host,
        f"cat >/usr/sbin/dkms <<'END'\n{DKMS}END\nchmod 755 /usr/sbin/dkms\n"
        f"rm /etc/os-release; cat >/etc/os-release <<'END'\n{os_release}END\n",
    )
