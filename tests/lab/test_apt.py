"""The apt stage on a real host with real apt, dpkg and unattended-upgrades.

The repository has two driver branches, a ``cuda`` that drags the newer one, and a fabric manager
that is there a point release off too.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.apt.pins import FILE
from rackpin.inventory import ROOT
from rackpin.lab import description, lifecycle
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from tests.fixtures_debs import Repository, flip, make_repository, new_key, release_date
from tests.fixtures_debs_names import DRIVER, NEWER, POINT, Package, family, package
from tests.lab.fleet import FleetLab, Run
from tests.lab.mirror import Mirror

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

NAME = "test-apt"
HOST = "head1"
MEMBERS = [*family(DRIVER), package("cuda-toolkit-12-2", "12.2.2-1")]
LAB = """\
base: {suite: bookworm, components: [main, contrib, non-free, non-free-firmware]}
hosts:
  - {name: head1, groups: [head]}
"""
# All of apt's configuration and the state of all packages, as one number.
SNAPSHOT = (
    "cd /etc/apt && find . -type f | sort | xargs sha256sum | sha256sum; "
    "dpkg-query -W -f '${Package} ${Version} ${Status}\\n' | sha256sum; "
    "ls /var/lib/rackpin/apt 2>/dev/null; cat /var/lib/rackpin/apt/* 2>/dev/null; true"
)
ANY_ORIGIN = 'Unattended-Upgrade::Origins-Pattern { "origin=*"; };'
INSTALL = "env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install"


class Site:
    """The host, its repository, and the inventory's values that the deploy gets."""

    def __init__(self, fleet: FleetLab, repository: Repository, mirror: Mirror) -> None:
        self.fleet, self.repository, self.mirror = fleet, repository, mirror
        self.source = {
            "name": "nvidia",
            "uri": mirror.url,
            "suite": repository.suite,
            "components": ["main"],
            "key_file": str(repository.key_file),
            "fingerprint": repository.fingerprint,
        }
        self.pins = [pin(one) for one in MEMBERS]

    def run(self, *deploys: str, pins: object = None, **source: object) -> Run:
        """Run apt.py (and further deploys) with the inventory's values, some of them changed."""
        values = {k: v for k, v in {**self.source, **source}.items() if v is not None}
        return self.fleet.run(
            "apt",
            *deploys,
            "--data",
            f"apt_repositories={json.dumps([values])}",
            "--data",
            f"apt_pins={json.dumps(self.pins if pins is None else pins)}",
            deadline_s=600,
        )

    def more_pins(self, *names: str) -> list[dict[str, str]]:
        """The pins and further ones: something that has to be proved anew."""
        return [*self.pins, *(pin(p) for p in self.repository.packages if p.name in names)]

    def ask(self, command: str, check: bool = True, deadline_s: float = 300) -> str:
        return self.fleet.ask(HOST, command, deadline_s, check=check)

    def refused(self, *words: str, pins: object = None, **source: object) -> Run:
        """The run fails at its proof, says why, and leaves the host as it was."""
        before = self.ask(SNAPSHOT)
        run = self.run(pins=pins, **source)
        assert run.code == 1, run.tail
        said = " ".join(run.text.split())
        assert "nothing was changed" in said, run.tail
        for word in words:
            assert word in said, run.tail
        assert self.ask(SNAPSHOT) == before
        return run

    def versions(self) -> dict[str, str]:
        """Installed version of each package with one of our names, in any branch."""
        text = self.ask(
            "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n' "
            "'*nvidia*' 'cuda*' | grep ' .i ' || true"
        )
        return {line.split()[0]: line.split()[1] for line in text.splitlines()}


