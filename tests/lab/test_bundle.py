"""A fleet from a bundle and nothing else: its hosts reach no mirror, no index, no hub."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from rackpin.inventory import ROOT
from rackpin.stack.lock import load_stack
from rackpin.stack.share import SHARED_FROM, UNIT
from tests.lab.fleet import FIRST_RUN_S, FleetLab, booted, wait

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]
NAME = "test-bundle"
PORT = 8901
LINGER_S = 20
LAB = f"""
name: {NAME}
outbound: false
base: {{ suite: bookworm, components: [main, contrib, non-free, non-free-firmware] }}
hosts:
  - {{ name: head1, groups: [head], sku: lab-cpu }}
  - {{ name: worker1, groups: [workers], sku: lab-cpu }}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    """Hosts without a way out, and a served bundle of the fleet's lock."""
    directory = tmp_path_factory.mktemp("offline")
    (directory / "lab.yaml").write_text(LAB)
    bundle = directory / "bundle"
    rackpin("bundle", "cpu-lab", "-o", str(bundle), "--without-unresolved")
    with booted(directory / "lab.yaml", NAME, directory) as site:
        serve = [*TOOL, "bundle", "serve", str(bundle), "--bind", site.lab.control_address]
        # one at a time: the second node has to find what the first has
        serve += ["--port", str(PORT), "--at-once", "1"]
        with (directory / "serve.log").open("wb") as log:
            server = subprocess.Popen(serve, stderr=log, cwd=ROOT)
        try:
            wait(lambda: "serving" in (directory / "serve.log").read_text(), "the bundle", 30)
            yield site
        finally:
            server.terminate()
            server.wait(30)


TOOL = (str(Path(sys.executable).with_name("rackpin")),)


def rackpin(*arguments: str) -> str:
    done = subprocess.run(
        [*TOOL, *arguments], capture_output=True, text=True, timeout=900, cwd=ROOT, env=os.environ
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def from_bundle(site: FleetLab) -> list[str]:
    url = f"http://{site.lab.control_address}:{PORT}"
    return [
        *("--data", f"bundle={json.dumps({'url': url, 'trusted': True})}"),
        *("--data", f"wheelhouse_url={url}/wheelhouse"),
        *("--data", f"transfers={json.dumps({'neighbours': True, 'linger_s': LINGER_S})}"),
    ]


def test_a_fleet_from_a_bundle_with_no_other_way_out(site: FleetLab) -> None:
    for host in site.lab.hosts:
        update = "apt-get -q -o APT::Update::Error-Mode=any -o Acquire::Retries=0 update"
        said = site.ask(host.name, f"timeout 60 {update}; echo rc=$?", 90, check=False)
        assert "rc=0" not in said, "the host has a way out, so this proves nothing"
    before = {h.name: site.ask(h.name, "cat /etc/apt/sources.list") for h in site.lab.hosts}
    run = site.run("site", *from_bundle(site), deadline_s=FIRST_RUN_S)
    assert run.ok.ready
    closure = load_stack("cpu-lab").lock.require_debs("debian-12")
    versions = {deb.name: deb.version for deb in closure.debs}
    for host in site.lab.hosts:
        assert site.ask(host.name, "cat /etc/apt/sources.list") == before[host.name], "its own"
        for name in ("chrony", "python3", "libnuma1"):
            there = site.ask(host.name, f"dpkg-query -W -f '${{Version}}' {name}")
            assert there == versions[name]
        held = site.ask(host.name, "apt-mark showhold").split()
        assert {"chrony", "python3", "libnuma1"} <= set(held)
        assert site.ask(host.name, "apt-get -q update >/dev/null 2>&1; echo $?") == "0"


def test_wheels_came_from_the_neighbour_too(site: FleetLab) -> None:
    """Each big one left the control machine less than once for each node; nothing is left of it."""
    big = {w.filename for w in load_stack("cpu-lab").lock.wheels if w.size >= SHARED_FROM}
    log = (site.directory / "serve.log").read_text()
    given = re.findall(r'"GET /wheelhouse/(\S+) HTTP/1.1" 200', log)
    count = Counter(name for name in map(unquote, given) if name in big)
    assert len(big) <= sum(count.values()) < 2 * len(big), count
    for host in site.lab.hosts:
        gone = f"! systemctl is-active -q {UNIT} && ! test -e /opt/rackpin/share && echo gone"
        wait(
            lambda host=host, gone=gone: site.ask(host.name, gone, check=False) == "gone",
            f"the end of {UNIT} on {host.name}",
            LINGER_S + 30,
        )
        assert site.ask(host.name, "systemctl --failed --plain --no-legend") == ""


def test_the_second_run_changes_nothing(site: FleetLab) -> None:
    since = site.active_since()
    run = site.run("site", *from_bundle(site))
    assert (run.ok.ready and "No changes" in run.text) or run.counts.get("changed", 0) == 0, (
        run.tail
    )
    assert site.active_since() == since


def test_a_changed_deb_is_refused_by_the_lock_although_its_index_agrees(site: FleetLab) -> None:
    """Unsigned, a deb and its index can be changed together: the lock still knows better."""
    place = site.directory / "bundle/debs/debian-12/debian"
    index, packed = place / "Packages", place / "Packages.gz"
    before = index.read_text(), packed.read_bytes()
    release = (place / "Release").read_text()
    debs = load_stack("cpu-lab").lock.require_debs("debian-12").debs
    # no pinned package: those that are installed already are not asked for again
    deb = next(deb for deb in debs if deb.name == "libtirpc3")
    try:
        text = before[0].replace(deb.sha256, "0" * 64)
        index.write_text(text)
        packed.write_bytes(gzip.compress(text.encode(), mtime=0))
        changed = release
        for old, new in ((before[0].encode(), text.encode()), (before[1], packed.read_bytes())):
            changed = changed.replace(digest(old), digest(new)).replace(
                f" {len(old)} ", f" {len(new)} "
            )
        (place / "Release").write_text(changed)
        site.ask("worker1", "rm -f /var/lib/rackpin/apt/proved")
        run = site.run("apt", *from_bundle(site))
        assert run.code == 1, run.tail
        assert f"{deb.name}: {deb.version} is offered with sha256 000" in run.text, run.tail
        assert "nothing was changed" in run.text
    finally:
        index.write_text(before[0])
        packed.write_bytes(before[1])
        (place / "Release").write_text(release)
    site.run("apt", *from_bundle(site))
    assert site.ask("worker1", "test -s /var/lib/rackpin/apt/proved && echo proved") == "proved"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_bundle_of_another_lock_is_refused_before_any_change(site: FleetLab) -> None:
    url = f"http://{site.lab.control_address}:{PORT + 1}"
    data = json.dumps({"url": url, "trusted": True})
    run = site.run("site", "--data", f"bundle={data}", "--data", f"wheelhouse_url={url}/wheelhouse")
    assert run.code == 1 and "bundle" in run.text and "no answer" in run.text, run.tail
    assert "rackpin bundle serve" in run.text
