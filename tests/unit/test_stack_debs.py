"""A lock's debs: what is asked of the resolver, and what its answers become."""

from __future__ import annotations

from typing import Any

import pytest

from rackpin.debs import Closure, DebError, Refused, Unreachable
from rackpin.debs.host import Asked, Driver
from rackpin.debs.model import Deb as Found
from rackpin.stack import debs
from rackpin.stack.debs import DebOptions, closure
from rackpin.stack.items import Deb, DebClosure, Package, Unresolved
from rackpin.stack.lock import stack_pins
from rackpin.stack.model import StackError

OS = "ubuntu-22.04"
PACKAGES = [
    Package(name="nvidia-driver-535", version="535.129.03-0ubuntu1", role="driver",
            repository="nvidia"),
    Package(name="libnccl2", version="2.19.3-1+cuda12.2", role="nccl", repository="nvidia"),
    Package(name="python3", version=None, role="environment", repository="os"),
]  # fmt: skip
FOUND = Found("libnccl2", "2.19.3-1+cuda12.2", "amd64", "x/libnccl2.deb", "b" * 64, 7, "nvidia")
OLD = DebClosure(debs=[Deb(**{**vars(FOUND), "version": "2.19.2-1"}), Deb(**vars(FOUND))])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the resolver was asked last; it answers with one package."""
    seen: dict[str, Any] = {}

    def resolver(os_key: str, wanted: Any, driver: Any, **named: Any) -> Closure:
        seen.update(named, os=os_key, wanted=wanted, driver=driver)
        if error := seen.get("error"):
            raise error
        return Closure((FOUND,))

    monkeypatch.setattr(debs, "resolve_host", resolver)
    return seen


def locked(old: DebClosure | None = None, *update: str) -> DebClosure | Unresolved:
    return closure(stack_pins("cuda12.2-vllm0.4.2"), OS, PACKAGES, old, DebOptions(update))


def test_the_drivers_packages_follow_its_version(asked: dict[str, Any]) -> None:
    found = locked()
    assert isinstance(found, DebClosure) and found.debs == [Deb(**vars(FOUND))]
    assert asked["driver"] == Driver("535.129.03", "nvidia")
    assert asked["wanted"] == [
        Asked("nvidia-driver-535", None, "nvidia"),
        Asked("libnccl2", "2.19.3-1+cuda12.2", "nvidia"),
        Asked("python3", None, "os"),
    ]


def test_locked_versions_stay_but_for_those_that_may_move(asked: dict[str, Any]) -> None:
    locked(OLD)
    assert [deb.version for deb in asked["keep"]] == ["2.19.2-1", "2.19.3-1+cuda12.2"]
    locked(OLD, "libnccl2")
    assert asked["keep"] == []
    locked(OLD, "debs")
    assert asked["keep"] == []


def test_no_answer_is_unresolved_without_what_the_network_said(asked: dict[str, Any]) -> None:
    asked["error"] = Unreachable("https://x.example/InRelease: no answer (proxy p:3128); see")
    found = locked()
    assert isinstance(found, Unresolved)
    assert found.unresolved.reason == "no answer from https://x.example/InRelease"


@pytest.mark.parametrize("error", [Refused("x: signed by another key"), DebError("y: not there")])
def test_what_is_wrong_is_an_error(asked: dict[str, Any], error: Exception) -> None:
    asked["error"] = error
    with pytest.raises(StackError, match=r"stacks/cuda12.2-vllm0.4.2/pins.yaml: [xy]: "):
        locked()
