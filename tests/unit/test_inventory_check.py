"""Every mistake is named with its node and key, and one mistake does not hide another."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackpin.inventory import Fleet
from rackpin.inventory_check import InventoryError, load_fleet
from rackpin.skus import known_skus

Raw = dict[str, tuple[list[str], dict[str, Any]]]
Change = Callable[[Raw], object]
STACKS = ["cpu-lab", "r535-vllm0.19"]


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    """A fleet without a mistake: a head, two workers of 8 GPUs, a gateway."""
    key = tmp_path / "api-key"
    key.write_text("k" * 64 + "\n")
    key.chmod(0o600)
    common: dict[str, Any] = {
        "fleet": "test",
        "stack": "cpu-lab",
        "wheelhouse_url": "http://10.0.0.2:8900",
        "ssh_user": "ops",
        "_sudo": True,
        "instances": [
            {
                "name": "big",
                "nodes": ["gpu1", "gpu2"],
                "model": "/srv/models/big",
                "served_name": "big",
                "tp": 4,
                "pp": 2,
                "attention_heads": 64,
                "api_key_file": str(key),
            },
            {
                "name": "small",
                "nodes": ["gpu2"],
                "model": "/srv/models/small",
                "served_name": "small",
                "tp": 4,
                "port": 8001,
                "api_key_file": str(key),
            },
        ],
    }

    def host(groups: list[str], address: str, sku: str) -> tuple[list[str], dict[str, Any]]:
        return groups, {**copy.deepcopy(common), "address": address, "sku": sku}

    return {
        "head1": host(["head"], "10.0.0.10", "cpu"),
        "gpu1": host(["workers"], "10.0.0.11", "h100-sxm-8"),
        "gpu2": host(["workers", "rack7"], "10.0.0.12", "h100-sxm-8"),
        "gw1": host(["gateway"], "10.0.0.20", "cpu"),
    }


def everywhere(key: str, value: Any) -> Change:
    return lambda raw: [data.update({key: value}) for _, data in raw.values()]


def on(node: str, key: str, value: Any) -> Change:
    return lambda raw: raw[node][1].update({key: value})


def without(node: str, key: str) -> Change:
    return lambda raw: raw[node][1].pop(key)


def groups(node: str, *names: str) -> Change:
    return lambda raw: raw.update({node: (list(names), raw[node][1])})


def engine(number: int, **values: Any) -> Change:
    return lambda raw: [data["instances"][number].update(values) for _, data in raw.values()]


def renamed(old: str, new: str) -> Change:
    return lambda raw: raw.update({new: raw.pop(old)})


def problems(raw: Raw) -> InventoryError:
    with pytest.raises(InventoryError) as caught:
        load_fleet(raw, STACKS, "inv.py")
    return caught.value


def test_a_right_inventory_is_a_fleet(raw: Raw) -> None:
    fleet = load_fleet(raw, STACKS)
    assert fleet.head.name == "head1"
    assert [node.name for node in fleet.ray_nodes] == ["head1", "gpu1", "gpu2"]
    assert fleet.nodes["gpu1"].gpus == 8  # from the SKU
    assert fleet.nodes["gw1"].gpus == 0
    assert fleet.ray_gpus(fleet.nodes["gpu2"]) == 4  # `small` holds the others


# What was done to the inventory; whose problem it must be, under which key; words of the text.
MISTAKES: list[tuple[str, Change, str, str, str]] = [
    ("no head", groups("head1", "workers"), "fleet", "head", "no node is in the group `head`"),
    ("two heads", groups("gpu1", "head", "workers"), "fleet", "head", "head1, gpu1"),
    ("no group", groups("gw1"), "gw1", "groups", "it is in: none"),
    (
        "misspelt group",
        groups("gw1", "gatway"),
        "gw1",
        "groups",
        "the group `gateway`",
    ),
    ("no stack", everywhere("stack", ""), "fleet", "stack", "not empty"),
    ("unknown stack", everywhere("stack", "cpulab"), "fleet", "stack", "did you mean 'cpu-lab'?"),
    ("stacks", everywhere("stack", "zzz"), "fleet", "stack", "cpu-lab, r535-vllm0.19"),
    (
        "uneven stack",
        on("gpu2", "stack", "r535-vllm0.19"),
        "fleet",
        "stack",
        "on gpu2 (group rack7)",
    ),
    ("stack on some", without("gw1", "stack"), "fleet", "stack", "not set on gw1 (group gateway)"),
    ("uneven parallel", on("gpu1", "_parallel", 2), "fleet", "_parallel", "2 on gpu1"),
    ("no address", without("gpu1", "address"), "gpu1", "address", '"address": "10.20.0.11"'),
    ("twice", on("gpu2", "address", "10.0.0.11"), "gpu2", "address", "also the address of gpu1"),
    ("loopback", on("head1", "address", "127.0.1.1"), "head1", "address", "cluster of one"),
    ("loopback 6", on("gpu1", "address", "::1"), "gpu1", "address", "is loopback"),
    ("unspecified", on("gpu1", "address", "0.0.0.0"), "gpu1", "address", "nobody's address"),
    ("multicast", on("gpu1", "address", "224.0.0.1"), "gpu1", "address", "multicast"),
    ("a name", on("gpu1", "address", "gpu1.lan"), "gpu1", "address", "'gpu1.lan' is not an IP"),
    ("a number", on("gpu1", "address", 7), "gpu1", "address", "should be a valid string; it is 7"),
    (
        "one machine",
        on("gpu2", "ssh_hostname", "GPU1"),
        "gpu2",
        "ssh_hostname",
        "port 22, as for gpu1",
    ),
    ("unknown key", on("gpu1", "adress", "x"), "gpu1", "adress", "did you mean `address`?"),
    ("alias", on("gpu1", "ansible_host", "x"), "gpu1", "ansible_host", "`ssh_hostname`?"),
    ("wrong place", on("gpu1", "tp", 8), "gpu1", "tp", "belongs in an entry of `instances`"),
    ("leaked", on("gpu1", "_site", "x"), "gpu1", "_site", "`__all__`"),
    ("ssh typo", on("gpu1", "ssh_usr", "x"), "gpu1", "ssh_usr", "did you mean `ssh_user`?"),
    ("ssh type", on("gpu1", "ssh_port", "22"), "gpu1", "ssh_port", "wants int; it is of type str"),
    ("silencer", on("gpu1", "_ignore_errors", True), "gpu1", "_ignore_errors", "report success"),
    ("no SKU", without("gpu1", "sku"), "gpu1", "sku", "missing"),
    ("unknown SKU", on("gpu1", "sku", "h100"), "gpu1", "sku", f"known: {', '.join(known_skus())}"),
    ("upper case", renamed("gw1", "Gw_1"), "Gw_1", "name", "@fleet/gw-1"),
    ("an address", renamed("gw1", "10.0.0.20"), "10.0.0.20", "name", '"ssh_hostname"'),
    ("other connector", renamed("gw1", "@ssh/gw1"), "@ssh/gw1", "name", '"@fleet/gw1"'),
    ("too long", renamed("gw1", ".".join(["a" * 60] * 2)), "a" * 60 + "." + "a" * 60, "name", "64"),
    ("divide", engine(0, tp=3, pp=1), "fleet", "instances[big].tp", "3 GPUs do not divide over 2"),
    ("heads", engine(0, attention_heads=6), "fleet", "instances[big].tp", "one of 1, 2, 3, 6"),
    ("GPUs", engine(1, tp=16), "gpu2", "instances", "has 8 GPUs (SKU h100-sxm-8), asked for 20"),
    ("GPUs of one", engine(0, tp=16), "gpu1", "instances[big].tp", "asked for 16: big 16"),
    ("no such node", engine(1, nodes=["gpu3"]), "fleet", "instances[small].nodes", "'gpu3'"),
    ("not in Ray", engine(0, nodes=["gpu1", "gw1"]), "gw1", "instances[big].nodes", "not in Ray"),
    ("listed twice", engine(0, nodes=["gpu1", "gpu1"]), "fleet", "instances[big].nodes", "2 times"),
    ("same name", engine(1, name="big"), "fleet", "instances[big].name", "2 instances"),
    ("bad name", engine(1, name="A b"), "fleet", "instances[A b].name", "at most 41 characters"),
    ("typo inside", engine(1, prot=1), "fleet", "instances[small].prot", "did you mean `port`?"),
    ("vLLM's word", engine(1, tensor_parallel_size=4), "fleet", "", "did you mean `tp`?"),
    ("port of Ray", engine(1, port=6379), "gpu2", "instances[small].port", "ray.ports.gcs"),
    ("worker's port", engine(1, port=10500), "gpu2", "instances[small].port", "10002–10999"),
    ("site's port", everywhere("extra_listeners", [8001]), "gpu2", "instances[small].port", "8001"),
    (
        "neighbours' port",
        everywhere("transfers", {"neighbours": True, "port": 8001}),
        "gpu2",
        "instances[small].port",
        "transfers.port",
    ),
    ("transfers", everywhere("transfers", {"port": 80}), "fleet", "transfers.port", "1024"),
    ("transfers' key", everywhere("transfers", {"prot": 1}), "fleet", "", "did you mean `port`?"),
    (
        "same port",
        engine(0, nodes=["gpu2", "gpu1"], port=8001),
        "gpu2",
        "instances[small].port",
        "instances[big].port",
    ),
    (
        "Ray's overlap",
        everywhere("ray", {"ports": {"gcs": 10003}}),
        "fleet",
        "ray.ports.gcs",
        "10002–10999",
    ),
    (
        "Ray's twice",
        everywhere("ray", {"ports": {"gcs": 6380}}),
        "fleet",
        "ray.ports.node_manager",
        "gcs",
    ),
    (
        "Ray's order",
        everywhere("ray", {"ports": {"worker_min": 11000}}),
        "fleet",
        "ray.ports.worker_min",
        "above worker_max 10999",
    ),
    (
        "Ray's typo",
        everywhere("ray", {"ports": {"gsc": 1}}),
        "fleet",
        "ray.ports.gsc",
        "did you mean `gcs`?",
    ),
    (
        "Ray open",
        everywhere("ray", {"dashboard_host": "0.0.0.0"}),
        "fleet",
        "ray.dashboard_host",
        "CVE",
    ),
    ("Ray's dir", everywhere("ray", {"temp_dir": "tmp"}), "fleet", "ray.temp_dir", "absolute"),
    ("a union", everywhere("limits", {"memlock": "no"}), "fleet", "limits.memlock", "'infinity'"),
    ("relative", engine(0, model="big"), "fleet", "instances[big].model", "not an absolute path"),
    (
        "no bundle",
        engine(0, model_pin="m"),
        "fleet",
        "instances[big].model_pin",
        "there is none",
    ),
    ("a space", engine(0, model="/srv/a b"), "fleet", "instances[big].model", "need quoted"),
    ("key in args", engine(0, args=["--api-key=s3cret"]), "fleet", "instances[big].args", "`ps`"),
    ("said twice", engine(0, args=["--port", "1"]), "fleet", "instances[big].args", "`port`"),
    ("secret", engine(0, env={"HF_TOKEN": "s3cret"}), "fleet", "instances[big].env", "HF_TOKEN"),
    ("secret 2", on("gpu1", "env", {"AWS_SECRET": "s3cret"}), "gpu1", "env", "looks like a secret"),
    ("env type", on("gpu1", "env", {"A": ["s3cret"]}), "gpu1", "env.A", "of type list"),
    (
        "wheels",
        everywhere("wheelhouse_url", "http://localhost"),
        "fleet",
        "wheelhouse_url",
        "self",
    ),
    ("no URL", everywhere("wheelhouse_url", "10.0.0.1"), "fleet", "wheelhouse_url", "http(s)"),
    (
        "URL's port",
        everywhere("wheelhouse_url", "http://a:99999"),
        "fleet",
        "wheelhouse_url",
        "URL",
    ),
    ("extra", everywhere("extra_hosts", {"nfs": "nfs.lan"}), "fleet", "extra_hosts.nfs", "IP"),
    ("not a list", everywhere("instances", {"a": 1}), "fleet", "instances", "should be a list"),
    (
        "not a dict",
        everywhere("instances", ["a"]),
        "fleet",
        "instances[0]",
        "should be a dictionary",
    ),
    ("ask", everywhere("ssh_strict_host_key_checking", "ask"), "gw1", "", "asks at a terminal"),
    ("tilde", everywhere("ssh_config_file", "~/x"), "gw1", "ssh_config_file", "does not expand ~"),
    ("no ssh key", everywhere("ssh_key", "/nokey"), "gw1", "ssh_key", "ssh-keygen -t ed25519"),
]


@pytest.mark.parametrize(
    ("change", "node", "key", "words"),
    [pytest.param(*rest, id=name) for name, *rest in MISTAKES],
)
def test_a_mistake_is_named(raw: Raw, change: Change, node: str, key: str, words: str) -> None:
    change(raw)
    error = problems(raw)
    mine = [p for p in error.problems if p.node == node and key in p.key]
    assert mine, error
    assert any(words in f"{p.message} {p.remedy}" for p in mine), error
    assert all(p.remedy for p in error.problems)
    assert "s3cret" not in str(error)
    assert "no node was touched" in str(error)


def test_two_models_at_one_path_are_told(raw: Raw) -> None:
    for number, pin in enumerate(("m", "n")):
        engine(number, model="/srv/m", model_pin=pin)(raw)
    everywhere("bundle", {"url": "http://10.0.0.2:8901", "trusted": True})(raw)
    (problem,) = problems(raw).problems
    assert problem.key == "instances[small].model_pin"
    assert "is n, but m for big, and both are at /srv/m" in problem.message
    engine(1, model="/srv/n")(raw)
    fleet = load_fleet(raw, STACKS)
    assert fleet.models_on(fleet.nodes["gpu2"]) == {"/srv/m": "m", "/srv/n": "n"}


def test_all_mistakes_are_told_at_once(raw: Raw) -> None:
    for node, key, value in (
        ("gpu1", "adress", 1),
        ("gpu2", "address", "::1"),
        ("gw1", "sku", "?"),
    ):
        on(node, key, value)(raw)
    for change in (
        groups("gw1", "head"),
        everywhere("stack", "nope"),
        engine(0, tp=3, pp=1, model="x"),
        engine(1, port=6379, restart_burst=0),
        everywhere("limits", {"nofile": "many"}),
    ):
        change(raw)
    keys = {(p.node, p.key) for p in problems(raw).problems}
    assert keys == {
        ("gpu1", "adress"),
        ("gpu2", "address"),
        ("gw1", "sku"),
        ("fleet", "head"),
        ("fleet", "stack"),
        ("fleet", "instances[big].tp"),
        ("fleet", "instances[big].model"),
        ("fleet", "instances[small].restart_burst"),
        ("gpu2", "instances[small].port"),
        ("fleet", "limits.nofile"),
    }


def test_a_misspelt_key_hides_nothing_else_and_invents_nothing(raw: Raw) -> None:
    for _, data in raw.values():
        del data["instances"][0]["tp"]
    engine(0, tensor_parallel_size=4, nodes=["gpu1", "gpu9"], model="x")(raw)
    keys = {p.key for p in problems(raw).problems}
    assert keys == {  # nothing of a tp that would be 1
        "instances[big].tensor_parallel_size",
        "instances[big].nodes",
        "instances[big].model",
    }


def test_equal_problems_of_all_nodes_are_one_paragraph(raw: Raw) -> None:
    everywhere("ssh_key", "/nowhere/id")(raw)
    error = problems(raw)
    assert len(error.problems) == len(raw)
    text = str(error)
    assert text.startswith("1 problem in inv.py")
    assert "all 4 nodes · ssh_key" in text
    assert "\n        ssh-keygen -t ed25519 -f /nowhere/id" in text  # a line to copy


def test_no_host_at_all() -> None:
    assert [p.key for p in problems({}).problems] == ["nodes"]


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (None, 0o600, "does not exist"),
        ("", 0o600, "serve everybody"),
        ("two 0f9a8b", 0o600, "more than one word"),
        ("0f9a8b", 0o640, "mode 0640"),
        ("0f9a8b", 0o604, "mode 0604"),
    ],
    ids=["missing", "empty", "two", "group", "others"],
)
def test_api_key_file(raw: Raw, tmp_path: Path, content: str | None, mode: int, words: str) -> None:
    key = tmp_path / "other key"
    if content is not None:
        key.write_text(content)
        key.chmod(mode)
    for number in (0, 1):
        engine(number, api_key_file=str(key))(raw)
    error = problems(raw)
    assert [(p.node, p.key) for p in error.problems] == [("fleet", "instances[big].api_key_file")]
    text = " ".join(str(error).split())
    assert words in text and "(also for small)" in text
    assert "0f9a8b" not in str(error)
    assert f"'{key}'" in error.problems[0].remedy  # a path with a space can be copied


def test_api_key_file_beside_the_inventory(raw: Raw, tmp_path: Path) -> None:
    (tmp_path / "inv.py").write_text("")
    engine(0, api_key_file="api-key")(raw)
    fleet = load_fleet(raw, STACKS, str(tmp_path / "inv.py"))
    assert fleet.config.instances[0].api_key_file == str(tmp_path / "api-key")


def test_known_hosts_must_be_there_when_strict(raw: Raw, tmp_path: Path) -> None:
    everywhere("ssh_strict_host_key_checking", "yes")(raw)
    everywhere("ssh_known_hosts_file", str(tmp_path / "known"))(raw)
    assert {p.key for p in problems(raw).problems} == {"ssh_known_hosts_file"}
    (tmp_path / "known").touch()
    assert isinstance(load_fleet(raw, STACKS), Fleet)


# The fixture is copied before it is changed.
thorough = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    "stack",
    "ray",
    "limits",
    "instances",
    "sysctl",
    "address",
    "sku",
    "gpus",
    "env",
    "ssh_port",
]


@thorough
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(["all", "head1", "gpu1", "gpu2", "gw1"]),
            st.sampled_from(KEYS) | st.text(max_size=8),
            values,
        ),
        max_size=6,
    )
)
def test_any_value_gives_a_fleet_or_a_list_of_problems(raw: Raw, changes: list[Any]) -> None:
    raw = copy.deepcopy(raw)
    for node, key, value in changes:
        for name in raw if node == "all" else [node]:
            raw[name][1][key] = value
    try:
        load_fleet(raw, STACKS)
    except InventoryError as error:
        assert error.problems
        assert all(p.node in {*raw, "fleet"} and p.message and p.remedy for p in error.problems)


@thorough
@given(
    tp=st.integers(1, 20),
    pp=st.integers(1, 6),
    nodes=st.lists(st.sampled_from(["gpu1", "gpu2"]), min_size=1, max_size=2, unique=True),
    other=st.integers(1, 10),
    gpus=st.integers(0, 16),
)
def test_an_accepted_fleet_never_promises_more_gpus_than_it_has(
    raw: Raw, tp: int, pp: int, nodes: list[str], other: int, gpus: int
) -> None:
    raw = copy.deepcopy(raw)
    engine(0, tp=tp, pp=pp, nodes=nodes, attention_heads=None)(raw)
    engine(1, tp=other)(raw)
    on("gpu2", "gpus", gpus)(raw)
    need = {name: 0.0 for name in raw}
    for name in nodes:
        need[name] += tp * pp / len(nodes)
    need["gpu2"] += other
    fits = (tp * pp) % len(nodes) == 0 and need["gpu1"] <= 8 and need["gpu2"] <= gpus
    try:
        load_fleet(raw, STACKS)
        accepted = True
    except InventoryError:
        accepted = False
    assert accepted == fits
