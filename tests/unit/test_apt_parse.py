"""Parsers of apt's files and words, on texts as apt 2.6 has and prints them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpin.parse.apt_policy import parse_policy
from rackpin.parse.apt_preferences import in_order, parse_preferences, pins, read_by_apt
from rackpin.parse.apt_simulate import moved, parse_simulation
from rackpin.parse.apt_sources import parse_sources, same_suite, same_uri, without
from rackpin.parse.dpkg_status import parse_status
from rackpin.parse.stanzas import stanzas
from tests.unit.apt_samples import POLICY

PREFERENCES = """\
# the site's
Explanation: keep the driver of the image
Package: nvidia-driver-535 nvidia-dkms-535
Pin: version 535.183*
Pin-Priority: 1002

Package: /^libnvidia-.*-5[0-9]+$/
Pin: release l=NVIDIA CUDA
Pin-Priority: 600
Package: *
Pin: origin ""
Pin-Priority: 700

Package: nvidia-*:any
Pin: version *
Pin-Priority: high
"""


def test_stanzas_know_their_lines_and_repeated_keys() -> None:
    first, joined, last = stanzas(PREFERENCES)
    assert (first.first, first.last, first.get("Pin-Priority")) == (2, 5, "1002")
    assert joined.twice == ("package", "pin", "pin-priority")
    assert last.get("package") == "nvidia-*:any"


def test_preferences_name_packages_by_name_glob_and_expression() -> None:
    exact, joined, glob = parse_preferences("/etc/apt/preferences", PREFERENCES)
    assert exact.place == "/etc/apt/preferences:2"
    assert exact.names("nvidia-dkms-535") and not exact.names("nvidia-driver-550")
    assert exact.agrees("535.183.01-1") and not exact.agrees("535.129.03-1")
    assert "blank line" in joined.fault and not joined.names("anything"), "* is no one's name"
    assert glob.priority is None and "'high' is not a number" in glob.fault
    assert glob.names("nvidia-utils-535")


def test_an_expression_is_searched_as_apt_does() -> None:
    (pin,) = parse_preferences("x", "Package: /nvidia-gl-5/\nPin: version *\nPin-Priority: 1\n")
    assert pin.names("libnvidia-gl-535") and not pin.agrees("1")
    (pin,) = parse_preferences("x", "Package: /(/\nPin: version *\nPin-Priority: 1\n")
    assert not pin.names("libnvidia-gl-535")


@pytest.mark.parametrize(
    ("name", "read"),
    [("00-rackpin.pref", True), ("cuda-repository-pin-600", True), ("a_b", True),
     ("cuda-12.2", False), ("site.conf", False), (".hidden", False), ("x.pref.bak", False)],
)  # fmt: skip
def test_which_file_names_apt_reads(name: str, read: bool) -> None:
    assert read_by_apt(f"/etc/apt/preferences.d/{name}") is read


def test_the_order_in_which_apt_reads_them() -> None:
    part = "/etc/apt/preferences.d/"
    names = [f"{part}a", f"{part}00-rackpin.pref", "/etc/apt/preferences", f"{part}Z"]
    assert in_order(names) == [
        "/etc/apt/preferences", f"{part}00-rackpin.pref", f"{part}Z", f"{part}a",
    ]  # fmt: skip
    text = "Package: x\nPin: version 1\nPin-Priority: 1\n"
    assert [p.file for p in pins(dict.fromkeys(names, text))] == in_order(names)


LIST = """\
# a comment
deb http://deb.debian.org/debian bookworm main contrib
deb [arch=amd64 signed-by=/usr/share/keyrings/nv.gpg] https://Dev.NVIDIA.com/repos/x86_64 / # mine
#deb http://off.example/ x main
  deb-src http://deb.debian.org/debian/ bookworm main
deb cdrom
"""
DEB822 = """\
# Debian's own
Types: deb deb-src
URIs: http://a.example/debian/ http://b.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQ

Enabled: no
Types: deb
URIs: http://off.example
Suites: x

