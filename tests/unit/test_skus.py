"""SKU files: all that are shipped can be read, and each number has its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackpin.skus import SkuError, known_skus, load_sku

GOOD = "name: x\ngpus: {count: 2, model: none, source: a page}\n"
FIGURE = (
    "{name: f, unit: GB/s, expected: 1, warn_below: 2, fail_below: 3, conditions: c, source: s}"
)


@pytest.mark.parametrize("name", known_skus())
def test_shipped_files(name: str) -> None:
    sku = load_sku(name)
    assert sku.gpus.source
    assert all(figure.source and figure.conditions for figure in sku.figures)


def test_counts() -> None:
    assert {n: load_sku(n).gpus.count for n in ("cpu", "lab-cpu", "h100-sxm-8")} == {
        "cpu": 0,
        "lab-cpu": 1,
        "h100-sxm-8": 8,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", "not YAML"),
        ("", "valid dictionary"),
        (GOOD + "watts: 700\n", "watts"),
        (GOOD.replace(", source: a page", ""), "gpus.source"),
        (GOOD.replace("name: x", "name: y"), "make it 'x'"),
        (GOOD + f"figures: [{FIGURE}]\n", "fail_below ≤ warn_below ≤ expected"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(SkuError) as caught:
        load_sku("x", tmp_path)
    assert words in str(caught.value) and "x.yaml" in str(caught.value)


def test_an_unknown_name_lists_the_known(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    with pytest.raises(SkuError, match=r"no SKU 'h100'.*known: x"):
        load_sku("h100", tmp_path)
