"""Which split is chosen on which paths, the groups it makes, and the drawing of them."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackpin.plan import topology
from rackpin.plan.choose import Wanted
from rackpin.plan.drawing import FILLS, drawing
from rackpin.plan.errors import PlanError
from rackpin.plan.groups import groups_of
from rackpin.plan.plan import Plan, plan_start
from rackpin.plan.speed import speed, tensor_speedup
from rackpin.plan.split import Split
from rackpin.plan.topology import (
    class_of,
    link_classes,
    topology_from_text,
    topology_of,
    uniform,
    worst,
)
from tests.unit.plan_samples import deepseek, llama, llama_70b, mesh, moe, pairs, start


def chosen(config: dict[str, Any], **changes: Any) -> Split:
    return plan_start(start(config, **changes), Wanted()).chosen.split


A100 = {"gpu": "A100-80GB", "max_len": 32768}


def test_a_full_mesh_gives_tensor_parallelism() -> None:
    assert chosen(llama_70b(), gpus=4, per_node=4, topology=mesh(4), **A100) == Split(4)


def test_pairs_give_tensor_within_and_stages_between() -> None:
    assert chosen(llama_70b(), gpus=4, per_node=4, topology=pairs(), **A100) == Split(2, pp=2)


def test_pairs_that_are_not_neighbours_by_number_are_found() -> None:
    rows = [["X", "SYS", "NV4", "SYS"], ["SYS", "X", "SYS", "NV4"],
            ["NV4", "SYS", "X", "SYS"], ["SYS", "NV4", "SYS", "X"]]  # fmt: skip
    asked = start(llama_70b(), gpus=4, per_node=4, topology=topology_of(4, rows), **A100)
    found = plan_start(asked, Wanted()).data
    assert (found["tp"], found["pp"]) == (2, 2)
    tp = next(group for group in found["groups"] if group["kind"] == "TP")
    assert tp["members"] == [[0, 2], [1, 3]]
    assert tp["link_class"] == "nvlink"


def test_stages_go_over_nodes() -> None:
    found = plan_start(start(llama_70b(num_hidden_layers=400), gpus=16), Wanted())
    assert found.chosen.split == Split(8, pp=2)
    pp = next(group for group in found.data["groups"] if group["kind"] == "PP")
    assert pp["link_class"] == "network"
    assert [8 + a for a, _ in pp["members"]] == [b for _, b in pp["members"]]


def test_a_small_model_gets_replicas() -> None:
    assert chosen(llama()) == Split(1, dp=8)


def test_experts_are_spread_where_their_share_doesn_t_fit_the_blocks() -> None:
    found = plan_start(start(moe(), max_len=32768), Wanted(tp=8))
    assert found.chosen.split == Split(8, ep=8)
    assert any("192" in one["why_not"] for one in found.data["alternatives"])


def test_a_wish_for_many_requests_changes_the_choice() -> None:
    few = plan_start(start(llama_70b(), max_len=4096, concurrency=4), Wanted())
    many = plan_start(start(llama_70b(), max_len=4096, concurrency=200), Wanted())
    assert few.chosen.capacity() >= 4
    assert many.chosen.capacity() >= 200
    assert many.chosen.split.tp > few.chosen.split.tp


def test_what_was_asked_for_is_kept() -> None:
    for wanted in (Wanted(tp=2), Wanted(pp=2), Wanted(tp=2, pp=4), Wanted(dp=2)):
        split = plan_start(start(llama()), wanted).chosen.split
        for name in ("tp", "pp", "dp"):
            assert getattr(wanted, name) in (None, getattr(split, name))


def test_nothing_that_starts_still_answers_with_the_reasons() -> None:
    found = plan_start(start(llama_70b(), gpus=1, gpu="RTX 3090"), Wanted())
    assert not found.data["ok"]
    assert found.data["refusals"]
    assert found.data["alternatives"] or found.data["reasons"]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([llama(), llama_70b(), deepseek(), moe()]),
    st.integers(1, 24),
    st.sampled_from(["H100-80GB", "L40S", "H200"]),
    st.sampled_from(["NV18", "PIX", "SYS"]),
)
def test_any_choice_keeps_the_rules_and_the_gpus(
    config: dict[str, Any], gpus: int, gpu: str, link: str
) -> None:
    asked = start(config, gpus=gpus, gpu=gpu, topology=uniform(8, link))
    found = plan_start(asked, Wanted())
    split = found.chosen.split
    assert split.gpus("vllm") <= gpus
    assert split.tp <= 8
    members = [gpu for group in found.chosen.groups if group.name == "TP" for m in group.members
               for gpu in m]  # fmt: skip
    assert len(members) == len(set(members))
    assert found.data["ok"] == (not found.data["refusals"])
    if found.data["ok"]:
        assert found.data["kv_cache_tokens"] > 0


def test_groups_of_a_split_by_hand() -> None:
    asked = start(moe(quantization_config=None), gpus=8, per_node=4, topology=mesh(4))
    groups = {g.name: g for g in groups_of(asked, Split(2, pp=2, dp=2, ep=4), mesh(4))}
    assert groups["TP"].members == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert groups["PP"].members == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert groups["EP"].members == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert groups["DP"].members == ((0, 1, 2, 3), (4, 5, 6, 7))
    links = {name: group.link.id for name, group in groups.items() if group.link}
    assert links == {"TP": "nvlink", "PP": "nvlink", "EP": "network"}


def test_tp_across_nodes_is_said_to_be_slow() -> None:
    found = plan_start(start(llama_70b(), gpus=16), Wanted(tp=16, pp=1))
    assert found.data["groups"][0]["link_class"] == "network"
    assert any("slow" in reason for reason in found.data["reasons"])


def test_speed_falls_with_the_path_and_grows_with_ranks() -> None:
    for link in link_classes():
        curve = [tensor_speedup(tp, link) for tp in range(1, 33)]
        assert curve == sorted(curve)
        assert all(1 <= value <= tp for tp, value in enumerate(curve, 1))
    for better, worse in zip(link_classes(), link_classes()[1:], strict=False):
        assert tensor_speedup(4, better) > tensor_speedup(4, worse)
    nvlink = link_classes()[0]
    assert [tensor_speedup(tp, nvlink) for tp in (2, 4, 8)] == [1.8, 3.3, 5.5]
    assert speed(Split(1, dp=4), [], "vllm").throughput == 4


@pytest.mark.parametrize(
    ("link", "name"),
    [("NV18", "nvlink"), ("NV1", "nvlink"), ("PIX", "pcie-switch"), ("PXB", "pcie-switch"),
     ("PHB", "pcie-host"), ("NODE", "pcie-host"), ("SYS", "socket")],
)  # fmt: skip
def test_paths_by_name(link: str, name: str) -> None:
    assert class_of(link).id == name


def test_a_path_nobody_knows_is_no_fast_path() -> None:
    with pytest.raises(PlanError, match="topo"):
        topology_of(2, [["X", "??"], ["??", "X"]])
    with pytest.raises(PlanError, match="cut"):
        topology_of(3, [["X", "NV4", "NV4"], ["NV4", "X"]])
    with pytest.raises(PlanError, match="no GPU"):
        topology_of(0, [])


def test_the_worst_path_of_a_group() -> None:
    found = worst(pairs(), (0, 1, 2), 4)
    assert found is not None
    assert found.id == "socket"
    assert worst(pairs(), (0,), 4) is None


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the reader of topo: what it sees hangs on the text alone."""
    links = {0: {1: "NV12"}, 1: {0: "NV12"}}
    seen = {
        "whole": {"gpus": 2, "links": links},
        "rows": {"gpus": 2, "links": [["X", "SOC"], ["SOC", "X"]]},
        "hidden": {"gpus": 2, "links": links, "nvlink_shown": False},
        "failed": {"gpus": None, "links": None, "errors": ("No devices were found",)},
        "cut": {"gpus": 3, "links": links},
        "holes": {"gpus": 2, "links": [["X", None], [None, "X"]]},
    }

    def read(text: str) -> Any:
        if text not in seen:
            raise ValueError("no matrix in it")
        return types.SimpleNamespace(**{"nvlink_shown": True, "errors": (), **seen[text]})

    monkeypatch.setattr(topology, "read", read)


