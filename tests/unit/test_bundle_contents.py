"""From a lock to the files of its bundle."""

from __future__ import annotations

from typing import Any

import pytest

from rackpin.bundle.contents import contents
from rackpin.bundle.model import BundleError
from rackpin.stack.items import Deb, DebClosure, Reason, Source, Unresolved
from rackpin.stack.lock import Stack, load_stack

SHA = "a" * 64
DEB = Deb(
    name="libnuma1",
    version="2.0.16-1",
    architecture="amd64",
    filename="pool/main/n/numactl/libnuma1_2.0.16-1_amd64.deb",
    sha256=SHA,
    size=21000,
    repository="debian",
)


def stack(**parts: Any) -> Stack:
    """A stack whose lock has the parts that a resolved one has."""
    real = load_stack("cpu-lab")
    bare: dict[str, Any] = {"debs_closure": {}, "sources": {}, "images": {}}
    return Stack(real.pins, real.lock.but(**bare | parts))


def test_wheels_debs_and_sources_get_their_places_and_addresses() -> None:
    source = Source(
        version="2.19.6", commit="c" * 40, sha256="b" * 64, size=None,
        url="https://host.invalid/nccl-tests/cccc.tar.gz",
    )  # fmt: skip
    given = stack(
        debs_closure={"debian-12": DebClosure(debs=[DEB])}, sources={"nccl-tests": source}
    )
    found = contents(given, {"debian": "http://mirror.site/debian/"})
    items = {item.path: item for item in found.items}
    deb = items[f"debs/debian-12/debian/{DEB.filename}"]
    assert deb.urls == (
        f"http://mirror.site/debian/{DEB.filename}",
        f"http://deb.debian.org/debian/{DEB.filename}",
    )
    assert items["files/nccl-tests-cccccccccccc.tar.gz"].urls == (source.url,)
    assert sum(item.kind == "wheel" for item in found.items) == len(given.lock.files)
    assert [part.path for part in found.apt] == ["debs/debian-12/debian"]
    assert found.unresolved == {}


def test_what_the_lock_lacks_is_told_with_its_reason() -> None:
    reason = Reason(reason="developer.download.nvidia.com could not be reached")
    missing = Unresolved(wanted="x", unresolved=reason)
    found = contents(
        stack(debs_closure={"ubuntu-22.04": missing}, sources={"gdrcopy": missing},
              images={"base": missing})
    )  # fmt: skip
    assert found.unresolved["debs_closure.ubuntu-22.04"] == reason.reason
    assert found.unresolved["sources.gdrcopy"] == reason.reason
    assert found.unresolved["images.base"] == reason.reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"repository": "unknown"}, "libnuma1 is from repository 'unknown'"),
        ({"filename": "../../etc/cron.d/x.deb"}, "is no path for a file of a bundle"),
    ],
)
def test_a_lock_that_points_elsewhere_is_refused(changes: dict[str, str], words: str) -> None:
    values = {**DEB.__dict__, **changes}
    with pytest.raises(BundleError, match=words):
        contents(stack(debs_closure={"debian-12": DebClosure(debs=[Deb(**values)])}))


def test_one_path_never_stands_for_two_contents() -> None:
    twice = [DEB, Deb(**{**DEB.__dict__, "sha256": "f" * 64})]
    with pytest.raises(BundleError, match="two contents"):
        contents(stack(debs_closure={"debian-12": DebClosure(debs=twice)}))
