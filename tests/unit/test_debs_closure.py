"""What the resolver takes, what it refuses, and how it says why."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from rackpin.debs import Base, Closure, DebError, Family, Refused, Wanted, load_family, resolve
from tests.fixtures_debs_names import DRIVER, FM, NEWER, POINT, SCENARIOS, family, package
from tests.unit.debs_samples import BASE, LIBC, index

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="needs apt as the solver")

NVIDIA = load_family("nvidia", DRIVER)
ROOTS = [Wanted("nvidia-driver-535"), Wanted(FM), Wanted("libnccl-dev", "2.19.3-1+cuda12.2")]


def closure(scenario: str, *wanted: Wanted, families: tuple[Family, ...] = (NVIDIA,)) -> Closure:
    return resolve([index(*SCENARIOS[scenario])], wanted, families, BASE, label="stack t")


def refusal(scenario: str, *wanted: Wanted) -> str:
    with pytest.raises(DebError) as caught:
        closure(scenario, *wanted)
    return str(caught.value)


def test_the_whole_driver_family_comes_at_one_version_and_no_other_branch() -> None:
    found = closure("two-branches", *ROOTS)
    members = {deb.name: deb.version for deb in found.debs if NVIDIA.has(deb.name)}
    expected = {p.name: p.version for p in family(DRIVER) if p.name != "cuda-drivers-535"}
    assert members == expected
    assert not [deb.name for deb in found.debs if "550" in deb.name or deb.name.startswith("cuda")]
    assert found.versions["libnccl2"] == "2.19.3-1+cuda12.2"  # though a newer one lies beside it
    assert "libc6" not in found.versions  # the base has it
    assert list(found.debs) == sorted(found.debs)
    assert all(len(deb.sha256) == 64 and deb.repository == "nvidia" for deb in found.debs)


def test_the_order_of_the_index_does_not_matter() -> None:
    straight = closure("point-release", *ROOTS)
    reverse = resolve([index(*reversed(SCENARIOS["point-release"]))], ROOTS[::-1], [NVIDIA], BASE)
    assert straight == reverse


def test_a_newer_point_release_beside_the_pinned_one_changes_nothing() -> None:
    assert closure("point-release", *ROOTS) == closure("two-branches", *ROOTS)


def test_fabric_manager_a_point_release_off_is_named_with_what_was_found() -> None:
    text = refusal("fabric-off", *ROOTS)
    assert f"{FM}: wanted {DRIVER} as all of family nvidia; found {POINT}-1 in nvidia" in text
    assert text.startswith("stack t: ")


def test_a_member_that_is_gone_is_named_with_who_needs_it() -> None:
    text = refusal("missing-member", *ROOTS)
    assert f"nvidia-driver-535 {DRIVER}-0ubuntu1 (nvidia) needs libnvidia-gl-535" in text
    assert f"(= {DRIVER}-0ubuntu1); libnvidia-gl-535: found nothing of that name" in text


def test_every_missing_root_is_listed_at_once() -> None:
    text = refusal("other-branch", *ROOTS, Wanted("nothing-like-it"))
    for name in ("nvidia-driver-535", FM, "libnccl-dev", "nothing-like-it"):
        assert f"  {name}: wanted" in text or name == "libnccl-dev"
    assert "libnccl-dev" not in text  # that one is there


def test_a_name_that_became_virtual_is_told_with_who_provides_it() -> None:
    renamed = package("librdmacm1t64", "50.0-2", Provides="librdmacm1 (= 50.0-2)")
    with pytest.raises(DebError, match="librdmacm1t64 provides it: name that"):
        resolve([index(renamed)], [Wanted("librdmacm1")], base=BASE)


@pytest.mark.parametrize("name", ["cuda", "cuda-drivers", "nvidia-driver-550", "cuda-12-4"])
def test_what_would_drag_another_branch_is_refused_by_name(name: str) -> None:
    assert f"{name}: family nvidia ({DRIVER}) forbids it" in refusal("two-branches", Wanted(name))


def test_a_dependency_on_another_branch_is_explained() -> None:
    tool = package("site-tool", "1", "nvidia-utils-550 | cuda-drivers-550")
    with pytest.raises(DebError) as caught:
        resolve([index(*SCENARIOS["two-branches"], tool)], [Wanted("site-tool")], [NVIDIA], BASE)
    text = str(caught.value)
    assert "site-tool 1 (nvidia) needs nvidia-utils-550 | cuda-drivers-550" in text
    assert f"found {NEWER}-0ubuntu1 in nvidia (family nvidia forbids it)" in text


def test_the_allowed_alternative_is_taken() -> None:
    tool = package("site-tool", "1", "nvidia-utils-550 | nvidia-utils-535")
    packages = [*SCENARIOS["two-branches"], tool]
    found = resolve([index(*packages)], [Wanted("site-tool")], [NVIDIA], BASE)
    assert found.versions["nvidia-utils-535"] == f"{DRIVER}-0ubuntu1"


def test_a_virtual_package_is_found_by_its_provides() -> None:
    tool = package("site-tool", "1", "libcuda1")
    packages = [*family(DRIVER), tool]
    found = resolve([index(*packages)], [Wanted("site-tool")], [NVIDIA], BASE)
    assert "libnvidia-compute-535" in found.versions


def test_an_unversioned_provides_does_not_meet_a_version() -> None:
    packages = [package("aa", "1", "virtual (>= 2)"), package("bb", "9", Provides="virtual")]
    with pytest.raises(DebError, match=r"aa 1 \(nvidia\) needs virtual \(>= 2\)"):
        resolve([index(*packages)], [Wanted("aa")], base=BASE)
    packages[1] = package("bb", "9", Provides="virtual (= 2)")
    assert resolve([index(*packages)], [Wanted("aa")], base=BASE).versions == {"aa": "1", "bb": "9"}


def test_conflicting_roots_are_named() -> None:
    both = [Wanted("nvidia-kernel-common-535"), Wanted("nvidia-kernel-common-550")]
    with pytest.raises(DebError) as caught:
        closure("two-branches", *both, families=())
    assert "conflicts with nvidia-kernel-common-5" in str(caught.value)


def test_two_vendors_of_one_upstream_version_must_be_told_apart() -> None:
    other = [replace(p, version=f"{DRIVER}-0ubuntu0.22.04.1") for p in family(DRIVER)]
    both = [index(*family(DRIVER)), index(*other, name="ubuntu")]
    with pytest.raises(DebError, match=r"is offered as .* in ubuntu.*name the repository"):
        resolve(both, ROOTS[:1], [NVIDIA], BASE)
    chosen = replace(NVIDIA, repositories=("nvidia",))
    found = resolve(both, ROOTS[:1], [chosen], BASE)
    assert {deb.repository for deb in found.debs} == {"nvidia"}


def test_one_version_with_two_contents_is_refused() -> None:
    one, other = package("tool", "1"), package("tool", "1", Section="other")
    with pytest.raises(Refused, match="different files under this version"):
        resolve([index(one), index(other, name="b")], [Wanted("tool")], base=BASE)


def test_locked_versions_stay_until_named() -> None:
    old = [package("aa", "1", "bb"), package("bb", "1")]
    first = resolve([index(*old)], [Wanted("aa")], base=BASE)
    new = [index(*old, package("aa", "2", "bb"), package("bb", "2"))]
    assert resolve(new, [Wanted("aa")], base=BASE, keep=first.debs).debs == first.debs
    freed = [deb for deb in first.debs if deb.name != "bb"]
    assert resolve(new, [Wanted("aa")], base=BASE, keep=freed).versions == {"aa": "1", "bb": "2"}


def test_a_kept_version_gives_way_to_a_new_pin_and_only_there() -> None:
    old = [package("aa", "1", "bb (= 1)"), package("bb", "1"), package("cc", "1")]
    roots = [Wanted("aa", "1"), Wanted("cc")]
    first = resolve([index(*old)], roots, base=BASE)
    new = [*old, package("aa", "2", "bb (= 2)"), package("bb", "2"), package("cc", "2")]
    second = resolve([index(*new)], [Wanted("aa", "2"), Wanted("cc")], base=BASE, keep=first.debs)
    assert second.versions == {"aa": "2", "bb": "2", "cc": "1"}
    assert second.released == ("aa", "bb")


def test_backports_are_taken_only_when_asked() -> None:
    stable = index(package("tool", "1"), name="stable")
    later = index(
        package("tool", "2~bpo"), name="backports", NotAutomatic="yes", ButAutomaticUpgrades="yes"
    )
    assert resolve([stable, later], [Wanted("tool")], base=BASE).versions == {"tool": "1"}
    asked = [Wanted("tool", repositories=("backports",))]
    assert resolve([stable, later], asked, base=BASE).versions == {"tool": "2~bpo"}


def test_the_smallest_base_is_what_is_essential() -> None:
    system = [
        package("dpkg", "1", "libbase", Essential="yes"),
        package("libbase", "1"),
        package("apt", "1", "libbase"),
        package("tool", "1", "libbase, libmore"),
        package("libmore", "1"),
    ]
    assert set(resolve([index(*system)], [Wanted("tool")]).versions) == {"tool", "libmore"}
    with_more = Base(names=("apt", "libmore"))
    assert set(resolve([index(*system)], [Wanted("tool")], base=with_more).versions) == {"tool"}


def test_a_root_that_the_base_has_is_locked_all_the_same() -> None:
    tool = package("tool", "1", "libc6")
    base = Base(status=f"{BASE.status}\n{tool.control}Status: install ok installed\n")
    assert resolve([index(tool)], [Wanted("tool")], base=base).versions == {"tool": "1"}


def test_what_the_base_lacks_in_version_is_explained() -> None:
    tool = package("tool", "1", "libc6 (>= 2.38)")
    with pytest.raises(DebError, match=r"needs libc6 \(>= 2.38\); libc6: found 2.36-9 in base"):
        resolve([index(tool)], [Wanted("tool")], base=BASE)


def test_nothing_of_the_base_is_ever_removed() -> None:
    tool = package("tool", "1", Conflicts="libc6")
    with pytest.raises(DebError, match=r"tool 1 .* conflicts with libc6"):
        resolve([index(tool)], [Wanted("tool")], base=BASE)


@pytest.mark.parametrize(
    ("qualifier", "multi_arch", "fits"),
    [("", "", True), ("any", "allowed", True), ("any", "", False), ("i386", "", False)],
)
def test_multi_arch_qualifiers(qualifier: str, multi_arch: str, fits: bool) -> None:
    extra = {"Multi_Arch": multi_arch} if multi_arch else {}
    name = f"lib:{qualifier}" if qualifier else "lib"
    packages = [package("tool", "1", name), package("lib", "1", **extra)]
    if fits:
        found = resolve([index(*packages)], [Wanted("tool")], base=BASE)
        assert found.versions == {"tool": "1", "lib": "1"}
    else:
        with pytest.raises(DebError, match=f"needs {name}"):
            resolve([index(*packages)], [Wanted("tool")], base=BASE)


def test_removed_packages_of_a_status_file_do_not_count() -> None:
    text = f"{LIBC}\nStatus: deinstall ok config-files\n\n{LIBC.replace('libc6', 'other')}"
    base = Base(status=f"{text}\nStatus: install ok installed\n")
    with pytest.raises(DebError, match="needs libc6"):
        resolve([index(package("tool", "1", "libc6"))], [Wanted("tool")], base=base)
    with pytest.raises(DebError, match="lists nothing as installed"):
        Base(status=f"{LIBC}\n").installed()