def pin(one: Package) -> dict[str, str]:
    return {"name": one.name, "version": one.version, "origin": "nvidia"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = Path(tmp_path_factory.mktemp("apt"))
    repository = make_repository(directory / "nvidia", "two-branches")
    described = description.parse(LAB, "test_apt.py", NAME)
    wheelhouse.build(load_stack("cpu-lab"), say=print)
    lifecycle.down(NAME, purge=True)
    lab = lifecycle.up(described, NAME, say=print)
    mirror = Mirror(repository.path, lab.control_address)
    try:
        mirror.start()
        yield Site(FleetLab(lab, directory), repository, mirror)
    finally:
        mirror.stop()
        lifecycle.down(NAME, purge=True)


@pytest.fixture(scope="module")
def pinned(site: Site) -> Site:
    """The host after the stage ran for the first time, with the pinned members installed."""
    first = site.run()
    assert first.code == 0, first.tail
    names = " ".join(one.name for one in MEMBERS)
    site.ask(f"{INSTALL} {names} unattended-upgrades")
    second = site.run()
    assert second.code == 0, second.tail
    return site


def test_wrong_repositories_are_refused_before_the_first_change(site: Site) -> None:
    assert ROOT.is_dir() and site.ask(f"test ! -e {FILE} && echo bare") == "bare"
    other = new_key("other")
    file = other.export(site.fleet.directory / "other.asc")
    site.refused("NO_PUBKEY", "pinned key", key_file=str(file), fingerprint=other.fingerprint)
    said = site.run(key_file=str(file))
    assert said.code == 1 and "not the pinned" in " ".join(said.text.split()), said.tail
    said = site.run(key_file=None, fingerprint=None)
    assert said.code == 1 and '"trusted": True' in said.text, said.tail

    signed = {p: p.read_bytes() for p in site.repository.release_dir.glob("*elease*")}
    try:
        for path in signed:
            if path.name != "Release":
                path.unlink()
        site.refused("is not signed")
    finally:
        for path, content in signed.items():
            path.write_bytes(content)
    missing = [{"name": "nvidia-driver-535", "version": "535.54.03-0ubuntu1", "origin": "nvidia"}]
    site.refused("no repository has 535.54.03-0ubuntu1", f"{DRIVER}-0ubuntu1", pins=missing)


def test_the_stage_pins_every_member(pinned: Site) -> None:
    versions = pinned.versions()
    assert {one.name: versions.get(one.name) for one in MEMBERS} == {
        one.name: one.version for one in MEMBERS
    }
    assert not [name for name in versions if name.endswith("-550")]
    held = set(pinned.ask("apt-mark showhold").split())
    assert {one.name for one in MEMBERS} <= held


def test_a_second_run_changes_nothing_and_asks_no_mirror(pinned: Site) -> None:
    before, asked = pinned.ask(SNAPSHOT), len(pinned.mirror.requests)
    run = pinned.run("deploys/verify.py")
    assert pinned.ask(SNAPSHOT) == before
    assert pinned.mirror.requests[asked:] == [], "no apt-get update"
    assert run.report is not None
    assert run.node(HOST).changes == []
    # the survey, the checks, the first mark of this node, and the word that stops one that isn't
    # ready: nothing else is on it
    assert run.counts["executions"] == {HOST: 4}
    assert run.counts["misses"] == 0
    assert run.finding(HOST, "apt.sources").outcome == "pass", run.finding(HOST, "apt.sources")
    assert run.finding(HOST, "apt.pins").outcome == "pass", run.finding(HOST, "apt.pins")
    assert run.finding(HOST, "guard.upgrades").outcome == "pass"


def test_without_the_pins_an_upgrade_would_move_members(pinned: Site) -> None:
    """Else the next test would prove nothing."""
    none = "-o Dir::Etc::preferences=/none -o Dir::Etc::preferencesparts=/none --ignore-hold"
    said = pinned.ask(f"apt-get -s {none} dist-upgrade")
    assert f"Inst nvidia-fabricmanager-535 [{DRIVER}-1] ({POINT}-1" in said
    # not held and pinned by name only, as most sites do it, a metapackage still takes the driver
    said = pinned.ask(f"apt-get -s {none} install cuda cuda-drivers-550")
    assert f"({NEWER}-0ubuntu1" in said and "Remv nvidia-driver-535" in said


@pytest.mark.parametrize(
    "attack",
    [
        "apt-get -y dist-upgrade",
        "apt-get -y install cuda",
        "yes | apt-get install cuda",
        "apt-get -y install cuda-drivers",
        "apt-get -y install nvidia-driver-550",
        "unattended-upgrade -v",
    ],
)
def test_no_upgrade_moves_a_member(pinned: Site, attack: str) -> None:
    before = pinned.versions()
    pinned.ask(f"echo '{ANY_ORIGIN}' >/etc/apt/apt.conf.d/99-any-origin")
    try:
        said = pinned.ask(
            f"export DEBIAN_FRONTEND=noninteractive; {attack} 2>&1 | tail -n 40", deadline_s=600
        )
    finally:
        pinned.ask("rm /etc/apt/apt.conf.d/99-any-origin")
    assert pinned.versions() == before
    if "unattended" in attack:
        assert "Starting unattended upgrades script" in said and "origin=*" in said


@pytest.mark.slow  # it waits for retries of more than a minute
def test_stale_lists_stop_before_any_change(pinned: Site) -> None:
    pinned.mirror.stop()
    try:
        assert pinned.ask("apt-get -qq -o Acquire::Retries=0 update >&2; echo $?") == "0"
        began = time.monotonic()
        pinned.refused(
            "Failed to fetch", "Could not connect", pins=pinned.more_pins("libnccl2")[:-1]
        )
        assert time.monotonic() - began > 60, "it was tried again for a while"
    finally:
        pinned.mirror.start()


@pytest.mark.slow  # it waits for retries of more than a minute
def test_a_torn_mirror_is_tried_again(pinned: Site) -> None:
    pinned.repository.sign(Date=release_date())
    index = sorted(pinned.repository.index_dir.rglob("*"))
    whole = {path: path.read_bytes() for path in index if path.is_file()}
    pinned.repository.add(package("rackpin-filler", "1"))
    new = {path: path.read_bytes() for path in whole}
    for path, content in whole.items():
        path.write_bytes(content)  # the old index under the new Release
    for path in pinned.repository.index_dir.rglob("by-hash/SHA256/*"):
        if path not in whole:
            path.unlink()

    def mend() -> None:
        pinned.repository.index()

    assert whole != new
    timer = threading.Timer(12, mend)
    timer.start()
    try:
        run = pinned.run(pins=pinned.more_pins("nvidia-container-toolkit")[:-1])
    finally:
        timer.join()
    assert run.code == 0, run.tail
    assert pinned.run().code == 0, "and back"


LOCKER = r"""
use Fcntl; $| = 1;
for my $f (@ARGV) {
  open(my $h, ">>", $f) or die "$f: $!"; push @h, $h;
  fcntl($h, F_SETLK, pack("s s x4 q q i x4", F_WRLCK, SEEK_SET, 0, 0, 0)) or die "$f: $!";
}
print "locked\n"; sleep 20; close $_ for @h; print "released\n"; sleep 600;
"""


def test_a_lock_is_waited_for_and_its_holder_left_alone(pinned: Site) -> None:
    """A first-boot upgrade holds apt's and dpkg's locks; flock(1) would not block apt."""
    pinned.ask(f"cat >/tmp/locker.pl <<'X'\n{LOCKER}\nX")
    pinned.ask("apt-mark unhold nvidia-utils-535")
    locks = "/var/lib/apt/lists/lock /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock"
    pinned.ask(
        f"(perl /tmp/locker.pl {locks} >/tmp/locker.log 2>&1 & echo $! >/tmp/locker.pid); "
        "for i in 1 2 3 4 5 6 7 8 9; do grep -q locked /tmp/locker.log && break; sleep 0.3; done; "
        "grep locked /tmp/locker.log"
    )
    busy = pinned.ask("apt-get -o DPkg::Lock::Timeout=1 -qq update 2>&1 || true")
    assert "Could not get lock" in busy
    run = pinned.run(pins=pinned.more_pins("nvidia-container-toolkit")[:-1])
    log = pinned.ask("cat /tmp/locker.log; kill -0 $(cat /tmp/locker.pid) && echo alive")
    pinned.ask("kill $(cat /tmp/locker.pid)")
    assert run.code == 0, run.tail
    assert log.split() == ["locked", "released", "alive"]
    assert "nvidia-utils-535" in pinned.ask("apt-mark showhold").split()
    assert pinned.run().code == 0


def test_an_interrupted_dpkg_is_repaired(pinned: Site) -> None:
    one = package("rackpin-half", "1")
    pinned.repository.add(one)
    pinned.ask("apt-get -qq update; cd /tmp && apt-get -qq download rackpin-half")
    pinned.ask("dpkg --unpack /tmp/rackpin-half_1_amd64.deb; : >/var/lib/dpkg/updates/0001")
    assert "rackpin-half" in pinned.ask("dpkg --audit")
    run = pinned.run()
    assert run.code == 0, run.tail
    assert pinned.ask("dpkg --audit; ls /var/lib/dpkg/updates") == ""
    assert pinned.ask("dpkg-query -W -f '${db:Status-Abbrev}' rackpin-half").strip() == "ii"


def test_a_package_that_can_not_be_configured_stops_the_node(pinned: Site) -> None:
    broken = Package("rackpin-broken", "1", scripts={"postinst": "#!/bin/sh\nexit 10\n"})
    pinned.repository.add(broken)
    pinned.ask("apt-get -qq update; cd /tmp && apt-get -qq download rackpin-broken")
    pinned.ask("dpkg --unpack /tmp/rackpin-broken_1_amd64.deb")
    before = pinned.versions()
    try:
        run = pinned.run()
        assert run.code == 1
        assert "post-installation script subprocess returned error exit status 10" in run.text
        assert pinned.versions() == before
    finally:
        pinned.ask("dpkg --purge --force-all rackpin-broken")
    assert pinned.run().code == 0


def test_site_pins_are_kept_and_reported(pinned: Site) -> None:
    said = "# ours\n\nPackage: nvidia-driver-535\nPin: version 535.183*\nPin-Priority: 1002\n"
    pref = "/etc/apt/preferences.d/50-site.pref"
    pinned.ask(f"printf '{said}' | tee {pref} >/etc/apt/preferences.d/cuda-12.2")
    try:
        run = pinned.run("deploys/verify.py")
        assert run.node(HOST).changes == []
        finding = run.finding(HOST, "apt.pins")
        assert finding.outcome == "warn" and f"{pref}:3 pins nvidia-driver-535" in finding.summary
        assert "cuda-12.2:3" in finding.summary and "does not read" in finding.summary
        assert any(f"{pref}:3" in note for note in run.report.notes)  # type: ignore[union-attr]
        assert pinned.ask(f"cat {pref}") == said.rstrip()
    finally:
        pinned.ask(f"rm {pref} /etc/apt/preferences.d/cuda-12.2")


def test_a_site_pin_that_breaks_ours_is_overruled_and_kept(pinned: Site) -> None:
    said = "Package: nvidia-driver-535\nPin: version *\nPin-Priority: -1\n"
    other = "\nPackage: vim\nPin: version 1\nPin-Priority: 5\n"
    pinned.ask(f"printf '{said}{other}' >/etc/apt/preferences")
    try:
        run = pinned.run()
        assert run.code == 0, run.tail
        assert "/etc/apt/preferences:1 breaks a pin: switched off" in run.text
        text = pinned.ask("cat /etc/apt/preferences")
        assert "# Package: nvidia-driver-535" in text and "\nPackage: vim" in text
        kept = pinned.ask("cat /var/lib/rackpin/backup/etc/apt/preferences")
        assert kept == (said + other).rstrip()
        again = pinned.run()
        assert again.code == 0 and "switched off" not in again.text, "once is enough"
    finally:
        pinned.ask("rm -f /etc/apt/preferences /var/lib/rackpin/backup/etc/apt/preferences*")


def test_another_source_file_for_the_repository(pinned: Site) -> None:
    """By hand, without a key, and read after ours: apt itself refuses all sources then (F019)."""
    path = "/etc/apt/sources.list.d/zz-cuda.list"
    line = f"deb {pinned.mirror.url}/ {pinned.repository.suite} main"
    pinned.ask(f"echo '{line}' >{path}")
    assert "Conflicting values" in pinned.ask("apt-get update 2>&1 || true")
    run = pinned.run()
    assert run.code == 0, run.tail
    assert f"{path}:1 names a repository of rackpin's" in run.text or run.report is None
    now = pinned.ask(f"cat {path}")
    assert now.splitlines()[-1] == f"# {line}" and "rackpin" in now
    assert pinned.ask(f"cat /var/lib/rackpin/backup{path}") == line
    assert "Conflicting" not in pinned.ask("apt-get -qq update 2>&1 || true")
    again = pinned.run("deploys/verify.py")
    assert again.node(HOST).changes == []
    assert again.finding(HOST, "apt.sources").outcome == "pass"


def test_what_the_inventory_drops_goes_and_holds_with_it(pinned: Site) -> None:
    left = pinned.pins[:-1]
    run = pinned.run(pins=left)
    assert run.code == 0, run.tail
    assert MEMBERS[-1].name not in pinned.ask("apt-mark showhold").split()
    run = pinned.fleet.run("apt")
    assert run.code == 0, run.tail
    assert pinned.ask("ls /etc/apt/*/rackpin-* 2>/dev/null || true") == ""
    names = "grep ^Package: /etc/apt/preferences.d/00-rackpin.pref"
    stays = set(pinned.ask(names).split()) - {"Package:"}
    assert stays == {"chrony", "libnuma1", "python3"}, "the lock's own pins"
    assert set(pinned.ask("apt-mark showhold").split()) <= stays
    assert pinned.run().code == 0, "and all of it comes back"


def test_the_stages_after_it_agree(pinned: Site) -> None:
    """base installs packages through the same apt; afterwards both have nothing to do."""
    first = pinned.run("deploys/base.py")
    assert first.code == 0, first.tail
    before, asked = pinned.ask(SNAPSHOT), len(pinned.mirror.requests)
    second = pinned.run("deploys/base.py")
    assert second.code == 0, second.tail
    assert second.asked == {"executions": {HOST: 1}, "misses": 0}, second.tail
    assert pinned.ask(SNAPSHOT) == before and pinned.mirror.requests[asked:] == []


@pytest.mark.slow  # it waits for retries of more than a minute
def test_a_damaged_index_is_refused(pinned: Site) -> None:
    pinned.repository.add(package("rackpin-late", "1"))
    for path in pinned.repository.index_dir.rglob("*"):
        if path.is_file():
            flip(path)
    try:
        pinned.refused(
            "Hash Sum mismatch", "by-hash", pins=pinned.more_pins("nvidia-container-toolkit")[:-1]
        )
    finally:
        pinned.repository.index()
