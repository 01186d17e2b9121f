"""The gateway as data: who gets requests, what nginx is told, where the key is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from rackpin.desired import Desired, Target
from rackpin.gateway.routes import bearer, place, routes
from rackpin.gateway.scripts import install_script, reload_script
from rackpin.inventory import Fleet
from rackpin.inventory_parts import GatewayConfig
from rackpin.stages import STAGES, gateway

KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def gate(target: Target) -> Target:
    return dataclasses.replace(target, node=target.fleet.nodes["gate1"])


def with_fleet(target: Target, **changes: object) -> Target:
    return dataclasses.replace(target, fleet=target.fleet.model_copy(update=changes))


def with_config(target: Target, **changes: object) -> Target:
    return with_fleet(target, config=target.fleet.config.model_copy(update=changes))


def conf(target: Target) -> str:
    return gateway.configuration(target.fleet, target.node)


def twins(fleet: Fleet) -> list[object]:
    """Both engines under one name."""
    return [i.model_copy(update={"served_name": "m"}) for i in fleet.config.instances]


def test_only_gateways_have_it(gate: Target) -> None:
    for name in ("head1", "worker1", "worker2"):
        other = dataclasses.replace(gate, node=gate.fleet.nodes[name])
        assert STAGES["gateway"](other) == Desired()
        assert "nginx" not in STAGES["base"](other).packages
    wish = STAGES["gateway"](gate)
    assert wish.packages == ("nginx",) and wish.units == ("rackpin-gateway.service",)
    assert STAGES["gateway"](with_fleet(gate, kept_out={"gate1": "ops"})) == Desired()
    assert STAGES["gateway"](with_config(gate, instances=[])) == Desired()


def test_each_name_has_a_path_and_the_only_one_is_the_root_too(gate: Target) -> None:
    text = conf(gate)
    assert 'location ^~ "/two/v1/"' in text and 'location ^~ "/one/v1/"' in text
    assert 'location ^~ "/v1/"' not in text
    text = conf(with_config(gate, instances=twins(gate.fleet)))
    assert 'location ^~ "/m/v1/"' in text and 'location ^~ "/v1/"' in text
    assert text.count("    server 10.9.0.") == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"drained": {"one": "ops since 2026: new card"}}, "drained by ops since 2026: new card"),
        ({"kept_out": {"worker2": "ops: broken"}}, "worker2 is quarantined by ops: broken"),
    ],
)
def test_who_rests_is_down_and_the_file_says_why(
    gate: Target, changes: dict[str, object], said: str
) -> None:
    resting = with_fleet(gate, **changes)
    line = next(x for x in conf(resting).splitlines() if "server 10.9.0.13" in x)
    assert line.endswith(" down;") and f"# one on worker2: {said}\n" in conf(resting)
    assert "server 10.9.0.11:8000 weight=1 max_fails=3 fail_timeout=10s;" in conf(resting)
    assert gateway.digest_of(conf(resting)) != gateway.digest_of(conf(gate))


def test_weight_zero_rests_and_others_are_shares(gate: Target) -> None:
    one, two = (i.model_copy(update={"weight": w}) for i, w in
                zip(gate.fleet.config.instances, (0, 5), strict=True))  # fmt: skip
    text = conf(with_config(gate, instances=[one, two]))
    assert "server 10.9.0.11:8000 weight=1 max_fails=3 fail_timeout=10s down;" in text
    assert "server 10.9.0.13:8000 weight=5 max_fails=3 fail_timeout=10s;" in text


def test_an_engine_over_nodes_rests_with_any_of_them(gate: Target) -> None:
    out = with_fleet(gate, kept_out={"worker1": "ops"})
    assert routes(out.fleet)[0].active == ()
    assert routes(out.fleet)[1].active


def test_a_reason_over_lines_stays_a_comment(gate: Target) -> None:
    text = conf(with_fleet(gate, drained={"one": "x: a\n  server 10.9.9.9;"}))
    assert not re.search(r"^ *server 10\.9\.9\.9", text, re.MULTILINE)


def test_the_key_is_in_one_0600_file_and_matches_exactly(gate: Target) -> None:
    files = {f.path: f for f in STAGES["gateway"](gate).files}
    pattern = bearer(KEY)
    holders = [path for path, f in files.items() if pattern in f.content or KEY in f.content]
    assert holders == ["/etc/rackpin/gateway/keys.conf"]
    keys = files[holders[0]]
    assert keys.mode == "600" and keys.secret and pattern not in repr(keys)
    for odd in (KEY, 'a"b\\c$d{e}.*', "schlüssel|x"):
        python = bearer(odd)[1:].encode().replace(rb"\z", rb"\Z")
        assert re.fullmatch(python, f"Bearer {odd}".encode())
        assert not re.fullmatch(python, f"Bearer {odd}x".encode())
        assert not re.fullmatch(python, f"Bearer {odd.upper()}".encode())
        assert not set(bearer(odd)) & set('"$;{} ') - {" "}


def test_a_request_is_repeated_only_while_nothing_was_sent(gate: Target) -> None:
    text = conf(gate)
    assert "non_idempotent" not in re.sub("#.*", "", text)
    assert "proxy_next_upstream error timeout;" in text
    assert "proxy_buffering off;" in text


def test_no_header_argument_or_body_is_logged(gate: Target) -> None:
    log = re.search(r"log_format gateway (.*?);", conf(gate), re.DOTALL)
    assert log is not None
    found = set(re.findall(r"\$\{?(\w+)", log[1]))
    assert not {"request", "request_uri", "args", "request_body", "http_authorization"} & found
    assert not [name for name in found if name.startswith(("http_", "arg_", "cookie_"))]


def test_tls_files_are_roots_own(gate: Target, tmp_path: Path) -> None:
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).write_text("-----BEGIN X-----\n")
    config = GatewayConfig(tls_cert=str(tmp_path / "c.pem"), tls_key=str(tmp_path / "k.pem"))
    tls = with_config(gate, gateway=config)
    assert "listen 10.9.0.14:8080 ssl;" in conf(tls) and "ssl_certificate_key tls.key" in conf(tls)
    assert "ssl" not in re.sub("#.*", "", conf(gate))
    files = {f.path: f for f in STAGES["gateway"](tls).files}
    assert {files[f"/etc/rackpin/gateway/tls.{x}"].mode for x in ("crt", "key")} == {"600"}


def test_ipv6() -> None:
    assert place("fd00::1", 80) == "[fd00::1]:80" and place("10.0.0.1", 80) == "10.0.0.1:80"


def test_scripts_name_what_is_to_go_and_are_programs(gate: Target) -> None:
    files = gateway.config_files(gate)
    script = install_script(files, gateway.FILES, gateway.RELOAD)
    assert "rm -f /etc/rackpin/gateway/tls.key" in script
    tested, placed = script.index("nginx -t"), script.index("mv -f")
    assert tested < script.index("touch") < placed
    program = reload_script("10.9.0.14", 8080, False, "abc", 30, gateway.RELOAD)
    compile(program, "reload", "exec")
    assert "DIGEST = 'abc'" in program
