"""Drift put into a real node for real, seen in one round trip, and put back."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from rackpin.audit.document import Document
from rackpin.inventory import ROOT
from tests.lab.fleet import FleetLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]

NODE = "worker2"
NODE_S = 5.0  # on the node, on cores that it shares
ENV = "/opt/rackpin/current"
SITE = f"{ENV}/lib/python3.11/site-packages"
UNIT = "vllm@tiny-one.service"
PROGRAM = "/usr/local/lib/rackpin/audit"
TEXTFILE = "/var/lib/rackpin/metrics/rackpin-audit.prom"


@dataclass(frozen=True)
class Fault:
    """Kinds that must be seen, all of them and no other; shell text that puts it in and back."""

    name: str
    kinds: frozenset[str]
    put_in: str
    put_back: str
    others: bool = False  # further kinds follow from it


def flip(path: str) -> str:
    """Flip one bit in the middle of a file; size and mtime stay. Twice: as it was."""
    return f"""python3 - <<'EOF'
import os
p = "{path}"
s = os.stat(p)
with open(p, "r+b") as f:
    f.seek(s.st_size // 2)
    b = f.read(1)
    f.seek(s.st_size // 2)
    f.write(bytes([b[0] ^ 1]))
os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))
EOF"""


def wheel(path: str) -> str:
    """Make a wheel of one module on the node."""
    return f"""python3 - <<'EOF'
