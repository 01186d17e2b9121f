"""A node on which everything is as its stages wish, and what it prints when it is asked.

Made of the wishes themselves, in the formats of the survey's commands, so that a deploy
over any number of such nodes changes nothing and needs no host.
"""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rackpin import layout
from rackpin.apt.wanted import pins, repositories
from rackpin.desired import Desired, OwnedFile, Target
from rackpin.fabric.look import parse
from rackpin.fabric.model import Fabric
from rackpin.facts import Packages, Paths, Survey, Text, Units, Users
from rackpin.facts_apt import Apt
from rackpin.facts_cuda import CudaFact
from rackpin.facts_driver import Gpu
from rackpin.facts_fabric import FabricFact
from rackpin.facts_fleet import IdentityFact
from rackpin.fleet import identity
from rackpin.fleet.mark import PATH, Mark
from rackpin.stack.environment import env_path
from rackpin.stages import STAGES
from rackpin.stages.base import SWAP_MASK, hosts_file
from rackpin.stages.gateway import NGINX_MASK
from rackpin.stages.python import complete_mark
from tests.unit import apt_samples, driver_samples

INTERFACE = "host0"
BOARD = (
    "@@ board\n@@ machine\n{name}\n@@ driver\n@@ gpus\n@@ hcas\n@@ nics\n@@ pci\n"
    "@@ memory\n1000\n@@ disks\n@@ keys\n@@ end\n"
)


@dataclass
class WishedHost:
    """``fabric``: what the fabric's script printed on such hardware."""

    target: Target
    fabric: str
    ready: bool = True  # it keeps a mark that says so

    @cached_property
    def seen(self) -> Target:
        found: Fabric = parse(self.fabric.splitlines())
        return replace(self.target, interface=INTERFACE, fabric=found)

    @cached_property
    def wishes(self) -> list[Desired]:
        return [stage(self.seen) for stage in STAGES.values()]

    @cached_property
    def files(self) -> dict[str, OwnedFile]:
        return {file.path: file for wish in self.wishes for file in wish.files}

    @cached_property
    def directories(self) -> dict[str, str]:
        return {
            one.path: f"is|{one.path}|directory|{one.mode}|{one.owner}|{one.group}|{one.path}"
            for wish in self.wishes
            for one in wish.directories
        }

    @cached_property
    def links(self) -> dict[str, str]:
        lock = self.target.lock
        masked = {SWAP_MASK: "/dev/null", NGINX_MASK: "/dev/null"}
        return {layout.CURRENT: env_path(lock), **masked}

    def path(self, path: str) -> str:
        if file := self.files.get(path):
            is_file = f"is|{path}|regular file|{file.mode}|{file.owner}|{file.group}|{path}"
            first = [f"line|{path}|{line}" for line in file.content.splitlines()[:2]]
            return "\n".join([is_file, f"sum|{path}|{file.sha256}", *first])
        if path in self.links:
            return f"is|{path}|symbolic link|777|root|root|{path} -> {self.links[path]}"
        if path in self.directories:
            return self.directories[path]
        if path == complete_mark(self.target.lock):
            return f"is|{path}|regular file|644|root|root|{path}\nsum|{path}|{'0' * 64}"
        return f"absent|{path}"

    def survey(self, head_address: str) -> str:
        version = self.target.os_key.partition("-")
        sections = {
            "os": f"ID={version[0]}\nVERSION_ID={version[2]}",
            "arch": "x86_64",
            "epoch": f"{time.time():.3f}",
            "hostname": self.target.node.name,
            "addresses": f"2: {INTERFACE}    inet {self.target.node.address}/16 scope global x",
            "route": f"{head_address} dev {INTERFACE} src {self.target.node.address} uid 0",
            "swaps": "Filename Type Size Used Priority",
            "dpkg": "",
            "space": "/ 900000000000\n/opt 900000000000",
            "listeners": "",
            "end": "",
        }
        return "".join(f"@@ {key}\n{text}\n" for key, text in sections.items())

    def apt(self, names: tuple[str, ...]) -> str:
        wanted = {pin.name: pin for pin in pins(self.seen)}
        origin = {r.name: r.uri for r in repositories(self.seen)}
        status = policy = ""
        for name in names:
            version = wanted[name].version
            source = origin.get(wanted[name].origin or "", "http://deb.debian.org/debian")
            status += f"{name}|amd64|hold|installed|{version}\n"
            policy += (
                f"{name}:\n  Installed: {version}\n  Candidate: {version}\n  Version table:\n"
                f" *** {version} 30000\n        500 {source} bookworm/main amd64 Packages\n"
                "        100 /var/lib/dpkg/status\n"
            )
        held = "".join(f"{name}\n" for name in names)
        return apt_samples.state_text(self.seen, held=held, status=status, policy=policy)

    def mark(self) -> str:
        found = identity.parse(self.identity().splitlines())
        return Mark(
            node=self.target.node.name,
            lock=self.target.lock.digest,
            state="ready",
            level="node",
            at="2026-01-01T00:00:00+00:00",
            run="earlier",
            identity=found,
        ).model_dump_json(indent=1)

    def identity(self) -> str:
        return BOARD.format(name=self.target.node.name)

    def text(self, path: str) -> str:
        given = {
            "/etc/hosts": hosts_file("127.0.0.1 localhost\n", self.seen.fleet, self.seen.node),
            PATH: self.mark() if self.ready else "",
        }
        return base64.b64encode(given[path].encode()).decode()

    def unit(self, name: str) -> str:
        found = {
            "Id": name,
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "UnitFileState": "enabled",
            "NeedDaemonReload": "no",
        }
        return "".join(f"{key}={value}\n" for key, value in found.items())

    def answer(self, fact: type[Any], given: dict[str, Any]) -> str:
        """What the command of a fact prints here."""
        names: tuple[str, ...] = given.get("names", ())
        if fact is Paths:
            return "".join(f"{self.path(path)}\n" for path in given["paths"])
        if fact is Units:
            return "\n".join(self.unit(name) for name in names)
        if fact is Packages:
            versions = {deb.name: deb.version for deb in pins(self.seen)}
            return "".join(f"{name}|hi |{versions.get(name, '1.0-1')}\n" for name in names)
        if fact is Users:
            return "".join(f"{name}:x:998:998::/nonexistent:/usr/sbin/nologin\n" for name in names)
        if fact is CudaFact:
            titles = ("link", "choice", "toolkits", "compat", "environment", "libcuda", "end")
            return "".join(f"@@ {title}\n" for title in titles)
        told = {
            Survey: lambda: self.survey(given["head_address"]),
            Text: lambda: self.text(given["path"]),
            Apt: lambda: self.apt(names),
            Gpu: lambda: "\n".join(driver_samples.text()),
            FabricFact: lambda: self.fabric,
            IdentityFact: self.identity,
        }
        return str(told[fact]())


def block(number: int, text: str, nonce: str) -> str:
    """One command's answer as the survey's script frames it."""
    out = text.encode()
    body = base64.encodebytes(out).decode()
    return f"{nonce} begin fact.{number} 0 1 {len(out)} 0\n{nonce} data\n{body}{nonce} end 1\n"
