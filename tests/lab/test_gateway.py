"""A gateway before two real engines of one name: keys, paths, drain, a killed engine, streams."""

from __future__ import annotations

import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from rackpin.findings import Outcome
from rackpin.inventory import ROOT
from rackpin.lab import lifecycle
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from tests.lab.fleet import FIRST_RUN_S, booted, wait
from tests.lab.gateway_site import Site

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(2400)]

NAME = "test-gateway"
ENGINES = {"tiny-a": "worker1", "tiny-b": "worker2"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    wheelhouse.build(load_stack("cpu-lab"), say=print)
    directory = Path(tmp_path_factory.mktemp("gateway"))
    described = yaml.safe_load((ROOT / "lab" / "lab.yaml").read_text())
    gate = {"name": "gw1", "groups": ["gateway"], "sku": "lab-cpu", "data": {"gpus": 0}}
    described["hosts"].append(gate)
    file = directory / "lab.yaml"
    file.write_text(yaml.safe_dump(described))
    with booted(file, NAME, directory) as fleet:
        one = Site(fleet, ENGINES, "gw1")
        fleet.first = fleet.run("site", *one.data(), deadline_s=FIRST_RUN_S)
        print(f"first run: {fleet.first.seconds:.0f} s")
        yield one


def test_first_run_ends_ready_with_the_gateway_proved(site: Site) -> None:
    run = site.fleet.first
    assert run is not None and run.ok
    names = ("unit", "config", "key", "upstreams", "answers.tiny")
    found = {name: run.finding("gw1", f"gateway.{name}") for name in names}
    assert {name: f.outcome for name, f in found.items()} == dict.fromkeys(names, Outcome.PASS)
    assert "2 engines" in found["upstreams"].summary


def test_second_run_changes_nothing(site: Site) -> None:
    started = site.fleet.show("gw1", "rackpin-gateway", "ActiveEnterTimestampMonotonic")
    run = site.fleet.run("site", *site.data())
    assert [c for n in run.ok.nodes for c in n.changes] == []
    assert set(run.counts["executions"].values()) == {2} and run.counts["misses"] == 0
    assert site.fleet.show("gw1", "rackpin-gateway", "ActiveEnterTimestampMonotonic") == started


def test_nginx_is_on_the_gateway_only_and_debians_own_never_runs(site: Site) -> None:
    state = "dpkg-query -W -f '${db:Status-Status}' nginx 2>/dev/null || echo none"
    assert site.fleet.ask("gw1", state) == "installed"
    assert site.fleet.ask("worker1", state) == site.fleet.ask("head1", state) == "none"
    assert site.fleet.show("gw1", "nginx", "LoadState") == "masked"
    assert site.fleet.show("gw1", "nginx", "ActiveState") == "inactive"
    assert site.fleet.ask("gw1", "apt-mark showhold | grep -x nginx") == "nginx"


def test_only_v1_and_only_with_the_key(site: Site) -> None:
    assert site.ask("GET", "/v1/models")[0] == 200
    for key in ("", "wrong", site.key.upper(), site.key + "x"):
        for path in ("/v1/models", "/tiny/v1/completions"):
            assert site.ask("POST", path, {}, key=key)[0] == 401, path
    for path in ("/invocations", "/tokenize", "/metrics", "/", "/tiny/invocations", "/v1",
                 "/v1/../invocations", "/v1/%2e%2e/tokenize", "/other/v1/models"):  # fmt: skip
        assert site.ask("POST", path, {})[0] == 404, path
    assert site.healthz().startswith(f"rackpin gateway {NAME}, configuration ")
    assert site.ask("GET", "/tiny/healthz", key="")[0] == 200


def test_a_stream_goes_on_over_a_reload(site: Site) -> None:
    # Both engines only run now and then, or the stream would be over before anybody can reload.
    brake = (
        "touch /run/t-brake; p=$(ps -u rackpin -o pid= | xargs); (for i in $(seq 400); do "
        "[ -e /run/t-brake ] || break; kill -STOP $p; sleep 0.25; kill -CONT $p; sleep 0.01; done) "
        "</dev/null >/dev/null 2>&1 &"
    )
    pids = "systemctl show -P MainPID rackpin-gateway | xargs -I{} pgrep -P {}"
    before = set(site.fleet.ask("gw1", pids).split())
    times: list[float] = []
    pool = ThreadPoolExecutor(1)
    try:
        for host in ENGINES.values():
            site.fleet.ask(host, brake)
        stream = pool.submit(site.stream, 240, times)
        wait(lambda: bool(times), "the first token", 60)
        site.fleet.ask("gw1", "systemctl reload rackpin-gateway")
        reloaded = time.monotonic()
        wait(lambda: bool(set(site.fleet.ask("gw1", pids).split()) - before), "new workers", 30)
        renewed, seen = time.monotonic(), len(times)
    finally:
        for host in ENGINES.values():
            site.fleet.ask(host, "rm -f /run/t-brake")
        pool.shutdown()
    stream.result()  # whole, its [DONE] included
    print(f"{seen} of {len(times)} events when new workers were there")
    assert times[0] < reloaded < renewed < times[-1]


def test_drain_under_load_loses_nothing(site: Site) -> None:
    with site.asked_without_pause() as failed:
        run = site.drain("tiny-a", "--reason", "a new card", "--owner", "ada")
        assert run.code == 0 and "nothing in flight" in run.text, run.text
        before = site.served("tiny-a")
        assert all(site.complete()[0] == 200 for _ in range(6))
        assert site.served("tiny-a") == before, "a drained engine got a request"
        # somebody else's, and the last of its name
        other = site.drain("tiny-a", "--undo", "--owner", "bob")
        assert other.code == 1 and "drained by ada" in other.text, other.text
        last = site.drain("tiny-b")
        assert last.code == 1 and "last engine of tiny" in last.text, last.text
        assert "ada" in site.drain().text
        # the stage renders the same as the command did
        assert site.fleet.run("gateway", *site.data(), "--limit", "gw1").code == 0
        back = site.drain("tiny-a", "--undo", "--owner", "ada")
        assert back.code == 0, back.text
        wait(lambda: site.served("tiny-a") > before, "tiny-a to get requests again", 60)
    assert failed == []


def test_a_quarantine_is_told_at_once(site: Site) -> None:
    before = site.served("tiny-a")
    words = ("worker1", "--reason", "a new card", "--owner", "ada")
    run = site.fleet.rackpin("quarantine", *site.data(), *words)
    assert run.code == 0 and "gw1: told, for tiny-a" in run.text, run.text
    assert all(site.complete()[0] == 200 for _ in range(6))
    assert site.served("tiny-a") == before, "an engine on a quarantined node got a request"
    run = site.fleet.rackpin("quarantine", *site.data(), "worker1", "--lift", "--owner", "ada")
    assert run.code == 0 and "gw1: told, for tiny-a" in run.text, run.text
    wait(lambda: site.complete()[0] == 200 and site.served("tiny-a") > before, "tiny-a again", 60)


def test_a_killed_engine_loses_no_new_request(site: Site) -> None:
    # A request that an engine has taken is not sent again: only what comes after its end is new.
    end = "while [ -e /proc/$p ]; do sleep 0.05; done"
    kill = "p=$(systemctl show -P MainPID vllm@tiny-a) && systemctl kill -s KILL vllm@tiny-a"
    site.fleet.ask("worker1", f"{kill} && {end}")
    answers = [site.complete() for _ in range(20)]
    assert [a for a in answers if a[0] != 200] == []
    unit = "vllm@tiny-a"
    wait(lambda: site.fleet.show("worker1", unit, "ActiveState") == "active", unit, 300)


def test_a_configuration_that_nginx_refuses_changes_nothing(site: Site, tmp_path: Path) -> None:
    before = site.healthz()
    (tmp_path / "c.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    key = tmp_path / "k.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    key.chmod(0o600)
    tls = {"tls_cert": str(tmp_path / "c.pem"), "tls_key": str(key)}
    run = site.fleet.run("gateway", *site.data(gateway=tls), "--limit", "gw1")
    assert run.code == 1 and "nginx refuses the new configuration" in run.text, run.tail
    assert site.healthz() == before and site.complete()[0] == 200
    assert site.fleet.ask("gw1", "ls /etc/rackpin/gateway") == "keys.conf\nnginx.conf"
    site.fleet.ask("gw1", "systemctl restart rackpin-gateway")
    wait(lambda: site.healthz() == before, "the gateway after a restart", 30)


def test_tls_on_another_port_and_back(site: Site, tmp_path: Path) -> None:
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    make += ["-subj", "/CN=gw1", "-addext", f"subjectAltName=IP:{site.address}"]
    subprocess.run([*make, "-keyout", key, "-out", cert], check=True, capture_output=True)
    key.chmod(0o600)
    tls = site.data(gateway={"port": 8443, "tls_cert": str(cert), "tls_key": str(key)})
    run = site.fleet.run("site", *tls, "--limit", "gw1")
    assert run.ok and run.finding("gw1", "gateway.answers.tiny").outcome is Outcome.PASS
    trust = ssl.create_default_context(cafile=str(cert))
    with urllib.request.urlopen(
        f"https://{site.address}:8443/healthz", context=trust, timeout=30
    ) as answer:
        assert answer.read().startswith(b"rackpin gateway ")
    with pytest.raises(ConnectionRefusedError):
        site.healthz()
    assert site.fleet.run("gateway", *site.data(), "--limit", "gw1").code == 0
    assert site.fleet.ask("gw1", "ls /etc/rackpin/gateway") == "keys.conf\nnginx.conf"
    assert site.complete()[0] == 200


def test_a_gateway_comes_back_after_a_reboot(site: Site) -> None:
    before = site.healthz()
    lifecycle.reboot(site.fleet.lab, site.fleet.lab.host("gw1"))
    wait(lambda: site.healthz() == before, "the gateway after a reboot", 120)


def test_no_key_and_no_prompt_on_the_gateway_but_in_its_file(site: Site) -> None:
    word = "a-word-that-nobody-says"
    wish = {"model": "tiny", "prompt": word, "max_tokens": 1}
    assert site.ask("POST", "/v1/completions", wish)[0] == 200
    encoded = "".join(c if c.isalnum() else rf"\x{ord(c):02x}" for c in site.key)
    script = (
        f"cat >/run/t-words <<'E'\n{site.key}\n{encoded}\n{word}\nE\n"
        "journalctl -q --no-pager | grep -Ff /run/t-words | head -n 3\n"
        "grep -ls -Ff /run/t-words /proc/[0-9]*/cmdline\n"
        "grep -rls -Ff /run/t-words /etc /var /tmp /srv "
        "| while read -r f; do stat -c '%a %U %n' \"$f\"; done\n"
        "journalctl -q -t rackpin_gateway --no-pager | grep -c 'POST /v1/completions 200'\n"
        "rm /run/t-words\n"
    )
    lines = site.fleet.feed("gw1", script).splitlines()
    assert lines[:-1] == ["600 root /etc/rackpin/gateway/keys.conf"] and int(lines[-1]) > 0
