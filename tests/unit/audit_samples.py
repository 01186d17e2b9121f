"""A whole small machine on disk, with recorded answers of its commands, that is as expected."""

from __future__ import annotations

import base64
import getpass
import grp
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rackpin.audit import expect
from rackpin.audit.expectation import INTERFACE_MARK, Expectation, PinnedModel
from rackpin.audit.node.main import audit
from rackpin.audit.node.models import MODEL_MARK
from rackpin.audit.node.place import Place, Ran
from rackpin.desired import Target
from rackpin.stages.base import hosts_file

DATA = Path(__file__).parent / "data" / "audit"
DISTS = {"alpha": "1.0", "nvidia-nccl-cu12": "2.19.3"}
DRIVER = {"version": "535.129.03", "flavour": "closed"}
KERNEL = "6.1.0-50-amd64"
PINNED = {"nvidia-driver": "535.129.03-1", "libcuda1": "535.129.03-1"}
DEBS = {"python3": "3.11.2-1+b1", "chrony": "4.3-2+deb12u1", "libnuma1": "2.0.16-1"}
NVRM = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:42:12 UTC 2023
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x@y)\n"
WEIGHTS = b"weights"
MODEL = PinnedModel(
    path="/srv/models/pinned",
    digest="d" * 64,
    files=[("config.json", hashlib.sha256(b"{}").hexdigest(), 2),
           ("w/a.safetensors", hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS))],
)  # fmt: skip
CGROUP = "0::/system.slice/system-vllm.slice/vllm@two.service\n"