def test_the_reader_of_topo_may_give_rows_or_mappings(reader: None) -> None:
    assert topology_from_text("whole").link(0, 1) == "NV12"
    assert class_of(topology_from_text("rows").link(0, 1)).id == "socket"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no matrix in it"),
        ("hidden", "hides NVLink"),
        ("failed", "No devices were found"),
        ("cut", "cut"),
        ("holes", "no path from GPU 0 to 1"),
    ],
)
def test_a_topology_that_doesn_t_tell_is_refused(reader: None, text: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        topology_from_text(text)


def drawn(found: Plan) -> ElementTree.Element:
    return ElementTree.fromstring(drawing(found))


def texts(root: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in root.iter() if node.tag.endswith("text")]


def test_the_drawing_shows_every_gpu_its_group_and_the_paths() -> None:
    asked = start(llama_70b(), gpus=8, per_node=4, topology=pairs(), **A100)
    found = plan_start(asked, Wanted(tp=2, pp=2))
    words = texts(drawn(found))
    assert sum(word.startswith("GPU ") for word in words) == 8
    assert sum(word.startswith("group ") for word in words) == 8
    assert {word for word in words if word.startswith("node ")} == {"node 0", "node 1"}
    assert words.count("NV4") == 4
    assert words.count("SYS") == 2
    assert any("between CPU sockets" in word for word in words)


def test_idle_gpus_are_drawn_and_said_to_be_idle() -> None:
    found = plan_start(start(llama_70b(), gpus=8), Wanted(tp=4, pp=1, dp=1))
    assert texts(drawn(found)).count("idle") == 4


def test_names_can_t_break_the_drawing() -> None:
    asked = start(llama())
    asked = replace(asked, model=replace(asked.model, name='<script>"&'))
    assert any('<script>"&' in word for word in texts(drawn(plan_start(asked, Wanted()))))


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_words_on_boxes_have_contrast() -> None:
    for fill in FILLS:
        ink = 1.0 if fill == "#0072B2" else 0.0
        light, dark = sorted((luminance(fill), ink), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_a_fleet_too_large_to_draw_is_refused() -> None:
    with pytest.raises(PlanError, match="--svg"):
        drawing(plan_start(start(llama(), gpus=512), Wanted(tp=8, pp=1)))


def test_options_that_hold_more_are_named_with_what_they_give() -> None:
    found = plan_start(start(llama_70b(), gpus=4, gpu="H100-80GB", max_len=200_000,
                             util=0.6), Wanted(tp=4, pp=1)).data  # fmt: skip
    assert not found["ok"]
    knobs = {one["option"]: one for one in found["knobs"]}
    assert knobs["--kv-cache-dtype"]["kv_cache_tokens"] >= 2 * found["kv_cache_tokens"]
    assert knobs["--gpu-memory-utilization"]["ok"]
    assert knobs["--max-model-len"]["ok"]
    assert knobs["--max-model-len"]["value"] == found["kv_cache_tokens"]
