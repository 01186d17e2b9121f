"""What pins become, what apt makes of them, and what the stage plans to do about it."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from rackpin.apt import pins as rules
from rackpin.apt import proof
from rackpin.apt.state import StateError, parse_state
from rackpin.desired import OWNED_MARK, Target
from rackpin.inventory_parts import AptPin
from rackpin.parse import apt_preferences as preferences
from rackpin.parse.apt_policy import parse_policy
from rackpin.stages import STAGES
from rackpin.stages import apt as stage
from tests.unit import apt_samples as samples

PART = "/etc/apt/preferences.d/"
SITE = "Package: nvidia-utils-535\nPin: version 535.183*\nPin-Priority: 1002\n"
NVIDIA = "deb {options}http://10.9.0.1:8901/nvidia /\n"


def pin(name: str, version: str, origin: str | None = None) -> AptPin:
    return AptPin(name=name, version=version, origin=origin)


# -- pins -----------------------------------------------------------------------------------


def test_rivals_are_other_branches_and_flavours_of_the_driver_only() -> None:
    pinned = [
        pin("libnvidia-gl-535", "535.129.03-0ubuntu1"),
        pin("nvidia-dkms-535-open", "535.129.03-0ubuntu1"),
        pin("cuda-toolkit-12-2", "12.2.2-1"),
        pin("libnccl2", "2.19.3-1+cuda12.2"),
        pin("linux-image-6.5.0-41-generic", "6.5.0-41.41"),
        pin("datacenter-gpu-manager-4-core", "1:4.2.3-1"),
    ]
    patterns = rules.rivals(pinned)
    assert patterns == ["libnvidia-gl", "libnvidia-gl-[0-9]*", "nvidia-dkms", "nvidia-dkms-[0-9]*"]

    def hit(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    assert hit("libnvidia-gl-550") and hit("libnvidia-gl-535-server") and hit("libnvidia-gl")
    assert hit("nvidia-dkms-580-open") and hit("nvidia-dkms-535")
    assert not hit("xlibnvidia-gl-550") and not hit("nvidia-dkms-common")
    assert not hit("cuda-toolkit-12-4") and not hit("libnccl2")


def test_preferences_have_a_stanza_for_each_member_before_the_patterns(target: Target) -> None:
    wish = STAGES["apt"](target)
    text = next(f.content for f in wish.files if f.path == rules.FILE)
    packages = re.findall(r"(?m)^Package: (.*)$", text)
    assert packages[:4] == ["nvidia-utils-535"] * 2 + ["site-agent+x"] * 2
    assert packages[4:] == ["nvidia-utils", "nvidia-utils-[0-9]*"]
    priorities = [int(p) for p in re.findall(r"(?m)^Pin-Priority: (.*)$", text)]
    assert priorities == [30000, -1, 30000, -1, -1, -1] and rules.PRIORITY > 1000
    paths = [f.path for f in wish.files]
    assert paths.index(rules.FILE) < min(i for i, p in enumerate(paths) if p.endswith(".sources"))


def test_unattended_upgrades_is_told_of_every_pin_once() -> None:
    pinned = [pin("nvidia-utils-535", "535.1-1"), pin("libstdc++6", "12"), pin("a.b", "1")]
    found = rules.unattended_patterns(pinned, ["nvidia-"])
    assert found == ["nvidia-", "a[.]b$", "libstdc[+][+]6$"]
    assert re.match(found[2], "libstdc++6") and not re.match(found[2], "libstdc++6-dev")


def faults(target: Target, **changes: str) -> list[str]:
    return proof.look_faults(target, samples.state(target), samples.look_text(**changes))  # type: ignore[arg-type]


def test_pins_that_hold_have_no_fault(target: Target) -> None:
    assert faults(target) == []


def test_another_candidate_names_the_stanza_that_apt_read_first(target: Target) -> None:
    policy = samples.POLICY.replace("Candidate: 535.129.03", "Candidate: 535.183.01")
    (said,) = faults(target, policy=policy)
    assert "apt would take 535.183.01-0ubuntu1, not 535.129.03-0ubuntu1" in said
    state = samples.state(target, preferences={"/etc/apt/preferences": "# mine\n" + SITE})
    (said,) = proof.look_faults(target, state, samples.look_text(policy=policy))
    assert "because of /etc/apt/preferences:2" in said


def test_a_version_that_is_gone_lists_what_there_is(target: Target) -> None:
    policy = samples.POLICY.replace("535.129.03", "535.129.04")
    (said,) = faults(target, policy=policy)
    assert "no repository has 535.129.03-0ubuntu1" in said and "535.129.04-0ubuntu1" in said
    (said,) = faults(target, policy=samples.POLICY.split("site-agent")[0])
    assert said == "site-agent+x: no repository has 1:2.0-1 (there is no version of it at all)"


def test_a_version_without_its_revision_is_completed(target: Target) -> None:
    policy = samples.POLICY.replace("1:2.0-1", "1:2.0-1-3")
    (said,) = faults(target, policy=policy)
    assert "write the whole version, 1:2.0-1-3" in said


def test_a_pin_must_come_from_its_own_repository(target: Target) -> None:
    policy = samples.POLICY.replace("10.9.0.1:8901/nvidia", "archive.example/ubuntu")
    (said,) = faults(target, policy=policy)
    assert "only at http://archive.example/ubuntu/, not at nvidia" in said


def test_one_version_string_of_two_packages_is_a_fault(target: Target) -> None:
    twice = "     1:2.0-1 30000\n        500 http://other.example/ stable/main amd64 Packages\n"
    (said,) = faults(target, policy=samples.POLICY + twice)
    assert "1:2.0-1 is two different packages" in said and "other.example" in said


def test_simulations_that_move_a_member(target: Target) -> None:
    step = "Inst nvidia-utils-535 [535.129.03-0ubuntu1] (535.183.01-0ubuntu1 nv:x [amd64])\n"
    assert "`apt-get dist-upgrade` moves nvidia-utils-535" in faults(target, upgrade=step)[0]
    gone = "Remv nvidia-utils-535 [535.129.03-0ubuntu1]\nInst nvidia-utils-550 (550-1 nv [amd64])\n"
    assert "`apt-get install cuda` removes nvidia-utils-535" in faults(target, cuda=gone)[0]
    assert "fails: E: broken" in faults(target, upgrade="E: broken\n", upgrade_rc=100)[0]  # type: ignore[arg-type]


def test_an_installed_member_that_nobody_holds(target: Target) -> None:
    assert faults(target, held="") == ["nvidia-utils-535 is not held"]


def test_a_cut_answer_is_a_fault(target: Target) -> None:
    state = samples.state(target)
    for text in ("", "## policy\n", samples.look_text().replace("## dist-upgrade = 0\n", "")):
        assert proof.look_faults(target, state, text)
    assert proof.trial_faults(target, state, "## update = 0\n")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("E: Failed to fetch http://x/ Could not connect to x:80", "bring the repository"),
        ("W: GPG error: http://x ./ InRelease: NO_PUBKEY 720A\nE: The repository is not signed.",
         "not signed by the pinned key"),
        ("E: Failed to fetch http://x  File has unexpected size (1 != 2).", "not whole"),
        ("E: Could not get lock\nE: waited 600 s for another program to finish", "left alone"),
    ],
)  # fmt: skip
def test_a_failed_update_says_what_to_do(target: Target, words: str, hint: str) -> None:
    (said,) = proof.trial_faults(
        target, samples.state(target), f"## update = 100\n{words}\n## end\n"
    )
    assert hint in said and "E: " not in said


# -- other people's files ---------------------------------------------------------------------


def test_a_site_pin_that_disagrees_is_reported_with_its_place(target: Target) -> None:
    files = {
        "/etc/apt/preferences": SITE,
        f"{PART}50-site.pref": SITE.replace("183*", "129*"),
        f"{PART}cuda-12.2": SITE,
        f"{PART}60-site.pref": SITE.replace("Package: nvidia-utils-535", "Package: *"),
        f"{PART}70-site.pref": "# no\n\n" + SITE,
    }
    notes = stage.plan(target, samples.state(target, preferences=files)).notes
    assert [note.split(" ")[0] for note in notes] == [
        "/etc/apt/preferences:1", f"{PART}70-site.pref:3", f"{PART}cuda-12.2:1",
    ]  # fmt: skip
    assert "read before" in notes[0] and "without effect" in notes[1]
    assert "does not read a file of this name" in notes[2]


def test_a_node_as_wished_has_nothing_to_do(target: Target) -> None:
    todo = stage.plan(target, samples.state(target))
    assert todo == stage.Plan(False, (), (), (), (), ())


def test_another_entry_for_our_repository_is_switched_off(target: Target) -> None:
    site = {"/etc/apt/sources.list.d/cuda.list": NVIDIA.format(options="[trusted=yes] ")}
    todo = stage.plan(target, samples.state(target, sources=site))
    assert [one.place for one in todo.disable] == ["/etc/apt/sources.list.d/cuda.list:1"]
    assert todo.prove and "switched off" in todo.notes[0]


def test_an_entry_that_has_more_is_kept_unless_apt_would_refuse_it(target: Target) -> None:
    path = "/etc/apt/sources.list"
    more = f"deb {{}}file:/srv/debs stable main extra\n{NVIDIA.format(options='')}"
    off, problems = stage.superseded(target, samples.state(target, sources={path: more.format("")}))
    assert [one.first for one in off] == [2]
    assert [p.key for p in problems] == [f"{path}:1"] and "components extra" in problems[0].message
    kept = more.format("[trusted=yes] ")
    off, problems = stage.superseded(target, samples.state(target, sources={path: kept}))
    assert [one.first for one in off] == [2] and not problems


def test_files_of_an_earlier_wish_are_removed(target: Target) -> None:
    smaller = samples.without_repository(target, "nvidia")
    todo = stage.plan(smaller, samples.state(target))
    assert set(todo.remove) == {
        "/etc/apt/sources.list.d/rackpin-nvidia.sources", "/etc/apt/keyrings/rackpin-nvidia.asc",
    }  # fmt: skip
    assert todo.prove and todo.release == ("nvidia-utils-535",)


def test_a_file_of_our_name_that_is_not_ours_is_not_removed(target: Target) -> None:
    path = "/etc/apt/sources.list.d/rackpin-old.sources"
    site = {path: "# by hand\nTypes: deb\nURIs: http://x\nSuites: y\n"}
    assert stage.plan(target, samples.state(target, sources=site)).remove == ()
    site = {path: f"# {OWNED_MARK} (x)\n"}
    assert stage.plan(target, samples.state(target, sources=site)).remove == (path,)


def test_installed_members_are_held_and_others_are_not(target: Target) -> None:
    free = samples.STATUS.replace("|hold|", "|install|")
    todo = stage.plan(target, samples.state(target, status=free))
    assert todo.hold == ("nvidia-utils-535",) and not todo.prove


@pytest.mark.parametrize(
    "change",
    [
        {"proved": ""},
        {"proved": "0" * 64},
        {"policy": "E: The list of sources\n"},
    ],
)
def test_what_is_not_proved_is_proved_again(target: Target, change: dict[str, str]) -> None:
    assert stage.plan(target, samples.state(target, **change)).prove


def test_a_node_without_repositories_and_pins_needs_no_proof(target: Target) -> None:
    empty = {"apt_repositories": [], "apt_pins": []}
    config = target.fleet.config.model_copy(update=empty)
    bare = replace(target, fleet=target.fleet.model_copy(update={"config": config}))
    state = samples.state(target, ours=False, held="", status="", policy="")
    assert stage.plan(bare, state) == stage.Plan(False, (), (), (), (), ())
    assert stage.plan(bare, samples.state(target)).prove, "what was there is taken away, proved"


def test_a_cut_state_is_an_error(target: Target) -> None:
    text = samples.state_text(target)
    for cut in (text.replace("## end\n", ""), "", text.replace("|", "|!", 1)):
        with pytest.raises(StateError):
            parse_state(cut.splitlines())


# -- the site's own stanzas ---------------------------------------------------------------
MAIN = "/etc/apt/preferences"
BAD = "# ours\n\nPackage: nvidia-utils-535\nPin: version *\nPin-Priority: -1\n"
BROKEN = samples.POLICY.replace("Candidate: 535.129.03-0ubuntu1", "Candidate: (none)")
GOOD = "\nPackage: vim\nPin: version 1\nPin-Priority: 5\n"


def test_only_the_stanza_that_breaks_a_pin_is_switched_off(target: Target) -> None:
    site = preferences.parse_preferences(MAIN, BAD + GOOD)
    policies = parse_policy(BROKEN)
    off = rules.breaking(stage.pins(target), policies, site)
    assert [pin.line for pin in off] == [3]
    text = preferences.without(BAD + GOOD, off, "why")
    assert [pin.packages for pin in preferences.parse_preferences(MAIN, text)] == [("vim",)]
    assert text.replace("# why\n", "").replace("# ", "") == (BAD + GOOD).replace("# ", "")


def test_a_stanza_that_breaks_nothing_stays(target: Target) -> None:
    site = preferences.parse_preferences(MAIN, BAD)
    assert rules.breaking(stage.pins(target), parse_policy(samples.POLICY), site) == []
    later = preferences.parse_preferences("/etc/apt/preferences.d/50-site.pref", BAD)
    policies = parse_policy(BROKEN)
    assert rules.breaking(stage.pins(target), policies, later) == [], "ours is read before it"


# -- content, by the lock -----------------------------------------------------------------
SHOWN = """\
Package: libnuma1
Version: 2.0.16-1
SHA256: aaaa

Package: libnuma1
Version: 2.0.99-1
SHA256: cccc

Package: python3
Version: 3.11.2-1
"""


def test_a_deb_with_another_content_is_refused_by_name() -> None:
    assert proof.hash_faults({"libnuma1": ("2.0.16-1", "aaaa")}, SHOWN) == []
    (fault,) = proof.hash_faults({"libnuma1": ("2.0.16-1", "bbbb")}, SHOWN)
    assert "libnuma1: 2.0.16-1 is offered with sha256 aaaa, the lock has bbbb: refused" in fault
    two = SHOWN.replace("2.0.99-1", "2.0.16-1")
    (fault,) = proof.hash_faults({"libnuma1": ("2.0.16-1", "aaaa")}, two)
    assert "sha256 cccc" in fault, "of two repositories the other may be the one that apt asks"


def test_a_locked_deb_that_nobody_offers_is_named() -> None:
    (fault,) = proof.hash_faults({"python3": ("3.11.2-1", "aaaa")}, SHOWN)
    assert "no repository offers 3.11.2-1" in fault, "what is installed proves nothing"
    assert len(proof.hash_faults({"a": ("1", "x"), "b": ("1", "y")}, "")) == 2
