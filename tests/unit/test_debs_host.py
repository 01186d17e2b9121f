"""From repositories on disk to a host's closure: the whole way, signatures included."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rackpin.debs import (
    Asked,
    Base,
    DebError,
    Driver,
    Refused,
    Unreachable,
    repositories,
    resolve_host,
)
from rackpin.debs.signature import key_bytes
from rackpin.debs.sources import FILE, origins
from rackpin.debs.transport import Transport
from tests.fixtures_debs import FLAT, Repository, make_repository, new_key
from tests.fixtures_debs_names import DRIVER, FM, package
from tests.unit.debs_samples import BASE

needs_tools = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("apt-get", "dpkg-scanpackages", "gpg")),
    reason="needs apt, dpkg-dev and gpg",
)
TABLE = """\
debian-12:
  os:
    - {{name: debian, url: "http://debian.invalid", suite: {system.suite}, components: [main],
       key: os.asc, fingerprints: [{system.fingerprint}]}}
  nvidia:
    - {{name: nvidia-cuda, url: "http://nvidia.invalid", suite: /, key: nvidia.asc,
       fingerprints: [{vendor.fingerprint}]}}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Two vendors with keys of their own; mirrors lead to them, keys lie in a directory."""
    system = make_repository(
        tmp_path / "debian",
        packages=[package("python3", "3.11.2-1", "libc6"), package("dkms", "3")],
    )
    vendor = make_repository(tmp_path / "nvidia", layout=FLAT, key=new_key("nvidia"))
    keys = tmp_path / "keys"
    keys.mkdir()
    shutil.copy(system.key_file, keys / "os.asc")
    shutil.copy(vendor.key_file, keys / "nvidia.asc")
    table = tmp_path / "table.yaml"
    table.write_text(TABLE.format(system=system, vendor=vendor), encoding="utf-8")
    real = repositories

    def of_table(*arguments: object, **named: object) -> object:
        return real(*arguments, **named, file=table)  # type: ignore[arg-type]

    monkeypatch.setattr("rackpin.debs.host.repositories", of_table)
    mirrors = {"debian": f"file:{system.path}", "nvidia-cuda": f"file:{vendor.path}"}
    return {"system": system, "vendor": vendor, "keys": keys, "mirrors": mirrors}


ASKED = [
    Asked("python3"),
    Asked("nvidia-driver-535", origin="nvidia"),
    Asked(FM, origin="nvidia"),
    Asked("libnccl2", "2.19.3-1+cuda12.2", "nvidia"),
]


def options(site: dict[str, object]) -> dict[str, object]:
    return {"keys": site["keys"], "mirrors": site["mirrors"], "base": BASE}


@needs_tools
def test_a_host_gets_its_driver_from_the_vendor_and_the_rest_from_its_os(
    site: dict[str, object], tmp_path: Path
) -> None:
    closure = resolve_host(
        "debian-12", ASKED, Driver(DRIVER), cache=tmp_path / "cache", **options(site)
    )  # type: ignore[arg-type]
    assert closure.versions[FM] == f"{DRIVER}-1"
    assert closure.versions["libnvidia-gl-535"] == f"{DRIVER}-0ubuntu1"
    origin = {deb.name: deb.repository for deb in closure.debs}
    assert origin.pop("python3") == "debian"
    assert set(origin.values()) == {"nvidia-cuda"}
    again = resolve_host(
        "debian-12", ASKED[::-1], Driver(DRIVER), cache=tmp_path / "cache", **options(site)
    )  # type: ignore[arg-type]
    assert again == closure


@needs_tools
def test_the_vendor_signing_with_another_key_stops_it(site: dict[str, object]) -> None:
    vendor = site["vendor"]
    assert isinstance(vendor, Repository)
    vendor.sign(new_key("rotated"))
    with pytest.raises(Refused, match="pinned is"):
        resolve_host("debian-12", ASKED, Driver(DRIVER), **options(site))  # type: ignore[arg-type]


@needs_tools
def test_a_vendor_that_is_down_is_unreachable(site: dict[str, object]) -> None:
    del site["mirrors"]["nvidia-cuda"]  # type: ignore[attr-defined]
    with Transport(lambda seconds: None) as transport, pytest.raises(Unreachable):
        resolve_host("debian-12", ASKED, Driver(DRIVER), transport=transport, **options(site))  # type: ignore[arg-type]


def test_the_shipped_table_is_whole_and_its_keys_are_there() -> None:
    for os_key in ("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04"):
        found = repositories(os_key, tuple(origins(os_key)))
        assert len({repository.name for repository in found}) == len(found)
        for repository in repositories(os_key):
            assert repository.key and key_bytes(repository.key)
            assert repository.url.startswith("http://") and not repository.flat
    assert FILE.read_text(encoding="utf-8").count("developer.download.nvidia.com") == 3


def test_a_site_may_move_addresses_but_only_of_what_there_is() -> None:
    moved = repositories("debian-12", mirrors={"debian": "http://mirror.site/debian"})
    assert moved[0].deb_url("pool/x.deb") == "http://mirror.site/debian/pool/x.deb"
    assert moved[0].url == "http://deb.debian.org/debian"
    with pytest.raises(DebError, match="did you mean 'debian'"):
        repositories("debian-12", mirrors={"debain": "http://mirror.site/debian"})
    with pytest.raises(DebError, match="no repositories for debian-11; known: debian-12"):
        repositories("debian-11")
    with pytest.raises(DebError, match="debian-13 has no repository for nvidia; known: os"):
        repositories("debian-13", ("os", "nvidia"))


@pytest.mark.parametrize(
    ("os_key", "driver", "family"),
    [
        ("debian-12", Driver("535.261.03", "os"), "nvidia-debian"),
        ("ubuntu-22.04", Driver("580.178.04", "os"), "nvidia"),
        ("ubuntu-22.04", Driver("535.129.03"), "nvidia"),
        ("ubuntu-24.04", Driver("595.10.01"), "nvidia-unnumbered"),
    ],
)
def test_the_family_follows_from_who_packed_the_driver(
    os_key: str, driver: Driver, family: str
) -> None:
    assert driver.family_name(os_key) == family


def test_a_base_from_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(DebError, match="absent: no dpkg status file"):
        Base.from_status(tmp_path / "absent")
