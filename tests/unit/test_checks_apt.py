"""The checks of apt: sources and pins as they should be, and each way in which they aren't."""

from __future__ import annotations

from typing import Any

import pytest

from rackpin.apt.pins import FILE
from rackpin.checks import apt
from rackpin.checks.base import Context
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.stages import apt as stage
from tests.unit import apt_samples, checks_samples
from tests.unit.checks_samples import found, ok


@pytest.fixture
def ctx(target: Target) -> Context:
    return checks_samples.context(target)


def judged(ctx: Context, target: Target, **changes: Any) -> dict[str, Finding]:
    state = ok(apt_samples.state_text(target, **changes))
    return found(ctx, apt.CHECK, apt_state=state)


def test_as_wished(ctx: Context) -> None:
    findings = found(ctx, apt.CHECK)
    assert {f.outcome for f in findings.values()} == {Outcome.PASS}
    assert findings["apt.sources"].summary == (
        "2 repositories, without a key as the inventory says: site"
    )
    assert findings["apt.pins"].summary == "2 pins, 1 of them installed and held"


def test_a_fleet_without_repositories_is_asked_nothing(ctx: Context) -> None:
    bare = checks_samples.with_config(ctx, apt_repositories=[], apt_pins=[])
    assert apt.CHECK.commands(bare) == [] and apt.CHECK.judge(bare, {}) == []


def test_sources_that_are_not_as_wished(ctx: Context, target: Target) -> None:
    entry = {"/etc/apt/sources.list.d/cuda.list": "deb http://10.9.0.1:8901/nvidia /\n"}
    twice = judged(ctx, target, sources=entry)["apt.sources"]
    assert twice.outcome is Outcome.FAIL and "cuda.list:1 names a repository" in twice.summary
    bare = judged(ctx, target, ours=False)["apt.sources"]
    assert "rackpin-nvidia.asc is missing" in bare.summary and "never proved" in bare.summary
    changed = apt_samples.state_text(target).replace("## proved", f"{edited(target)}\n## proved")
    finding = found(ctx, apt.CHECK, apt_state=ok(changed))["apt.sources"]
    assert "rackpin-nvidia.asc differs" in finding.summary


def edited(target: Target) -> str:
    path = stage.keyring_path(stage.repositories(target)[0])
    return apt_samples.files_text({path: "another key"}).rstrip()


def test_a_repository_without_a_list(ctx: Context) -> None:
    lists = ok(apt_samples.LISTS.splitlines()[0] + "\n")
    finding = found(ctx, apt.CHECK, apt_lists=lists)["apt.sources"]
    assert finding.outcome is Outcome.FAIL and "no package list of nvidia" in finding.summary


def test_evidence_shows_no_address_of_others(ctx: Context) -> None:
    lists = ok(apt_samples.LISTS + "http://me:pw@mirror/|stable|/var/lib/apt/lists/x\n")
    finding = found(ctx, apt.CHECK, apt_lists=lists)["apt.sources"]
    assert finding.outcome is Outcome.PASS and "pw" not in finding.evidence.output


def test_a_cut_answer_is_not_shown(ctx: Context, target: Target) -> None:
    """It holds other people's source files."""
    text = apt_samples.state_text(target).replace("## end\n", "")
    for finding in found(ctx, apt.CHECK, apt_state=ok(text)).values():
        assert finding.outcome is Outcome.NOT_RUN and finding.evidence.output == ""


def test_a_member_at_another_version_or_half_installed(ctx: Context, target: Target) -> None:
    status = apt_samples.STATUS.replace("535.129.03", "535.183.01").replace(
        "|installed|535", "|half-configured|535"
    )
    finding = judged(ctx, target, status=status)["apt.pins"]
    assert finding.outcome is Outcome.FAIL
    assert "is 535.183.01-0ubuntu1, the pin 535.129.03-0ubuntu1" in finding.summary
    assert "is half-configured" in finding.summary


def test_a_member_that_is_not_held_or_moves(ctx: Context) -> None:
    moves = "Remv nvidia-utils-535 [535.129.03-0ubuntu1]\n"
    look = ok(apt_samples.look_text(held="", cuda=moves))
    finding = found(ctx, apt.CHECK, apt_look=look)["apt.pins"]
    assert "nvidia-utils-535 is not held" in finding.summary
    assert "`apt-get install cuda` removes nvidia-utils-535" in finding.summary


def test_a_site_pin_without_effect_is_a_warning(ctx: Context, target: Target) -> None:
    text = "Package: nvidia-*\nPin: version 535.183*\nPin-Priority: 1002\n"
    site = {"/etc/apt/preferences.d/50-site": text}
    finding = judged(ctx, target, preferences=site)["apt.pins"]
    assert finding.outcome is Outcome.WARN and "50-site:1 pins nvidia-utils-535" in finding.summary


def test_a_missing_pin_file(ctx: Context, target: Target) -> None:
    text = "\n".join(
        line for line in apt_samples.state_text(target).splitlines() if not line.startswith(FILE)
    )
    finding = found(ctx, apt.CHECK, apt_state=ok(text + "\n"))["apt.pins"]
    assert finding.outcome is Outcome.FAIL and f"{FILE} is missing" in finding.summary
