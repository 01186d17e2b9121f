"""A node to rebuild, without any connection: what it is, who uses it, what is done to it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from rackpin.checks.base import Command, Output, Runner
from rackpin.findings import Finding
from rackpin.fleet import mark as marks
from rackpin.fleet import quarantine
from rackpin.fleet.identity import Adapter, Card, Identity, Nic, fingerprint
from rackpin.fleet.mark import Mark
from rackpin.gateway.drain import Told
from rackpin.inventory import Fleet
from rackpin.rebuild.asking import Verdict
from rackpin.rebuild.hostkey import HostKey, Key
from rackpin.rebuild.look import HOSTS, SERIALS
from rackpin.rebuild.run import Rebuild
from rackpin.stack.lock import Lock
from rackpin.stages.base import hosts_file
from rackpin.verify.idle import HOLDERS

NAME = "worker2"
SLOTS = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]
OLD_KEY = Key("ssh-ed25519", "b2xkIGtleQ==")
NEW_KEY = Key("ssh-ed25519", "bmV3IGtleQ==")
IDLE = "end\n"


# Fingerprints of two host keys, and the keys as their files have them.
PUBLIC = {fingerprint(key): key for key in ("b25l", "dHdv")}
ONE, TWO = PUBLIC


def eight() -> Identity:
    """A node with eight cards and two adapters."""
    return Identity(
        board={"product_serial": "S1"},
        machine_id="aa" * 16,
        driver=True,
        gpus={s: Card(model="H100", uuid=f"GPU-{s[5:7]}", vbios="96.00") for s in SLOTS},
        hcas={
            "mlx5_0": Adapter(slot="0000:18:00.0", guid="a0:01", board="MT_1", firmware="28.39"),
            "mlx5_1": Adapter(slot="0000:40:00.0", guid="a0:02", board="MT_1", firmware="28.39"),
        },
        nics={"eth0": Nic(slot="0000:5e:00.0", mac="b8:ce:f6:00:00:01")},
        pci={slot: "10de:2330 030200" for slot in SLOTS},
        memory_kib=2113444852,
        host_keys=[ONE],
    )


def text_of(one: Identity) -> str:
    """As the node's script prints it."""
    rows = {
        "board": [f"{key}|{value}" for key, value in one.board.items()],
        "machine": [one.machine_id],
        "driver": ["loaded"] if one.driver else [],
        "gpus": [f"{s}|{c.model}|{c.uuid}|{c.vbios}" for s, c in one.gpus.items()],
        "hcas": [f"{n}|{h.slot}|{h.guid}|{h.board}|{h.firmware}" for n, h in one.hcas.items()],
        "nics": [f"{n}|{c.slot}|{c.mac}" for n, c in one.nics.items()],
        "pci": [f"{s}|0x{v[:4]}|0x{v[5:9]}|0x{v[10:]}" for s, v in one.pci.items()],
        "memory": [str(one.memory_kib)],
        "disks": [f"{n}|{d.model}|{d.serial}|{d.sectors}" for n, d in one.disks.items()],
        "keys": [PUBLIC[key] for key in one.host_keys],
        "end": [],
    }
    return "".join(
        f"@@ {part}\n" + "".join(f"{r}\n" for r in found) for part, found in rows.items()
    )


