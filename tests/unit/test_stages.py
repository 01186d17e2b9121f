"""What each stage wants of a node, read without any node."""

from __future__ import annotations

import configparser
import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rackpin.desired import OWNED_MARK, Desired, Target, template_names
from rackpin.fabric.model import Boot, Fabric, Gpu, Hca, Port
from rackpin.inventory import ROOT, Fleet
from rackpin.inventory_parts import BundleConfig
from rackpin.stack.hostpins import CudaPin
from rackpin.stack.items import Host
from rackpin.stack.lock import load_stack
from rackpin.stages import STAGES
from rackpin.stages.base import hosts_file, sysctl_settings
from rackpin.stages.serve import arguments, systemd_quote
from tests.unit.test_stage_driver import on_ubuntu


def on(target: Target, name: str) -> Target:
    return dataclasses.replace(target, node=target.fleet.nodes[name])


def whole_fabric() -> Fabric:
    """A node for which every file of the fabric stage is needed."""
    port = Port(1, "ACTIVE", "LinkUp", 400, "InfiniBand", 1)
    return Fabric(
        gpus=(Gpu("0000:13:00.0", ("pci0000:10", "0000:13:00.0"), 0),),
        hcas=(Hca("0000:14:00.0", ("pci0000:10", "0000:14:00.0"), 0, "mlx5_0", ports=(port,)),),
        kernel="6.5.0-45-generic",
        boot=Boot(next=("quiet",)),
        peer_api=True,
        open_modules=False,
    )


def content(wish: Desired, path: str) -> str:
    return next(f.content for f in wish.files if f.path == path)


def test_every_file_says_whose_it_is_at_once(target: Target) -> None:
    for stage in STAGES.values():
        for file in stage(target).files:
            assert OWNED_MARK in "\n".join(file.content.splitlines()[:2]), file.path


def test_no_template_is_forgotten(target: Target) -> None:
    bundle = BundleConfig(url="http://10.9.0.1:8901", trusted=True)
    config = target.fleet.config.model_copy(update={"bundle": bundle})
    offline = dataclasses.replace(
        target,
        fleet=target.fleet.model_copy(update={"config": config}),
        lock=target.lock.but(host=Host(cuda=CudaPin(version="12.2.2"))),
        fabric=whole_fabric(),
    )
    driven = on_ubuntu(target, nvswitch=True, sku="h100-sxm-8", gpus=8)
    copied = dataclasses.replace(
        target, lock=load_stack("cuda12.2-vllm0.4.2").lock, fabric=whole_fabric()
    )
    files = [
        f
        for t in (offline, driven, copied, on(target, "gate1"))
        for s in STAGES.values()
        for f in s(t).files
    ]
    used = "\n".join(f.content for f in files)
    for name in template_names():
        assert f"templates/{name})" in used


def test_ray_unit_takes_addresses_from_the_inventory(target: Target) -> None:
    unit = content(STAGES["ray"](on(target, "worker1")), "/etc/systemd/system/ray-worker.service")
    assert "--node-ip-address=10.9.0.12 " in unit
    assert "--address=10.9.0.11:6379 " in unit
    assert "--head" not in unit.replace("--head 10.9.0.11:6379", "")
    assert "KillMode=mixed" in unit and "KillMode=process" not in unit


def test_ray_gets_no_card_that_a_local_engine_holds(target: Target) -> None:
    assert target.fleet.ray_gpus(target.fleet.nodes["worker2"]) == 0
    unit = content(STAGES["ray"](on(target, "worker2")), "/etc/systemd/system/ray-worker.service")
    assert "--num-gpus=0 " in unit