import zipfile
with zipfile.ZipFile("{path}", "w") as z:
    i = "stranger-1.0.dist-info/"
    z.writestr("stranger.py", "")
    z.writestr(i + "METADATA", "Metadata-Version: 2.1\\nName: stranger\\nVersion: 1.0\\n")
    z.writestr(i + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    names = ["stranger.py", i + "METADATA", i + "WHEEL", i + "RECORD"]
    z.writestr(i + "RECORD", "".join(n + ",,\\n" for n in names))
EOF"""


WHEEL = "/tmp/stranger-1.0-py3-none-any.whl"
PIP = f"$(ls /opt/rackpin/tools/uv-*/uv) pip --no-cache --python {ENV}/bin/python"
DEB = "/tmp/libnvidia-compute-580"
CONTROL = "Package: libnvidia-compute-580\\nVersion: 580.65.06-1\\nArchitecture: all\\n"
CONTROL += "Maintainer: nobody <nobody@example.org>\\nDescription: a stranger\\n"

FAULTS = [
    Fault(
        "unit file edited",
        frozenset({"file.edited", "unit.reload"}),
        "cd /etc/systemd/system && cp -a ray-worker.service /tmp/kept && "
        "echo '# tuned by hand' >> ray-worker.service",
        "cp -a /tmp/kept /etc/systemd/system/ray-worker.service && systemctl daemon-reload",
    ),
    Fault(
        "drop-in",
        frozenset({"unit.dropin"}),
        f"mkdir /etc/systemd/system/{UNIT}.d && cd /etc/systemd/system/{UNIT}.d && "
        "printf '[Service]\\nLimitNOFILE=1024\\n' > tune.conf && systemctl daemon-reload",
        f"rm -r /etc/systemd/system/{UNIT}.d && systemctl daemon-reload",
    ),
    Fault(
        "unit disabled",
        frozenset({"unit.disabled"}),
        f"systemctl disable -q {UNIT}",
        f"systemctl enable -q {UNIT}",
    ),
    Fault(
        "secret readable",
        frozenset({"file.mode"}),
        "chmod 644 /etc/rackpin/vllm/tiny-one.env",
        "chmod 600 /etc/rackpin/vllm/tiny-one.env",
    ),
    Fault(
        "package installed into the environment",
        frozenset({"wheel.extra"}),
        f"{wheel(WHEEL)}\n{PIP.replace('pip', 'pip install -q --no-index --no-deps', 1)} {WHEEL}",
        f"{PIP.replace('pip', 'pip uninstall -q', 1)} stranger; rm {WHEEL}",
    ),
    Fault(
        "one bit of a wheel's file",
        frozenset({"wheel.file"}),
        flip(f"{SITE}/idna/core.py"),
        flip(f"{SITE}/idna/core.py"),
    ),
    Fault(
        "a file of nobody",
        frozenset({"wheel.stray"}),
        f"touch {SITE}/sitecustomize.py",
        f"rm {SITE}/sitecustomize.py",
    ),
    Fault(
        "package removed",
        frozenset({"deb.missing"}),
        "dpkg --remove --force-depends --force-hold libnuma1",
        "DEBIAN_FRONTEND=noninteractive apt-get -q -y --allow-change-held-packages "
        "install libnuma1 && apt-mark hold libnuma1",
    ),
    Fault(
        "library of another driver branch",
        frozenset({"deb.driver"}),
        f"mkdir -p {DEB}/DEBIAN && printf '{CONTROL}' > {DEB}/DEBIAN/control && "
        f"dpkg-deb --build {DEB} {DEB}.deb && dpkg --install {DEB}.deb",
        f"dpkg --purge libnvidia-compute-580 && rm -r {DEB} {DEB}.deb",
    ),
    Fault(
        "link moved",
        frozenset({"env.current"}),
        "mkdir /opt/rackpin/env/other && readlink /opt/rackpin/current > /tmp/was && "
        "ln -s /opt/rackpin/env/other /opt/rackpin/.x && "
        "mv -T /opt/rackpin/.x /opt/rackpin/current",
        'ln -s "$(cat /tmp/was)" /opt/rackpin/.x && mv -T /opt/rackpin/.x /opt/rackpin/current && '
        "rmdir /opt/rackpin/env/other",
        others=True,
    ),
]


def audit(lab: FleetLab, *options: str) -> tuple[int, Document, float]:
    """``rackpin audit --json`` as a person runs it: exit code, document, seconds."""
    began = time.monotonic()
    done = subprocess.run(
        ["rackpin", "audit", "-i", "inventories/lab.py", "--json", *options],
        cwd=ROOT,
        env={**os.environ, **lab.env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout, done.stderr
    return done.returncode, Document.model_validate_json(done.stdout), time.monotonic() - began


def local(lab: FleetLab, *options: str) -> dict[str, Any]:
    """The node's own program."""
    said = lab.ask(NODE, f"{PROGRAM} --json {' '.join(options)}", deadline_s=120, check=False)
    found: dict[str, Any] = json.loads(said)["targets"][0]
    return found


@contextmanager
def put(lab: FleetLab, fault: Fault) -> Iterator[None]:
    lab.ask(NODE, fault.put_in, deadline_s=120)
    try:
        yield
    finally:
        lab.ask(NODE, fault.put_back, deadline_s=300)


def test_a_fleet_that_was_just_built_is_the_same(fleet_lab: FleetLab) -> None:
    assert fleet_lab.first is not None and fleet_lab.first.ok
    code, document, seconds = audit(fleet_lab)
    print(f"{seconds:.1f} s in all; on the nodes {[t.seconds for t in document.targets]}")
    assert [(t.name, t.drift, t.unseen) for t in document.targets] == [
        (name, [], []) for name in ("head1", "worker1", "worker2")
    ]
    assert code == 0 and document.outcome == "same"
    assert all(t.seconds < NODE_S for t in document.targets)


def test_deep_reads_every_file(fleet_lab: FleetLab) -> None:
    code, document, seconds = audit(fleet_lab, "--deep", NODE)
    print(f"{seconds:.1f} s; {document.targets[0].seconds} s on the node")
    assert code == 0, document.targets[0].drift
    assert "the content of all" in document.targets[0].proves[0]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_drift_is_seen_from_afar_and_by_the_node_itself(fleet_lab: FleetLab, fault: Fault) -> None:
    with put(fleet_lab, fault):
        code, document, _ = audit(fleet_lab, NODE)
        itself = local(fleet_lab)
    target = document.targets[0]
    print([(d.kind, d.subject, d.expected, d.found) for d in target.drift[:5]])
    assert not target.unseen and code == 2
    for counts in (target.counts, itself["counts"]):
        assert fault.kinds <= set(counts)
        assert fault.others or fault.kinds == set(counts)
    code, document, _ = audit(fleet_lab, NODE)
    assert code == 0, document.targets[0].drift


def test_a_node_that_cant_be_reached_could_not_be_looked_at(fleet_lab: FleetLab) -> None:
    code, document, _ = audit(fleet_lab, "--data", "ssh_port=1", NODE)
    assert code == 3 and document.targets[0].unseen[0].area == "reach"


def test_groups_are_named_and_the_same_nodes_say_so(fleet_lab: FleetLab) -> None:
    with put(fleet_lab, FAULTS[3]):
        code, document, _ = audit(fleet_lab, "workers")
    assert code == 2
    assert [(t.name, t.state) for t in document.targets] == [
        ("worker1", "same"),
        ("worker2", "drift"),
    ]


def test_the_timer_leaves_metrics(fleet_lab: FleetLab) -> None:
    assert fleet_lab.show(NODE, "rackpin-audit.timer", "ActiveState") == "active"
    fleet_lab.ask(NODE, "systemctl start rackpin-audit.service", deadline_s=300)
    assert fleet_lab.show(NODE, "rackpin-audit.service", "Result") == "success"
    before = fleet_lab.ask(NODE, f"cat {TEXTFILE}")
    drift = [line for line in before.splitlines() if line.startswith("rackpin_audit_drift{")]
    assert len(drift) > 20 and all(line.endswith(" 0") for line in drift), drift
    assert not [x for x in before.splitlines() if "could_not_look{" in x and not x.endswith(" 0")]
    assert fleet_lab.ask(NODE, f"stat -c %a {TEXTFILE}") == "644"
    with put(fleet_lab, FAULTS[3]):
        fleet_lab.ask(NODE, "systemctl start rackpin-audit.service", deadline_s=300)
    after = fleet_lab.ask(NODE, f"cat {TEXTFILE}")
    assert 'rackpin_audit_drift{kind="file.mode"} 1' in after
    assert fleet_lab.show(NODE, "rackpin-audit.service", "Result") == "success", "drift is no fault"
    fleet_lab.ask(NODE, "systemctl start rackpin-audit.service", deadline_s=300)


def test_the_timers_cage_hides_no_process(fleet_lab: FleetLab) -> None:
    """The unit has a file system view of its own; the engines' mapped files must still be seen."""
    cage = "systemd-run --quiet --wait --pipe -p ProtectSystem=strict -p PrivateTmp=yes"
    said = fleet_lab.ask(NODE, f"{cage} {PROGRAM} --json --all", deadline_s=120)
    same = json.loads(said)["targets"][0]["same"]
    assert {UNIT, "ray-worker.service"} <= {i["subject"] for i in same if i["area"] == "running"}


def test_the_expectation_is_for_root_only(fleet_lab: FleetLab) -> None:
    assert fleet_lab.ask(NODE, "stat -c '%a %U' /etc/rackpin/audit.json") == "600 root"


def test_after_all_that_a_deploy_changes_nothing(fleet_lab: FleetLab) -> None:
    assert [c for n in fleet_lab.run("site").ok.nodes for c in n.changes] == []
