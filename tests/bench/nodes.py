"""The nodes that are measured: one lab host as the head, the others beside it on the same host.

256 booted systems don't fit on one small machine; 256 sshds with their own network, name, ``/etc``
and ``/var/lib/rackpin`` do, and no stage can tell them from hosts (``nodes.sh``).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rackpin.lab import ssh
from rackpin.lab.process import run
from rackpin.stack import serve
from tests.bench.measure import BenchError
from tests.lab.fleet import FleetLab

NETWORK = "10.88.0.0/16"  # of the nodes, behind the lab host
MOST = 256
# Ansible's modules need these two; python3 comes with rackpin's base stage too.
FOR_ANSIBLE = "python3 python3-apt"


def name_of(number: int) -> str:
    return f"n{number:03d}"


def address_of(number: int) -> str:
    """As in ``nodes.sh``; the head (0) is the lab host itself and has another."""
    return f"10.88.{number // 200}.{number % 200 + 1}"


@dataclass
class Nodes:
    site: FleetLab
    directory: Path
    made: int = 1
    host: str = "h0"
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return self.site.lab.host(self.host).address

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    def prepare(self) -> None:
        """What the host gets before anything is measured."""
        install = f"DEBIAN_FRONTEND=noninteractive apt-get install -y -qq {FOR_ANSIBLE}"
        self.site.ask(self.host, f"apt-get update -qq && {install}", deadline_s=300)
        run(["ip", "route", "replace", NETWORK, "via", self.address])

    def grow(self, count: int) -> None:
        """Make nodes until there are ``count``, the head included; all of them answer."""
        if count > MOST:
            raise BenchError(f"--nodes {count}: at most {MOST}")
        if count > self.made:
            script = (Path(__file__).parent / "nodes.sh").read_text()
            head = ssh.argv(self.site.lab, self.site.lab.host(self.host), "-o", "BatchMode=yes")
            done = subprocess.run(
                [*head, f"sh -s {self.made} {count - 1}"],
                input=script,
                text=True,
                capture_output=True,
                timeout=300,
            )
            if done.returncode:
                raise BenchError(f"the nodes could not be made: {done.stderr[-2000:]}")
            self.made = count
        self._write_inventory()
        self._write_known_hosts()
        self._wait(count)

    def _write_inventory(self) -> None:
        """What the inventories need, so that they import nothing of the lab."""
        lab = self.site.lab
        others = [(name_of(n), address_of(n)) for n in range(1, self.made)]
        given = {
            "fleet": lab.name,
            "wheelhouse_url": f"http://{lab.control_address}:{serve.PORT}",
            "ssh_key": str(lab.ssh_key),
            "nodes": [(name_of(0), self.address), *others],
        }
        (self.directory / "nodes.json").write_text(json.dumps(given))

    def _write_known_hosts(self) -> None:
        lines = self.site.lab.known_hosts.read_text().splitlines()
        pairs = [line.split(" ", 1) for line in lines]
        keys = [key for names, key in pairs if self.address in names.split(",")]
        if not keys:
            raise BenchError(f"{self.site.lab.known_hosts} has no key of {self.address}")
        names = [self.address, *(address_of(n) for n in range(1, self.made))]
        names += filter(None, [self.environment.get("RACKPIN_BENCH_RELAY_NAME")])
        text = "".join(f"{name} {key}\n" for name in names for key in keys)
        self.known_hosts.write_text(text)

    def through(self, port: int) -> None:
        """From now on the head is reached by a port of this machine."""
        self.environment["RACKPIN_BENCH_RELAY"] = str(port)
        self.environment["RACKPIN_BENCH_RELAY_NAME"] = f"[127.0.0.1]:{port}"
        self._write_known_hosts()

    def _wait(self, count: int) -> None:
        last = address_of(count - 1) if count > 1 else self.address
        end = time.monotonic() + 60
        probe = ["timeout", "2", "bash", "-c", f"exec 3<>/dev/tcp/{last}/22"]
        while subprocess.run(probe, stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > end:
                raise BenchError(f"{name_of(count - 1)} ({last}) does not answer")
            time.sleep(0.5)


@contextmanager
def routed(site: FleetLab, directory: Path) -> Iterator[Nodes]:
    nodes = Nodes(site, directory)
    try:
        nodes.prepare()
        yield nodes
    finally:
        subprocess.run(["ip", "route", "del", NETWORK, "via", nodes.address], check=False)
