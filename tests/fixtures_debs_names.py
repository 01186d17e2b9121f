"""What the test repositories hold: NVIDIA's package names, versions and dependencies.

Two driver branches, whose members depend on each other at one exact version, a ``cuda`` that
drags the newer branch, and a fabric manager that is also there a point release off.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DRIVER = "535.129.03"
POINT = "535.183.01"  # a later point release of the same branch
NEWER = "550.54.15"  # the other branch


@dataclass(frozen=True)
class Package:
    """One deb; ``fields`` are control fields such as Depends, ``scripts`` maintainer scripts."""

    name: str
    version: str
    architecture: str = "amd64"
    fields: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)

    @property
    def filename(self) -> str:
        version = self.version.rpartition(":")[2]  # file names leave out the epoch
        return f"{self.name}_{version}_{self.architecture}.deb"

    @property
    def control(self) -> str:
        lines = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "rackpin tests <tests@example.invalid>",
            **self.fields,
            "Description": f"test package {self.name}",
        }
        return "".join(f"{name}: {value}\n" for name, value in lines.items())


def package(name: str, version: str, depends: str = "", **fields: str) -> Package:
    """A package by its usual fields; ``Pre_Depends`` stands for Pre-Depends."""
    named = {key.replace("_", "-"): value for key, value in fields.items()}
    architecture = named.pop("Architecture", "amd64")
    if depends:
        named["Depends"] = depends
    return Package(name, version, architecture, named)


def family(upstream: str) -> list[Package]:
    """The driver family of one version, fabric manager included (18 packages)."""
    b = upstream.partition(".")[0]
    v = f"{upstream}-0ubuntu1"  # the driver's packages
    m = f"{upstream}-1"  # metapackages and fabric manager

    def exact(*names: str) -> str:
        return ", ".join(f"{name}-{b} (= {v})" for name in names)

    firmware = f"nvidia-firmware-{b}-{upstream}"
    return [
        package(
            f"nvidia-driver-{b}",
            v,
            exact("libnvidia-gl", "nvidia-dkms", "nvidia-kernel-common", "nvidia-kernel-source",
                  "libnvidia-compute", "libnvidia-extra", "nvidia-compute-utils",
                  "libnvidia-decode", "libnvidia-encode", "nvidia-utils", "libnvidia-cfg1",
                  "libnvidia-fbc1", "xserver-xorg-video-nvidia"),
            Provides="nvidia-driver-binary",
            Conflicts="nvidia-driver-binary",
            Replaces="nvidia-driver-binary",
            Recommends=f"libnvidia-compute-{b}:i386 (= {v})",
        ),
        package(f"nvidia-dkms-{b}", v, exact("nvidia-kernel-source", "nvidia-kernel-common")),
        package(f"nvidia-kernel-source-{b}", v, f"{firmware} (= {v})"),
        package(f"nvidia-kernel-common-{b}", v, f"{firmware} (= {v})",
                Provides="nvidia-kernel-common", Conflicts="nvidia-kernel-common",
                Replaces="nvidia-kernel-common"),
        package(firmware, v),
        # The two need each other: no order of single installs works.
        package(f"libnvidia-compute-{b}", v, f"libc6 (>= 2.17), {exact('libnvidia-decode')}",
                Provides="libcuda.so.1, libcuda1", Conflicts="libcuda1", Replaces="libcuda1"),
        package(f"libnvidia-decode-{b}", v, exact("libnvidia-compute")),
        package(f"libnvidia-encode-{b}", v, exact("libnvidia-decode")),
        package(f"libnvidia-common-{b}", v, Architecture="all"),
        package(f"libnvidia-gl-{b}", v, exact("libnvidia-common")),
        package(f"libnvidia-extra-{b}", v, exact("libnvidia-gl")),
        package(f"libnvidia-cfg1-{b}", v),
        package(f"libnvidia-fbc1-{b}", v, exact("libnvidia-gl")),
        package(f"nvidia-utils-{b}", v, exact("libnvidia-compute")),
        package(f"nvidia-compute-utils-{b}", v, exact("libnvidia-compute")),
        package(f"xserver-xorg-video-nvidia-{b}", v, exact("libnvidia-cfg1")),
        package(f"nvidia-fabricmanager-{b}", m, "libc6"),
        # As NVIDIA's: only a lower bound, so the driver is not pinned by it.
        package(f"cuda-drivers-{b}", m, f"nvidia-driver-{b} (>= {upstream})"),
    ]  # fmt: skip


def named(packages: list[Package], name: str) -> list[Package]:
    return [p for p in packages if p.name == name]


META = [
    package("cuda-drivers", f"{DRIVER}-1", f"cuda-drivers-535 (= {DRIVER}-1)"),
    package("cuda-drivers", f"{NEWER}-1", f"cuda-drivers-550 (= {NEWER}-1)"),
    package("cuda", "12.2.2-1", "cuda-12-2 (>= 12.2.2)"),
    package("cuda", "12.4.1-1", "cuda-12-4 (>= 12.4.1)"),
    package("cuda-12-2", "12.2.2-1", "cuda-runtime-12-2 (>= 12.2.2), cuda-toolkit-12-2"),
    package("cuda-12-4", "12.4.1-1", "cuda-runtime-12-4 (>= 12.4.1), cuda-toolkit-12-4"),
    package("cuda-runtime-12-2", "12.2.2-1", "cuda-drivers (>= 535.104.05)"),
    package("cuda-runtime-12-4", "12.4.1-1", "cuda-drivers (>= 550.54.15)"),
    package("cuda-toolkit-12-2", "12.2.2-1"),
    package("cuda-toolkit-12-4", "12.4.1-1"),
]
OTHERS = [
    package("libnccl2", "2.19.3-1+cuda12.2"),
    package("libnccl2", "2.22.3-1+cuda12.5"),
    package("libnccl-dev", "2.19.3-1+cuda12.2", "libnccl2 (= 2.19.3-1+cuda12.2)"),
    package("libnccl-dev", "2.22.3-1+cuda12.5", "libnccl2 (= 2.22.3-1+cuda12.5)"),
    package("datacenter-gpu-manager", "1:3.3.5"),
    package("nvidia-container-toolkit-base", "1.16.2-1"),
    package("nvidia-container-toolkit", "1.16.2-1", "nvidia-container-toolkit-base (= 1.16.2-1)"),
    package("nvidia-container-toolkit-base", "1.17.8-1"),
    package("nvidia-container-toolkit", "1.17.8-1", "nvidia-container-toolkit-base (= 1.17.8-1)"),
]
FM = "nvidia-fabricmanager-535"
_OFF = named(family(POINT), FM)  # what an upgrade would take although the driver stays
_TWO = [*family(DRIVER), *family(NEWER), *_OFF, *META, *OTHERS]

SCENARIOS: dict[str, list[Package]] = {
    # Both branches; everything pinned is there, and everything also newer or elsewhere.
    "two-branches": _TWO,
    # Before the vendor published anything newer: what a host starts from.
    "first-release": [*family(DRIVER), *META[:1], *OTHERS[:1], *OTHERS[2:3]],
    # The whole branch has moved on; the pinned release is still there beside it.
    "point-release": [*_TWO, *(p for p in family(POINT) if p.name != FM)],
    # The fabric manager of the pinned release is gone: only the one a point release off.
    "fabric-off": [p for p in _TWO if p.name != FM or p.version != f"{DRIVER}-1"],
    # One member of the pinned release is gone from the mirror.
    "missing-member": [
        p for p in _TWO if (p.name, p.version) != ("libnvidia-gl-535", f"{DRIVER}-0ubuntu1")
    ],
    # Only the newer branch: nothing of the pinned driver.
    "other-branch": [*family(NEWER), *META[1:], *OTHERS],
}
