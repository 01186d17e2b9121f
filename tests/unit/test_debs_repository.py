"""Repositories read over file and http: proved, torn, replayed, absent."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rackpin.debs import DebError, Refused, Unreachable, fetch_index, fetch_indices
from rackpin.debs import Repository as Source
from rackpin.debs.repository import TORN_TRIES, Index
from rackpin.debs.transport import Transport
from tests.fixtures_debs import FLAT, Repository, flip, make_repository, new_key, release_date
from tests.fixtures_debs_names import package

pytestmark = pytest.mark.skipif(
    not (shutil.which("dpkg-scanpackages") and shutil.which("gpg")), reason="needs dpkg-dev, gpg"
)
SMALL = [package("tool", "1"), package("libnccl2", "2.19.3-1+cuda12.2")]


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    return make_repository(tmp_path / "repo", packages=SMALL)


def source(made: Repository, url: str = "", **changes: object) -> Source:
    values = {
        "name": "nvidia", "url": url or f"file:{made.path}", "suite": made.suite,
        "components": () if made.layout == FLAT else ("main",), "key": made.key_file,
        "fingerprints": (made.fingerprint,), **changes,
    }  # fmt: skip
    return Source(**values)  # type: ignore[arg-type]


class Naps(list[float]):
    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def fetch(
    repository: Source, cache: Path | None = None, sleep: Callable[[float], None] | None = None
) -> Index:
    with Transport(Naps() if sleep is None else sleep) as transport:
        return fetch_index(repository, transport, cache)


def names(index: Index) -> list[str]:
    return sorted(stanza.name for stanza in index.stanzas)


@pytest.mark.parametrize("layout", ["dists", "flat"])
def test_both_layouts_are_read_and_lead_to_the_debs(tmp_path: Path, layout: str) -> None:
    made = make_repository(tmp_path / "repo", packages=SMALL, layout=layout)
    repository = source(made)
    index = fetch(repository)
    assert names(index) == ["libnccl2", "tool"]
    for stanza in index.stanzas:
        deb = stanza.deb()
        file = Path(repository.deb_url(deb.filename).removeprefix("file:"))
        assert hashlib.sha256(file.read_bytes()).hexdigest() == deb.sha256
        assert file.stat().st_size == deb.size
    assert index.release_sha256 == hashlib.sha256(index.release.text.encode()).hexdigest()


def test_a_separate_signature_does_when_there_is_no_inline_one(made: Repository) -> None:
    (made.release_dir / "InRelease").unlink()
    assert names(fetch(source(made))) == ["libnccl2", "tool"]
    (made.release_dir / "Release.gpg").unlink()
    with pytest.raises(Refused, match="repository nvidia: neither InRelease nor a signed Release"):
        fetch(source(made))


def test_the_wrong_key_is_refused(made: Repository) -> None:
    made.sign(new_key("intruder"))
    with pytest.raises(Refused, match="pinned is"):
        fetch(source(made))


def test_an_unsigned_one_must_be_accepted_in_so_many_words(made: Repository) -> None:
    for name in ("InRelease", "Release.gpg"):
        (made.release_dir / name).unlink()
    with pytest.raises(DebError, match="unless accept_unsigned is set"):
        source(made, key=None, fingerprints=())
    index = fetch(source(made, key=None, fingerprints=(), accept_unsigned=True))
    assert names(index) == ["libnccl2", "tool"]


def test_an_expired_release_is_refused_unless_it_is_a_snapshot(made: Repository) -> None:
    made.sign(Date=release_date(timedelta(days=-9)), Valid_Until=release_date(timedelta(days=-2)))
    with pytest.raises(Refused, match=r"Valid-Until .* has passed.*accept_expired"):
        fetch(source(made))
    assert fetch(source(made, accept_expired=True)).stanzas


def test_a_release_of_tomorrow_is_refused(made: Repository) -> None:
    made.sign(Date=release_date(timedelta(days=1)))
    with pytest.raises(Refused, match=r"not valid yet; set this machine's clock"):
        fetch(source(made))


def test_a_date_that_goes_back_is_refused(made: Repository, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    fetch(source(made), cache)
    fetch(source(made), cache)  # the same again is fine
    made.sign(Date=release_date(timedelta(days=-1)))
    with pytest.raises(Refused, match="Date goes back from") as caught:
        # through a mirror it is still the same repository
        fetch(source(made, fetch_from=f"file:{made.path}/."), cache)
    state = next((cache / "seen").iterdir())
    assert str(state) in str(caught.value)
    state.unlink()
    assert fetch(source(made), cache).stanzas


def test_a_mirror_is_used_but_another_suite_in_its_place_refused(made: Repository) -> None:
    mirrored = source(made, url="http://nvidia.invalid/x", fetch_from=f"file:{made.path}/")
    assert fetch(mirrored).stanzas
    made.sign(Suite="unstable", Codename="sid")
    with pytest.raises(Refused, match="is for suite sid / unstable, asked was rackpin-test"):
        fetch(mirrored)


@pytest.mark.parametrize("by_hash", ["yes", "no"])
def test_a_flipped_byte_in_an_index_is_named_after_a_few_tries(
    made: Repository, by_hash: str
) -> None:
    made.sign(Acquire_By_Hash=by_hash)
    for file in made.index_dir.rglob("*"):
        if file.is_file():
            flip(file)
    naps = Naps()
    with pytest.raises(Refused) as caught:
        fetch(source(made), sleep=naps)
    where = "by-hash/SHA256" if by_hash == "yes" else "Packages.xz"
    for word in (where, "sha256", "in the middle of a sync", f"asked {TORN_TRIES} times"):
        assert word in str(caught.value)
    assert naps == [2.0, 4.0, 8.0]


def test_a_torn_mirror_is_asked_again_until_it_is_whole(made: Repository) -> None:
    made.sign(Acquire_By_Hash="no")
    file = made.index_dir / "Packages.xz"
    good = file.read_bytes()
    file.write_bytes(good[:-7])

    def heal(_: float) -> None:
        file.write_bytes(good)

    assert fetch(source(made), sleep=heal).stanzas


def test_an_index_that_is_not_there_is_named(made: Repository) -> None:
    shutil.rmtree(made.index_dir)
    with pytest.raises(Refused, match=r"index of Release is missing: .*Packages.xz"):
        fetch(source(made))
    with pytest.raises(Refused, match="vouches for no contrib/binary-amd64/Packages"):
        fetch(source(made, components=("contrib",)))


def test_without_by_hash_files_the_plain_name_is_taken(made: Repository) -> None:
    shutil.rmtree(made.index_dir / "by-hash")
    (made.index_dir / "Packages.xz").unlink()
    assert fetch(source(made)).stanzas


def test_md5_alone_proves_nothing(made: Repository) -> None:
    text = (made.release_dir / "Release").read_text().partition("SHA256:")[0]
    made.sign_text(text)
    with pytest.raises(Refused, match="SHA256: missing"):
        fetch(source(made))


def test_a_release_without_a_date_is_refused(made: Repository) -> None:
    made.sign(Date="")
    with pytest.raises(Refused, match="Date: missing"):
        fetch(source(made))


@pytest.mark.parametrize("field", ["Filename: ../../etc/passwd.deb", "SHA256: 00", "Size: many"])
def test_an_index_that_points_elsewhere_is_refused(made: Repository, field: str) -> None:
    key = field.partition(":")[0]
    for file in ("Packages.gz", "Packages.xz"):
        (made.index_dir / file).unlink()
    shutil.rmtree(made.index_dir / "by-hash")
    text = (made.index_dir / "Packages").read_text()
    lines = [field if line.startswith(f"{key}:") else line for line in text.splitlines()]
    (made.index_dir / "Packages").write_text("\n".join(lines) + "\n")
    made.sign()
    with pytest.raises(Refused, match=f"refused: {key}"):
        fetch(source(made)).stanzas[0].deb()


def test_a_damaged_cache_is_fetched_anew(made: Repository, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    fetch(source(made), cache)
    for file in (cache / "indices").iterdir():
        flip(file)
    assert fetch(source(made), cache).stanzas
    shutil.rmtree(made.index_dir)  # the cache alone is enough while Release is the same
    with pytest.raises(Refused):
        fetch(source(made), None)


class Flaky(SimpleHTTPRequestHandler):
    """Answers 503 for the first requests, then serves."""

    failures = 2
    seen: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        type(self).seen.append(self.path)
        if len(self.seen) <= self.failures:
            self.send_error(503)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def http(made: Repository) -> Iterator[str]:
    Flaky.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Flaky, directory=str(made.path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_over_http_a_busy_server_is_asked_again(
    made: Repository, http: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert names(fetch(source(made, url=http))) == ["libnccl2", "tool"]
    monkeypatch.setattr(Flaky, "failures", 10**6)
    with pytest.raises(Unreachable, match="503"):
        fetch(source(made, url=http))


def test_what_does_not_answer_is_unreachable_not_refused(made: Repository) -> None:
    for url in ("http://127.0.0.1:1", "file:/nowhere/at/all"):
        with pytest.raises(Unreachable, match=r"is up and|mounted"):
            fetch(source(made, url=url))


def test_all_that_is_wrong_is_said_at_once(made: Repository, tmp_path: Path) -> None:
    down = source(made, url="http://127.0.0.1:1")
    other = make_repository(tmp_path / "other", packages=SMALL)
    bad = source(other, name="bad", fingerprints=("B" * 40,))
    with Transport(Naps()) as transport, pytest.raises(DebError) as caught:
        fetch_indices([down, bad], None, transport)
    assert "127.0.0.1:1" in str(caught.value) and "pinned is BBBB" in str(caught.value)
    assert not isinstance(caught.value, Unreachable)
    with pytest.raises(DebError, match="nvidia is there twice"):
        fetch_indices([down, down])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fingerprints": ("abcd",)}, "no fingerprint"),
        ({"components": ()}, "components: missing"),
        ({"suite": "/"}, "a flat repository"),
    ],
)
def test_a_repository_that_makes_no_sense_is_refused_at_once(
    made: Repository, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(DebError, match=f"repository nvidia: .*{words}"):
        source(made, **changes)


def test_times_are_read_as_utc(made: Repository) -> None:
    made.sign(Date="Sun, 29 Nov 2020 18:02:03 UTC")
    assert fetch(source(made)).release.date == datetime(2020, 11, 29, 18, 2, 3, tzinfo=UTC)
