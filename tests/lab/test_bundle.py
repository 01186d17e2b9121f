"""A fleet from a bundle and nothing else: its hosts reach no mirror, no index, no hub."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from rackpin.inventory import ROOT
from rackpin.lab import services
from rackpin.stack.lock import STACKS, load_stack, stack_pins, write_lock
from rackpin.stack.models import read_models
from rackpin.stack.share import SHARED_FROM, UNIT
from tests.lab.fleet import FIRST_RUN_S, FleetLab, booted, wait

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]
NAME = "test-bundle"
PORT = 8901
LINGER_S = 20
MODEL = "/srv/pinned/tiny"
LAB = f"""
name: {NAME}
outbound: false
base: {{ suite: bookworm, components: [main, contrib, non-free, non-free-firmware] }}
hosts:
  - {{ name: head1, groups: [head], sku: lab-cpu }}
  - {{ name: worker1, groups: [workers], sku: lab-cpu }}
"""


def stack_with_model(directory: Path) -> dict[str, str]:
    """The lab's stack, which pins the model too; the environment that names it."""
    model = directory / "model"
    subprocess.run([sys.executable, str(services.MAKE_MODEL), str(model)], check=True, timeout=120)
    stacks = directory / "stacks"
    shutil.copytree(STACKS, stacks)
    pins = stacks / "cpu-lab/pins.yaml"
    pins.write_text(f"{pins.read_text()}models: {{tiny: {{manifest: tiny.json}}}}\n")
    (stacks / "cpu-lab/tiny.json").write_text(rackpin("model", str(model)))
    # as `rackpin lock` would, without asking any index again
    read = stack_pins("cpu-lab", stacks)
    lock = load_stack("cpu-lab").lock
    write_lock(lock.but(pins_sha256=read.sha256, models=read_models(read, stacks)), stacks)
    return {"RACKPIN_STACKS": str(stacks)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    """Hosts without a way out, and a served bundle of the fleet's lock."""
    directory = tmp_path_factory.mktemp("offline")
    (directory / "lab.yaml").write_text(LAB)
    bundle, environment = directory / "bundle", stack_with_model(directory)
    given = ["--model", f"tiny={directory}/model", "--without-unresolved"]
    rackpin("bundle", "cpu-lab", "-o", str(bundle), *given, environment=environment)
    with booted(directory / "lab.yaml", NAME, directory) as site:
        site.environment |= environment
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


def rackpin(*arguments: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*TOOL, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def from_bundle(site: FleetLab) -> list[str]:
    url = f"http://{site.lab.control_address}:{PORT}"
    return [
        *("--data", f"bundle={json.dumps({'url': url, 'trusted': True})}"),
        *("--data", f"wheelhouse_url={url}/wheelhouse"),
        *("--data", f"transfers={json.dumps({'neighbours': True, 'linger_s': LINGER_S})}"),
        *("--data", f"instances={json.dumps([engine(site)])}"),
    ]


def engine(site: FleetLab) -> dict[str, object]:
    """The lab's own over both hosts, with the stack's model where the lab puts none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RACKPIN_LAB", site.lab.name)
        _, values = runpy.run_path(str(ROOT / "inventories/lab.py"))["all"]
    (own,) = values["instances"]
    return {**own, "model": MODEL, "model_pin": "tiny"}


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
        left = f"/opt/rackpin/share /run/systemd/system/{UNIT}"
        gone = f"! systemctl is-active -q {UNIT} && ! ls -d {left} 2>/dev/null && echo gone"
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


def test_the_stacks_model_is_fetched_proved_and_kept_so(site: FleetLab) -> None:
    """What the engine serves came from the bundle; a damaged file is fetched again, alone."""
    weights = (site.directory / "model/model.safetensors").read_bytes()
    for host in site.lab.hosts:
        assert site.ask(host.name, f"sha256sum <{MODEL}/model.safetensors").split()[0] == digest(
            weights
        )
    since = site.active_since()
    site.feed("worker1", f"printf x | dd of={MODEL}/config.json conv=notrunc 2>&1\n")
    run = site.run("site", *from_bundle(site))
    assert run.ok.ready and run.node("worker1").changes == ["serve: model tiny"], run.tail
    assert run.node("head1").changes == []
    assert "1.5 MB were there, " in run.text, "its lines are shown"
    assert site.ask("worker1", f"cat {MODEL}/config.json") == (
        (site.directory / "model/config.json").read_text().strip()
    )
    assert site.active_since() == since, "an engine that runs is not disturbed"


def test_a_model_that_does_not_fit_is_told_before_any_change(site: FleetLab) -> None:
    site.feed("worker1", "mkdir -p /srv/small && mount -t tmpfs -o size=1m none /srv/small\n")
    try:
        given = json.dumps([{**engine(site), "model": "/srv/small/tiny"}])
        run = site.run("site", *from_bundle(site), "--data", f"instances={given}")
        assert run.code == 1 and "no node was touched" in run.text, run.tail
        assert "are to be fetched to /srv/small/tiny, 0.0 GB are free there" in run.text
        assert site.ask("head1", "test -e /srv/small || echo none") == "none"
    finally:
        site.ask("worker1", "umount /srv/small")


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
