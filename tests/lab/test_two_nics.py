"""Hosts with a second NIC: Ray and the engines use the fabric's addresses, ssh the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.fleet import booted

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1500)]
NAME = "test-nics"
LAB = """
name: test-nics
base: { suite: bookworm }
hosts:
  - { name: head1, groups: [head], sku: lab-cpu, nics: 2 }
  - { name: worker1, groups: [workers], sku: lab-cpu, nics: 2 }
"""


def test_two_nics(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(LAB)
    with booted(file, NAME, tmp_path) as site:
        assert site.run("site").ok.ready
        for host in site.lab.hosts:
            assert host.fabric_address and host.fabric_address != host.address
            env = site.ask(host.name, "cat /etc/rackpin/node.env")
            assert f"VLLM_HOST_IP={host.fabric_address}" in env
            assert "GLOO_SOCKET_IFNAME=fab0" in env and "NCCL_SOCKET_IFNAME==fab0" in env
            own = site.ask(host.name, f"getent ahostsv4 {host.name} | head -n 1")
            assert own.split()[0] == host.fabric_address