@dataclass
class Machine:
    """``root`` holds its files; the tables are what its commands print."""

    root: Path
    wish: Expectation
    debs: dict[str, list[str]] = field(default_factory=dict)  # name -> state, version
    units: dict[str, dict[str, str]] = field(default_factory=dict)
    candidates: dict[str, str] = field(default_factory=dict)
    verified: str = ""
    module: str = DRIVER["version"]
    broken: dict[str, Ran] = field(default_factory=dict)  # program -> what it does instead

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, content: str | bytes, mode: int = 0o644) -> Path:
        file = self.at(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(mode)
        return file

    @property
    def env(self) -> str:
        return self.wish.environment.path

    @property
    def site(self) -> str:
        return f"{self.env}/lib/python{self.wish.environment.python}/site-packages"

    def run(self, argv: Sequence[str], deadline_s: float) -> Ran:
        if argv[0] in self.broken:
            return self.broken[argv[0]]
        return 0, getattr(self, f"say_{argv[0].replace('-', '_')}")(argv), ""

    def say_dpkg_query(self, argv: Sequence[str]) -> str:
        return "".join(f"{n}\tamd64\t{s} \t{v}\n" for n, (s, v) in self.debs.items())

    def say_systemctl(self, argv: Sequence[str]) -> str:
        blocks = ({"Id": n, **self.units[n]} for n in argv[argv.index("--") + 1 :])
        return "\n".join("".join(f"{k}={v}\n" for k, v in b.items()) for b in blocks)

    def say_apt_cache(self, argv: Sequence[str]) -> str:
        return "".join(
            f"{name}:\n  Installed: {version}\n  Candidate: {version}\n  Version table:\n"
            f" *** {version} 1001\n        500 http://deb.debian.org bookworm/main amd64 Packages\n"
            for name, version in self.candidates.items()
        )

    def say_dpkg(self, argv: Sequence[str]) -> str:
        return self.verified

    def say_ip(self, argv: Sequence[str]) -> str:
        return (
            "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever\n"
            "2: host0    inet 10.9.0.11/24 brd 10.9.0.255 scope global host0\\       valid_lft 1\n"
        )

    def say_modinfo(self, argv: Sequence[str]) -> str:
        return f"{self.module}\n"

    def audit(self, deep: bool = False) -> dict[str, Any]:
        wish = self.wish.model_dump(mode="json")
        return audit(wish, deep, Place(str(self.root), self.run))


def hashed(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"


def install(site: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    """A distribution as an installer leaves it, RECORD included. Paths are below ``site``."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n".encode(),
        f"{info}/INSTALLER": b"uv",
    }
    lines = [f"{info}/RECORD,,\n"]
    for path, content in files.items():
        file = Path(os.path.normpath(site / path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        lines.append(f"{path},{hashed(content)},{len(content)}\n")
    (site / info / "RECORD").write_text("".join(lines))


def make_environment(machine: Machine) -> None:
    env, site = machine.at(machine.env), machine.at(machine.site)
    program = b"#!/opt/python\nprint(1)\n"
    install(site, "alpha", "1.0", {"alpha/__init__.py": b"x = 1\n", "../../../bin/alpha": program})
    library = b"\x7fELF....NCCL version 2.19.3+cuda12.3\0...."
    install(site, "nvidia-nccl-cu12", "2.19.3", {"nvidia/nccl/lib/libnccl.so.2": library})
    (site / "alpha/__pycache__").mkdir()
    (site / "alpha/__pycache__/__init__.cpython-311.pyc").write_bytes(b"bytecode")
    version = machine.wish.environment.python
    (env / "bin/python").symlink_to(f"/usr/bin/python{version}")
    (env / "bin/python3").symlink_to("python")
    (env / "lib64").symlink_to("lib")
    (env / "pyvenv.cfg").write_text(
        f"home = /usr/bin\nversion_info = {version}.2\ninclude-system-site-packages = false\n"
    )
    (env / ".complete.part").write_text(machine.wish.environment.digest + "\n")
    (env / ".complete.part").rename(env / ".complete")
    machine.at(machine.wish.environment.current).symlink_to(machine.env)


def healthy(target: Target, root: Path) -> Machine:
    """Everything as the stages of the test fleet's node want it, plus a driver and pins."""
    wish = expect.for_node(target)
    user, group = getpass.getuser(), grp.getgrgid(os.getgid()).gr_name
    mine = {"owner": user, "group": group}
    key = wish.os[0]
    wish = wish.model_copy(
        update={
            "environment": wish.environment.model_copy(update={"dists": DISTS}),
            "files": [file.model_copy(update=mine) for file in wish.files],
            "directories": [folder.model_copy(update=mine) for folder in wish.directories],
            "debs": {key: dict.fromkeys(["chrony", "libnuma1"], None) | {"python3": "3.11.2-1+b1"}},
            "debs_known": {key: {**PINNED, "never-installed": "1"}},
            "holds": {key: list(PINNED)},
            "candidates": {key: PINNED},
            "driver": DRIVER,
            "kernel": KERNEL,
            "nccl": {"dist": "nvidia-nccl-cu12", "version": "2.19.3"},
            "engines": ["vllm@two.service"],
            "models": [MODEL],
        }
    )
    machine = Machine(root, wish)
    for folder in wish.directories:
        machine.at(folder.path).mkdir(parents=True, exist_ok=True)
        machine.at(folder.path).chmod(int(folder.mode, 8))
    anywhere = replace(target, interface="host0")
    for file in stage_files(anywhere):
        machine.write(file.path, file.content, int(file.mode, 8))
    machine.write("/etc/hosts", hosts_file("127.0.0.1 localhost\n", target.fleet, target.node))
    for link, to in wish.links.items():
        machine.at(link).symlink_to(to)
    make_environment(machine)
    make_processes(machine)
    make_model(machine)
    machine.write("/etc/os-release", 'ID=debian\nVERSION_ID="12"\n')
    machine.write("/proc/sys/kernel/osrelease", f"{KERNEL}\n")
    machine.write("/proc/driver/nvidia/version", NVRM)
    machine.write("/boot/grub/grub.cfg", (DATA / "grub.cfg").read_text())
    machine.debs = {name: ["ii", version] for name, version in DEBS.items()}
    machine.debs |= {name: ["hi", version] for name, version in PINNED.items()}
    machine.debs["nvidia-old"] = ["rc", "470.1-1"]  # removed, its configuration is left
    machine.candidates = dict(PINNED)
    for name in wish.unit_files:
        machine.units[name] = {
            "LoadState": "loaded",
            "FragmentPath": f"/etc/systemd/system/{name}",
            "DropInPaths": "/usr/lib/systemd/system/service.d/10-vendor.conf",
            "NeedDaemonReload": "no",
            "UnitFileState": "enabled" if name in wish.units else "static",
        }
    return machine


def stage_files(target: Target) -> list[Any]:
    from rackpin.stages import STAGES

    return [file for stage in STAGES.values() for file in stage(target).files]


def make_model(machine: Machine) -> None:
    """Its files and its mark, as `stat` says it on a node."""
    machine.write(f"{MODEL.path}/config.json", "{}")
    machine.write(f"{MODEL.path}/w/a.safetensors", WEIGHTS)
    names = [name for name, _, _ in MODEL.files]
    told = subprocess.run(
        ["stat", "-c", "%s %.9Z %n", "--", *names],
        cwd=machine.at(MODEL.path),
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    machine.write(f"{MODEL.path}/{MODEL_MARK}", f"{MODEL.digest}\n{told.stdout}")


def make_processes(machine: Machine) -> None:
    library = f"{machine.site}/nvidia/nccl/lib/libnccl.so.2"
    machine.write("/proc/41/cgroup", CGROUP)
    machine.write(
        "/proc/41/maps",
        "55d0-55d1 r--p 00000000 08:01 12 /usr/bin/python3.11\n"
        f"7f00-7f10 r-xp 00000000 08:01 99 {library}\n"
        "7f20-7f21 rw-p 00000000 00:00 0\n",
    )
    machine.write("/proc/42/cgroup", "0::/system.slice/ssh.service\n")
    machine.write("/proc/self/cgroup", CGROUP)


def later(path: Path) -> None:
    """Write the same bytes again: the kernel notes a change, as it would for any other."""
    path.write_bytes(path.read_bytes())


def forge(path: Path, content: bytes) -> None:
    """Other bytes, as many, under the same mtime."""
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=times)


Injection = Callable[[Machine], None]
INJECTIONS: dict[str, Injection] = {}


def injects(kind: str) -> Callable[[Injection], Injection]:
    def register(make: Injection) -> Injection:
        INJECTIONS[kind] = make
        return make

    return register


@injects("os.release")
def _(m: Machine) -> None:
    m.write("/etc/os-release", 'ID=ubuntu\nVERSION_ID="22.04"\n')


@injects("env.current")
def _(m: Machine) -> None:
    shutil.copytree(m.at(m.env), m.at("/opt/rackpin/env/other"), symlinks=True)
    refresh_seal(m.at("/opt/rackpin/env/other"))
    m.at("/opt/rackpin/current").unlink()
    m.at("/opt/rackpin/current").symlink_to("/opt/rackpin/env/other")


@injects("env.complete")
def _(m: Machine) -> None:
    m.at(f"{m.env}/.complete").unlink()


@injects("env.python")
def _(m: Machine) -> None:
    m.at(f"{m.env}/bin/python").unlink()
    m.at(f"{m.env}/bin/python").symlink_to("/usr/local/bin/python3.12")
    # the link itself is younger than the seal too; that is the same fault, not a second one
    refresh_seal(m.at(m.env))


def refresh_seal(env: Path) -> None:
    """As if the environment had been built like that."""
    mark = env / ".complete"
    mark.rename(mark.with_name(".complete.part"))
    mark.with_name(".complete.part").rename(mark)


@injects("wheel.missing")
def _(m: Machine) -> None:
    site = m.at(m.site)
    shutil.rmtree(site / "alpha-1.0.dist-info")
    shutil.rmtree(site / "alpha")
    m.at(f"{m.env}/bin/alpha").unlink()


@injects("wheel.version")
def _(m: Machine) -> None:
    site = m.at(m.site)
    shutil.rmtree(site / "alpha-1.0.dist-info")
    install(site, "alpha", "1.1", {"alpha/__init__.py": b"x = 1\n"})
    m.at(f"{m.env}/bin/alpha").unlink()
    refresh_seal(m.at(m.env))


@injects("wheel.extra")
def _(m: Machine) -> None:
    install(m.at(m.site), "beta", "0.1", {"beta.py": b""})


@injects("wheel.file")
def _(m: Machine) -> None:
    forge(m.at(f"{m.site}/alpha/__init__.py"), b"x = 2\n")


@injects("wheel.record")
def _(m: Machine) -> None:
    later(m.at(f"{m.site}/alpha-1.0.dist-info/RECORD"))


@injects("wheel.stray")
def _(m: Machine) -> None:
    m.at(f"{m.site}/evil.pth").write_text("import os\n")


@injects("wheel.bytecode")
def _(m: Machine) -> None:
    later(m.at(f"{m.site}/alpha/__pycache__/__init__.cpython-311.pyc"))


@injects("file.missing")
def _(m: Machine) -> None:
    m.at("/etc/sysctl.d/90-rackpin.conf").unlink()


@injects("file.edited")
def _(m: Machine) -> None:
    with m.at("/etc/systemd/system/ray-head.service").open("a") as unit:
        unit.write("LimitNOFILE=1024\n")


@injects("file.mode")
def _(m: Machine) -> None:
    m.at("/etc/rackpin/vllm/two.env").chmod(0o644)


@injects("model.mark")
def _(m: Machine) -> None:
    mark = m.at(f"{MODEL.path}/{MODEL_MARK}")
    mark.write_text(mark.read_text().replace(MODEL.digest, "0" * 64))


@injects("model.file")
def _(m: Machine) -> None:
    forge(m.at(f"{MODEL.path}/w/a.safetensors"), b"WEIGHTS")


@injects("unit.dropin")
def _(m: Machine) -> None:
    path = "/etc/systemd/system/vllm@.service.d/tune.conf"
    m.units["vllm@two.service"]["DropInPaths"] += f" {path}"


@injects("unit.shadowed")
def _(m: Machine) -> None:
    m.units["ray-head.service"]["FragmentPath"] = "/run/systemd/system/ray-head.service"


@injects("unit.disabled")
def _(m: Machine) -> None:
    m.units["vllm@two.service"]["UnitFileState"] = "disabled"


@injects("unit.reload")
def _(m: Machine) -> None:
    m.units["ray-head.service"]["NeedDaemonReload"] = "yes"


@injects("unit.extra")
def _(m: Machine) -> None:
    m.write("/etc/systemd/system/vllm@old.service", "[Service]\n")


@injects("deb.missing")
def _(m: Machine) -> None:
    del m.debs["libnuma1"]


@injects("deb.version")
def _(m: Machine) -> None:
    m.debs["python3"][1] = "3.11.2-1+b2"


@injects("deb.state")
def _(m: Machine) -> None:
    m.debs["chrony"][0] = "iF"


@injects("deb.driver")
def _(m: Machine) -> None:
    m.debs["libnvidia-compute-580"] = ["ii", "580.65.06-0ubuntu1"]


@injects("deb.files")
def _(m: Machine) -> None:
    m.verified = "??5?????? c /etc/chrony/chrony.conf\nmissing   /usr/share/doc/chrony/NEWS.gz\n"
    m.verified += "??5??????   /usr/sbin/chronyd\n"
    m.broken["dpkg"] = (1, m.verified, "")


@injects("apt.hold")
def _(m: Machine) -> None:
    m.debs["libcuda1"][0] = "ii"


@injects("apt.candidate")
def _(m: Machine) -> None:
    m.candidates["nvidia-driver"] = "580.65.06-1"


@injects("driver.loaded")
def _(m: Machine) -> None:
    m.at("/proc/driver/nvidia/version").unlink()


@injects("driver.next")
def _(m: Machine) -> None:
    m.broken["modinfo"] = (1, "", "modinfo: ERROR: Module nvidia not found.\n")


@injects("kernel.booted")
def _(m: Machine) -> None:
    m.write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n")


@injects("kernel.next")
def _(m: Machine) -> None:
    text = m.at("/boot/grub/grub.cfg").read_text()
    m.write("/boot/grub/grub.cfg", text.replace('default="0"', 'default="1>1"'))


@injects("nccl.mapped")
def _(m: Machine) -> None:
    m.write("/usr/lib/x86_64-linux-gnu/libnccl.so.2", b"\x7fELFNCCL version 2.18.1+cuda12.1\0")
    maps = m.at("/proc/41/maps")
    text = maps.read_text().replace(f"{m.site}/nvidia/nccl/lib", "/usr/lib/x86_64-linux-gnu")
    maps.write_text(f"{text}7f20-7f21 r-xp 0 08:01 5 {m.site}/alpha/x.so\n")


@injects("running.env")
def _(m: Machine) -> None:
    m.write("/proc/43/cgroup", CGROUP)
    m.write("/proc/43/maps", "7f20-7f21 r-xp 0 08:01 5 /opt/rackpin/env/cpu-lab-old/lib/x.so\n")


__all__ = ["INJECTIONS", "INTERFACE_MARK", "Machine", "healthy", "install"]