@dataclass
class World:
    """The fleet outside of the controller. ``asked``: all that was sent to a node."""

    fleet: Fleet
    lock: Lock
    tmp: Path
    now: Identity = field(default_factory=eight)
    holders: dict[str, str] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    serials: str = ""
    offered: Key = OLD_KEY
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # node, command, stdin
    deploys: list[tuple[str, ...]] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)  # partners of each verify
    bad: list[Finding] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)  # exit status by deploy
    before: Callable[[str], None] = lambda _: None  # called with each step that takes time
    told: list[list[str]] = field(default_factory=list)  # who was kept out at each telling
    gateway_answers: bool = True
    silent: bool = False
    after_stop: str = IDLE  # who uses the cards once the units are stopped
    console: Console = field(default_factory=lambda: Console(file=io.StringIO(), width=200))

    def __post_init__(self) -> None:
        config = self.fleet.config.model_copy(
            update={"state_dir": str(self.tmp / "state"), "report_dir": str(self.tmp / "reports")}
        )
        self.fleet = self.fleet.model_copy(update={"config": config})
        self.state = quarantine.state_of(self.fleet)
        self.known_hosts = self.tmp / "known_hosts"
        self.known_hosts.write_text(f"10.9.0.13 {OLD_KEY.kind} {OLD_KEY.blob}\n")

    # -- a way to the nodes
    @property
    def unreachable(self) -> dict[str, str]:
        return {NAME: "timed out"} if self.silent else {}

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def runner(self, name: str) -> Runner:
        raise AssertionError("nothing but ask")

    def each(self, names: Sequence[str], work: Callable[[str], Any]) -> dict[str, Any]:
        return {name: work(name) for name in names}

    def executions(self, name: str) -> int:
        return 0

    def ask(self, asked: Mapping[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
        return {
            name: {c.name: self.answer(name, c) for c in commands}
            for name, commands in asked.items()
            if not (self.silent and name == NAME)
        }

    def answer(self, name: str, command: Command) -> Output:
        self.asked.append((name, command.shell, command.stdin))
        mark = self.marks.get(name)
        texts = {
            marks.READ.shell: mark.model_dump_json() if mark else "",
            marks.IDENTITY.shell: text_of(self.now if name == NAME else eight()),
            HOLDERS.shell: self.holders.get(name, IDLE),
            SERIALS.shell: self.serials,
            HOSTS.shell: hosts_file("", self.fleet, self.fleet.nodes[name]),
        }
        if command.shell.startswith("systemctl stop"):
            self.holders[name] = self.after_stop
        return Output(rc=0, stdout=texts.get(command.shell, ""))

    # -- what else a rebuild is given
    def host_key(self) -> HostKey:
        text = self.known_hosts.read_text()
        from rackpin.rebuild.hostkey import known_keys

        return HostKey("10.9.0.13", self.known_hosts, self.offered, known_keys(text, "10.9.0.13"))

    def deploy(self, name: str, *options: str) -> int:
        self.before(name)
        self.deploys.append((name, *options))
        code = self.codes.get(name, 0)
        if name == "site" and "-y" in options and not code:
            self.state.was_ready(NAME, self.now, self.lock.digest, "r9")
            self.marks[NAME] = self.mark(self.now)
        return code

    def judge(self, fleet: Fleet, partner: str) -> Verdict:
        self.before("pair" if partner else "verify")
        assert NAME in fleet.kept_out, "it is asked while it is kept out"
        self.judged.append(partner)
        return Verdict(not self.bad, self.bad, self.now, str(self.tmp / "report.json"))

    def tell(self) -> Told:
        self.told.append(sorted(self.state.quarantined()))
        return Told(self.gateway_answers, "" if self.gateway_answers else "gate1: timed out")

    def mark(self, identity: Identity, **changes: Any) -> Mark:
        made = Mark(
            node=NAME, lock=self.lock.digest, state="ready", level="node",
            at="2026-08-01T10:00:00+00:00", run="r1", identity=identity,
        )  # fmt: skip
        return made.model_copy(update=changes)

    def rebuild(self, **options: Any) -> Rebuild:
        return Rebuild(
            NAME, self.fleet, self.lock, "inventory.py", self.state, lambda: self, self.host_key,
            self.deploy, self.judge, self.tell, "ada", console=self.console, **options,
        )  # fmt: skip

    @property
    def said(self) -> str:
        file = self.console.file
        assert isinstance(file, io.StringIO)
        return file.getvalue()

    def files(self) -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in self.tmp.rglob("*") if p.is_file()}
