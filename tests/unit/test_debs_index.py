"""Stanzas, relations and families as they are read; and what holds for any small archive."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackpin.debs import DebError, Wanted, load_family, resolve
from rackpin.debs.families import family_names
from rackpin.debs.index import Relation, parse_packages, relations
from tests.fixtures_debs_names import Package, package
from tests.unit.debs_samples import BASE, index, stanza


def test_a_dependency_field_is_read_as_groups_of_alternatives() -> None:
    groups = relations("a (>= 1) | b:any, c [i386], d (<< 2~) [!i386], e (> 3)")
    assert groups == [
        [Relation("a", ">=", "1"), Relation("b", qualifier="any")],
        [Relation("d", "<<", "2~")],
        [Relation("e", ">=", "3")],
    ]
    assert str(groups[0][0]) == "a (>= 1)" and str(groups[0][1]) == "b:any"
    assert relations("  ") == []


@pytest.mark.parametrize(
    ("relation", "version", "fits"),
    [
        (Relation("a", "=", "1"), "1", True),
        (Relation("a", ">=", "535.54.03"), "535.129.03-0ubuntu1", True),
        (Relation("a", "<<", "1"), "1~rc1", True),
        (Relation("a", ">>", "1"), "1", False),
        (Relation("a", "<=", "2"), "1:0", False),
        (Relation("a", ">=", "1"), None, False),
        (Relation("a"), None, True),
    ],
)
def test_versions_compare_as_dpkg_does(relation: Relation, version: str | None, fits: bool) -> None:
    assert relation.takes(version) is fits


def test_folded_fields_and_any_order_of_fields_are_read() -> None:
    text = (
        "Version: 2\nDepends: a,\n b (= 1)\nPackage: x\nDescription: y\n Package: z\n\n\nPackage: w"
    )
    first, second = parse_packages(text, "r")
    assert (first.name, first.version) == ("x", "2")
    assert [group[0].name for group in first.depends] == ["a", "b"]
    assert (second.name, second.version, second.fields.get("Depends")) == ("w", "", None)


def test_the_families_of_the_table_tell_members_from_strangers() -> None:
    assert family_names() == ["nvidia", "nvidia-debian", "nvidia-unnumbered"]
    nvidia = load_family("nvidia", "535.129.03")
    for name in ("nvidia-driver-535", "nvidia-driver-535-server-open", "libnvidia-gl-535",
                 "nvidia-firmware-535-535.129.03", "nvidia-fabricmanager-535",
                 "cuda-drivers-535"):  # fmt: skip
        assert nvidia.has(name) and not nvidia.forbids(name)
    for name in ("nvidia-driver-550", "libnvidia-compute-580-server", "cuda", "cuda-drivers",
                 "cuda-drivers-550", "cuda-12-2", "cuda-runtime-12-2", "nvidia-open"):  # fmt: skip
        assert nvidia.forbids(name) and not nvidia.has(name)
    for name in ("cuda-toolkit-12-2", "nvidia-container-toolkit", "libnvidia-container1",
                 "nvidia-settings", "libnccl2", "linux-image-6.5.0-300-generic"):  # fmt: skip
        assert not nvidia.has(name) and not nvidia.forbids(name)
    assert nvidia.fits("535.129.03-0ubuntu1") and nvidia.fits("535.129.03-1")
    assert not nvidia.fits("535.129.030-1") and not nvidia.fits("535.183.01-1")
    for version, words in (("newest", "no branch number"), ("", "no branch number")):
        with pytest.raises(DebError, match=words):
            load_family("nvidia", version)
    with pytest.raises(DebError, match=r"no family 'amd'; known: nvidia, nvidia-debian"):
        load_family("amd", "1")


NAMES = ["p0", "p1", "p2", "p3", "p4", "p5"]
RELATION = st.builds(
    lambda name, rest: name + rest,
    st.sampled_from(NAMES),
    st.sampled_from(["", "", " (= 1)", " (>= 2)", " (<< 2)"]),
)
GROUP = st.lists(RELATION, min_size=1, max_size=2).map(" | ".join)
ARCHIVE = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["1", "2"])),
    st.tuples(st.lists(GROUP, max_size=2).map(", ".join), st.sampled_from(["", "", *NAMES])),
    min_size=1,
)


@pytest.mark.skipif(not shutil.which("apt-get"), reason="needs apt as the solver")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(ARCHIVE, st.sets(st.sampled_from(NAMES), min_size=1, max_size=2))
def test_any_answer_is_sound_and_does_not_depend_on_order(
    archive: dict[tuple[str, str], tuple[str, str]], roots: set[str]
) -> None:
    packages: list[Package] = []
    for (name, version), (depends, conflicts) in archive.items():
        extra = {"Conflicts": conflicts} if conflicts and conflicts != name else {}
        packages.append(package(name, version, depends, **extra))
    wanted = [Wanted(name) for name in sorted(roots)]
    try:
        found = resolve([index(*packages)], wanted, base=BASE)  # proves its answer itself
    except DebError as error:
        assert any(name in str(error) for name in NAMES)
        return
    assert roots <= set(found.versions)
    assert len(found.versions) == len(found.debs)
    assert resolve([index(*reversed(packages))], wanted[::-1], base=BASE) == found
    assert resolve([index(*packages)], wanted, base=BASE, keep=found.debs) == found


def test_a_stanza_says_how_it_is_locked() -> None:
    deb = stanza(package("libnccl2", "2.19.3-1+cuda12.2")).deb()
    assert deb.filename == "pool/libnccl2_2.19.3-1+cuda12.2_amd64.deb"
    assert (deb.architecture, deb.size, deb.repository) == ("amd64", 1000, "nvidia")