Enabled: yes
Types: deb
URIs: http://on.example/
Suites: ./
Trusted: yes"""


def test_one_line_sources() -> None:
    debian, nvidia, source = parse_sources("/etc/apt/sources.list", LIST)
    assert debian.components == {"main", "contrib"} and debian.first == 2
    assert nvidia.uris == ("https://dev.nvidia.com/repos/x86_64/",)
    assert nvidia.signed_by == "/usr/share/keyrings/nv.gpg" and nvidia.components == frozenset()
    assert nvidia.names("https://dev.nvidia.com/repos/x86_64", "./")
    assert source.types == ("deb-src",) and source.place == "/etc/apt/sources.list:5"


def test_deb822_sources() -> None:
    two, on = parse_sources("/etc/apt/sources.list.d/x.sources", DEB822)
    assert two.uris == ("http://a.example/debian/", "http://b.example/debian/")
    assert two.names("http://b.example/debian", "bookworm-updates")
    assert "BEGIN PGP" in two.signed_by and two.trusted == ""
    assert on.trusted == "yes" and on.first == 16


def test_one_spelling_of_addresses_and_suites() -> None:
    assert same_uri("HTTP://Host:80/Path") == same_uri("http://host:80/Path/")
    assert same_uri("file:/srv/x") == same_uri("file:///srv/x/")
    assert same_suite("./") == same_suite("/") and same_suite("./deb/") == "deb/"
    assert same_suite("bookworm") == "bookworm"


@pytest.mark.parametrize(("path", "text"), [("a.list", LIST), ("a.sources", DEB822)])
def test_switching_an_entry_off_leaves_the_others(path: str, text: str) -> None:
    for source in parse_sources(path, text):
        changed = without(text, source, "switched off:")
        left = parse_sources(path, changed)
        assert [s.uris for s in left] == [
            s.uris for s in parse_sources(path, text) if s.first != source.first
        ]
        for line in text.splitlines():
            assert line in changed, "nothing of the file is lost"


@given(text=st.text(alphabet=" \n#:/-debTypsURISunoE[]=x.", max_size=200))
def test_any_text_is_read(text: str) -> None:
    for path in ("a.list", "a.sources"):
        for source in parse_sources(path, text):
            assert source.first - 1 < len(text.splitlines())
            without(text, source, "x")
    parse_preferences("p", text)
    parse_policy(text)
    parse_simulation(text)


def test_policy() -> None:
    found = parse_policy(POLICY + "N: Unable to locate package nosuch\n")
    assert found.keys() == {"nvidia-utils-535", "site-agent+x"}
    driver = found["nvidia-utils-535"]
    assert driver.installed == driver.candidate == "535.129.03-0ubuntu1"
    assert driver.priority("535.183.01-0ubuntu1") == -1
    assert driver.versions[1].places == ("http://10.9.0.1:8901/nvidia/", "/var/lib/dpkg/status")
    agent = found["site-agent+x"]
    assert (agent.installed, agent.candidate) == ("", "1:2.0-1")
    assert agent.versions[0].places == ("file:///srv/debs/",)


SIMULATION = """\
NOTE: This is only a simulation!
Remv cuda-drivers-535 [535.129.03-1]
Inst libc6 [2.36-9] (2.36-10 Debian:12.5/stable [amd64]) []
Inst nvidia-utils-535 [535.129.03-0ubuntu1] (535.183.01-0ubuntu1 nv:stable [amd64])
Inst libnvidia-gl-550 (550.54.15-0ubuntu1 nv:stable [amd64])
Inst libnvidia-gl-535:i386 (535.129.03-0ubuntu1 nv:stable [i386])
Conf nvidia-utils-535 (535.183.01-0ubuntu1 nv:stable [amd64])
"""


def test_simulation_tells_who_moves() -> None:
    steps = parse_simulation(SIMULATION)
    assert len(steps) == 5
    pinned = {"nvidia-utils-535": "535.129.03-0ubuntu1", "cuda-drivers-535": "535.129.03-1"}
    assert [str(step) for step in moved(steps, pinned)] == [
        "removes cuda-drivers-535 535.129.03-1",
        "moves nvidia-utils-535 535.129.03-0ubuntu1 → 535.183.01-0ubuntu1",
    ]
    new = "Inst cuda-drivers-535 (535.129.03-1 nv:stable [amd64])"
    assert moved(parse_simulation(new), pinned) == [], "coming in at its pin is no move"
    assert moved(parse_simulation(new.replace("129", "183")), pinned)


def test_dpkg_status() -> None:
    lines = [
        "a|amd64|hold|installed|1:2.0-1",
        "a|i386|install|installed|9",
        "b|all|install|half-configured|3",
        "c|amd64|deinstall|config-files|4",
        "d|amd64|hold|not-installed|",
        "dpkg-query: no packages found matching e",
    ]
    found = parse_status(lines)
    assert found["a"].held and found["a"].version == "1:2.0-1"
    assert not found["b"].installed and "d" not in found
    assert found["c"].state == "config-files"
