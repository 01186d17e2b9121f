"""From a lock to the files of its bundle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rackpin.bundle.contents import contents
from rackpin.bundle.model import BundleError
from rackpin.debs import Deb
from rackpin.stack.lock import load_stack

SHA = "a" * 64
DEB = Deb("libnuma1", "2.0.16-1", "amd64", "pool/main/n/numactl/libnuma1_2.0.16-1_amd64.deb",
          SHA, 21000, "debian")  # fmt: skip


def stack(**parts: Any) -> Any:
    """A stack whose lock has the parts that a resolved one has."""
    real = load_stack("cpu-lab")
    lock = SimpleNamespace(
        stack="cpu-lab", digest="d" * 64, files=real.lock.files, debs_closure={}, sources={},
        images={},
    )  # fmt: skip
    for name, value in parts.items():
        setattr(lock, name, value)
    return SimpleNamespace(pins=real.pins, lock=lock)


def test_wheels_debs_and_sources_get_their_places_and_addresses() -> None:
    source = SimpleNamespace(
        version="2.19.6", commit="c" * 40, sha256="b" * 64, size=None,
        url="https://host.invalid/nccl-tests/cccc.tar.gz",
    )  # fmt: skip
    given = stack(
        debs_closure={"debian-12": SimpleNamespace(debs=[DEB])}, sources={"nccl-tests": source}
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
    reason = SimpleNamespace(reason="developer.download.nvidia.com could not be reached")
    missing = SimpleNamespace(wanted="x", unresolved=reason)
    found = contents(
        stack(debs_closure={"ubuntu-22.04": missing}, sources={"gdrcopy": missing},
              images={"base": missing})
    )  # fmt: skip
    assert found.unresolved["debs_closure.ubuntu-22.04"] == reason.reason
    assert found.unresolved["sources.gdrcopy"] == reason.reason
    assert "docker save" in found.unresolved["images.base"]


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
        contents(stack(debs_closure={"debian-12": SimpleNamespace(debs=[Deb(**values)])}))


def test_one_path_never_stands_for_two_contents() -> None:
    twice = [DEB, Deb(**{**DEB.__dict__, "sha256": "f" * 64})]
    with pytest.raises(BundleError, match="two contents"):
        contents(stack(debs_closure={"debian-12": SimpleNamespace(debs=twice)}))
