"""Wrong things tried on a working fleet: one clear error, and nothing was changed anywhere."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rackpin.inventory import ROOT
from rackpin.stack import wheelhouse
from tests.lab.fleet import FleetLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def refused(fleet_lab: FleetLab, *options: str) -> str:
    """Run site.py; it must be refused before any operation. Returns what it said."""
    run = fleet_lab.run("site", *options, deadline_s=120)
    assert run.code == 1, run.tail
    assert "Starting operation" not in run.text, run.tail
    assert run.report is None, "a refused run writes no report"
    assert "Traceback" not in run.text, run.tail
    return " ".join(run.text.split())


@contextmanager
def on_host(fleet_lab: FleetLab, host: str, do: str, undo: str) -> Iterator[None]:
    fleet_lab.ask(host, do)
    try:
        yield
    finally:
        fleet_lab.ask(host, undo)


def test_unknown_stack(fleet_lab: FleetLab) -> None:
    said = refused(fleet_lab, "--data", "stack=no-such-stack")
    assert "no-such-stack" in said and "cpu-lab" in said, "the known ones are listed"


def test_bad_inventory_all_at_once(fleet_lab: FleetLab) -> None:
    said = refused(fleet_lab, "--data", "stak=cpu-lab", "--data", "max_clock_offset_s=soon")
    assert "stak" in said and "max_clock_offset_s" in said


@pytest.fixture
def tampered_stack() -> Iterator[str]:
    """A copy of cpu-lab whose pins moved after it was locked."""
    name = "test-tampered"
    path = ROOT / "stacks" / name
    shutil.copytree(ROOT / "stacks" / "cpu-lab", path)
    try:
        for file in [path / "pins.yaml", path / "lock" / "lock.json"]:
            text = file.read_text().replace("name: cpu-lab", f"name: {name}")
            text = text.replace('"stack": "cpu-lab"', f'"stack": "{name}"')
            file.write_text(text.replace("libnuma1", "libnuma-dev", 1))
        yield name
    finally:
        shutil.rmtree(path)


def test_a_lock_that_does_not_match_its_pins(fleet_lab: FleetLab, tampered_stack: str) -> None:
    said = refused(fleet_lab, "--data", f"stack={tampered_stack}")
    assert f"rackpin lock {tampered_stack}" in said


def test_a_wheel_whose_hash_differs(fleet_lab: FleetLab, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    subprocess.run(
        ["cp", "-al", wheelhouse.default_dir(), cache / "wheelhouse"], check=True, timeout=60
    )
    wheel = sorted((cache / "wheelhouse").glob("idna-*.whl"))[0]
    size = wheel.stat().st_size
    wheel.unlink()  # a hard link: the real wheelhouse keeps its own
    wheel.write_bytes(b"x" * size)
    fleet_lab.environment["RACKPIN_CACHE"] = str(cache)
    try:
        said = refused(fleet_lab)
    finally:
        del fleet_lab.environment["RACKPIN_CACHE"]
    assert wheel.name in said and "expected sha256" in said
    assert "rackpin wheelhouse build cpu-lab" in said


def test_a_port_in_use(fleet_lab: FleetLab) -> None:
    unit = "vllm@tiny-one"
    with on_host(
        fleet_lab,
        "worker2",
        f"systemctl stop {unit} && systemd-run -q --unit=squatter "
        "/opt/rackpin/current/bin/python -m http.server 8000 && sleep 2",
        f"systemctl stop squatter; systemctl start {unit}",
    ):
        said = refused(fleet_lab)
    assert "worker2 · port 8000" in said and "squatter.service" in said
    fleet_lab.wait_serving()


def test_a_disk_too_small_for_the_environment(fleet_lab: FleetLab) -> None:
    with on_host(
        fleet_lab,
        "worker1",
        "for f in /opt/rackpin/env/*/.complete; do mv $f $f-away; done",
        "for f in /opt/rackpin/env/*/.complete-away; do mv $f ${f%-away}; done",
    ):
        said = refused(fleet_lab, "--data", "min_free_gb=1000000")
    assert "worker1 · disk" in said and "worker2 · disk" not in said, "only the one that builds"


def test_a_clock_that_is_off(fleet_lab: FleetLab) -> None:
    fake = r"""#!/bin/sh\ncase "$1" in +*) exec /bin/date -d "90 seconds ago" "$1";; esac\n"""
    with on_host(
        fleet_lab,
        "worker1",
        f"printf '{fake}exec /bin/date \"$@\"\\n' > /usr/local/bin/date && "
        "chmod 755 /usr/local/bin/date",
        "rm /usr/local/bin/date",
    ):
        said = refused(fleet_lab)
    assert "worker1 · clock" in said and "limit 60 s" in said


def test_an_os_that_no_lock_is_for(fleet_lab: FleetLab) -> None:
    with on_host(
        fleet_lab,
        "worker1",
        'cp -a --remove-destination "$(readlink -f /etc/os-release)" /etc/os-release.real && '
        "sed 's/VERSION_ID=.*/VERSION_ID=\"13\"/' /etc/os-release.real > /etc/os-release.new && "
        "mv /etc/os-release.new /etc/os-release",
        "mv /etc/os-release.real /etc/os-release",
    ):
        said = refused(fleet_lab)
    assert "worker1 · os" in said and "debian 13" in said


def test_every_problem_of_every_node_is_listed_at_once(fleet_lab: FleetLab) -> None:
    everywhere = "for f in /opt/rackpin/env/*/.complete; do mv $f $f-away; done"
    back = "for f in /opt/rackpin/env/*/.complete-away; do mv $f ${f%-away}; done"
    with (
        on_host(fleet_lab, "worker1", everywhere, back),
        on_host(fleet_lab, "worker2", everywhere, back),
    ):
        said = refused(fleet_lab, "--data", "min_free_gb=1000000")
    assert "worker1, worker2 · disk" in said or (
        "worker1 · disk" in said and "worker2 · disk" in said
    )


ODD = """\
from pyinfra import host

from rackpin.isolated import operation


@operation()
def odd():
    if host.name == "worker1" and host.state.is_executing:
        raise KeyError("nobody thought of this")
    yield "touch /run/t-isolated"


odd(name="test: odd")
"""


def test_code_that_raises_for_one_node_stops_that_node_only(
    fleet_lab: FleetLab, tmp_path: Path
) -> None:
    file = tmp_path / "odd.py"
    file.write_text(ODD)
    run = fleet_lab.run("apt", str(file))
    assert run.code == 1, run.tail
    assert "nobody thought of this" in run.text, run.tail
    there = "test -e /run/t-isolated && echo there || echo none"
    found = {host.name: fleet_lab.ask(host.name, there) for host in fleet_lab.lab.hosts}
    assert found == {"head1": "there", "worker1": "none", "worker2": "there"}


def test_after_all_this_the_fleet_is_as_before(fleet_lab: FleetLab) -> None:
    report = fleet_lab.run("site").ok
    assert [c for n in report.nodes for c in n.changes] == []