def test_start_limits_stand_in_the_unit_section(target: Target) -> None:
    """In [Service] systemd ignores them with a warning and restarts for ever (F123)."""
    unit = content(STAGES["serve"](target), "/etc/systemd/system/vllm@two.service")
    parser = configparser.RawConfigParser(strict=False, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(unit.replace("\\\n", " "))
    assert {"StartLimitIntervalSec", "StartLimitBurst"} <= set(parser["Unit"])
    assert parser["Service"]["LimitMEMLOCK"] == "infinity"
    assert "vllm-ready" in parser["Service"]["ExecStartPost"]


def test_the_key_is_only_in_the_0600_file(target: Target) -> None:
    wish = STAGES["serve"](target)
    holders = [f for f in wish.files if "sk-test" in f.content]
    assert [f.path for f in holders] == ["/etc/rackpin/vllm/two.env"]
    assert holders[0].mode == "600" and holders[0].secret
    assert "sk-test" not in repr(holders[0])


def test_a_node_without_engines_gets_no_serve_files(target: Target) -> None:
    assert STAGES["serve"](on(target, "worker1")) == Desired()
    assert STAGES["ray"](on(target, "gate1")) == Desired()


def test_arguments_are_quoted_for_systemd() -> None:
    assert systemd_quote('{"a": "100%$HOME"}') == '"{\\"a\\": \\"100%%$$HOME\\"}"'
    assert systemd_quote("--enforce-eager") == "--enforce-eager"


def test_ray_backend_only_across_nodes(fleet: Fleet) -> None:
    two, one = fleet.config.instances
    assert "--distributed-executor-backend=ray" in arguments(two, "10.9.0.11")
    assert not any("backend" in a for a in arguments(one, "10.9.0.13"))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_reads_the_units_without_a_warning(target: Target, tmp_path: Path) -> None:
    names = []
    for node, stage in [("head1", "ray"), ("head1", "serve"), ("worker1", "ray")]:
        for file in STAGES[stage](on(target, node)).files:
            if file.path.startswith("/etc/systemd"):
                # the programs it names are not on this machine, anything else must be right
                text = re.sub(r"(?m)^(Exec\w+)=\S+", r"\1=/bin/true", file.content)
                (tmp_path / Path(file.path).name).write_text(text)
                names.append(Path(file.path).name)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / n) for n in names)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if any(n in line for n in names)]
    assert not ours


def test_the_engines_environment_of_the_lock_reaches_ray(target: Target) -> None:
    path = "/etc/rackpin/node.env"
    assert "CUMEM" not in content(STAGES["ray"](target), path)
    env = {"VLLM_NCCL_SO_PATH": "{site_packages}/n.so", "NCCL_CUMEM_ENABLE": "0"}
    text = content(
        STAGES["ray"](dataclasses.replace(target, lock=target.lock.but(engine_env=env))), path
    )
    assert "NCCL_CUMEM_ENABLE=0\n" in text
    assert "VLLM_NCCL_SO_PATH=/opt/rackpin/current/lib/python3.11/site-packages/n.so\n" in text


HOSTS = """127.0.0.1 localhost
127.0.1.1 head1.example.org head1
::1 localhost ip6-localhost head1
# the site's own
192.0.2.7 nfs nfs.example.org # keep me
"""


def test_hosts_keeps_what_others_wrote(fleet: Fleet) -> None:
    text = hosts_file(HOSTS, fleet, fleet.nodes["head1"])
    assert "192.0.2.7 nfs nfs.example.org # keep me\n" in text
    assert "# the site's own\n" in text
    assert "127.0.1.1" not in text
    assert "::1 localhost ip6-localhost\n" in text
    assert "10.9.0.12 worker1\n" in text
    assert hosts_file(text, fleet, fleet.nodes["head1"]) == text, "a second run changes nothing"


def test_hosts_of_an_empty_file_still_has_localhost(fleet: Fleet) -> None:
    assert hosts_file("", fleet, fleet.nodes["head1"]).startswith("127.0.0.1 localhost\n")


def test_sysctl_site_values_win_and_skips_are_said(fleet: Fleet) -> None:
    config = fleet.config.model_copy(
        update={"sysctl": {"vm.swappiness": 5, "a.b": 1}, "sysctl_skip": ["vm.*"]}
    )
    settings = {s["key"]: s for s in sysctl_settings(fleet.model_copy(update={"config": config}))}
    assert settings["vm.swappiness"]["value"] == 5 and settings["vm.swappiness"]["skipped"]
    assert settings["a.b"]["value"] == 1 and not settings["a.b"]["skipped"]
    assert not settings["kernel.numa_balancing"]["skipped"]
    assert "6379" in settings["net.ipv4.ip_local_reserved_ports"]["value"].split(",")


def test_a_rebuild_has_every_stage_of_the_site_but_verify() -> None:
    def included(name: str) -> list[str]:
        text = (ROOT / "deploys" / name).read_text()
        return [line for line in text.splitlines() if line.startswith("local.include")]

    assert included("rebuild.py") == included("site.py")[:-1]
    assert included("site.py")[-1] == 'local.include("deploys/verify.py")'
