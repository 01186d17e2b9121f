"""driver: kernel, NVIDIA's driver and its module options, proven before a node is rebooted."""

from __future__ import annotations

from rackpin.desired import Desired, OwnedFile, Target, owned
from rackpin.driver.table import table
from rackpin.driver.want import Want, driver_packages, kernel_packages, want

PERSISTENCE = "nvidia-persistenced.service"
FABRIC = "nvidia-fabricmanager.service"
UNITS = (PERSISTENCE, FABRIC)  # both are looked at wherever there is a driver


def desired(target: Target) -> Desired:
    """Nothing for a stack without a driver, and for a node whose inventory has no GPU."""
    wish = want(target)
    if wish is None:
        return Desired()
    return Desired(
        files=tuple(_files(wish)),
        packages=(*kernel_packages(target), *driver_packages(target)),
        units=UNITS if wish.nvswitch and wish.fabric_manager else (PERSISTENCE,),
    )


def _files(wish: Want) -> list[OwnedFile]:
    files = [
        owned(
            "etc/modprobe.d/90-rackpin-nvidia.conf.j2",
            # Debian's module has another name on disk, and options go by that.
            values={
                "modules": list(dict.fromkeys(["nvidia", wish.module])),
                "options": wish.options,
            },
            triggers=("initramfs",),
        ),
        owned("etc/modules-load.d/90-rackpin-nvidia.conf.j2", values={"modules": table()["load"]}),
        owned(
            "etc/systemd/system/nvidia-persistenced.service.j2",
            values={"user": table()["persistence_user"][wish.source]},
            triggers=("daemon-reload",),
        ),
    ]
    if wish.nvswitch and wish.fabric_manager:
        unit = f"etc/systemd/system/{FABRIC}.d/90-rackpin.conf.j2"
        files.append(owned(unit, triggers=("daemon-reload",)))
    if wish.compiler:
        files.append(
            owned(
                "etc/dkms/MODULE.conf.j2",
                path=f"/etc/dkms/{wish.module}.conf",
                values={"compiler": wish.compiler, "kernel": wish.kernel},
            )
        )
    return files
